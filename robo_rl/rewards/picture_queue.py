"""Pictures of environments under way that wait to be scored by one model, many in one call."""

from __future__ import annotations

import numpy as np

from robo_rl.rewards.pictures import PictureReward, Pictures, pictures_of
from robo_rl.spec import Observation
from robo_rl.types import StateDict


class PictureQueue:
    """Pictures that wait to be scored by one model."""

    def __init__(self, model: PictureReward, every: int) -> None:
        self._model, self._every = model, every
        self._firsts: dict[int, Pictures] = {}
        self._instructions: dict[int, str | None] = {}
        self._waiting: list[tuple[Pictures, Pictures, str | None]] = []

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode."""
        self._firsts[index] = self._picture(observation)
        self._instructions[index] = self._model.instruction or instruction

    def add(self, index: int, observation: Observation) -> None:
        """Takes in a picture of the episode of environment `index`."""
        self._waiting.append((self._picture(observation), self._firsts[index], self._instructions[index]))

    def __len__(self) -> int:
        """Pictures that wait."""
        return len(self._waiting)

    def clear(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()

    def scores(self) -> list[tuple[float, bool]]:
        """Returns score and validity of each picture that waits, and forgets them."""
        found, waiting, self._waiting = [], self._waiting, []
        for start in range(0, len(waiting), self._every):
            found += self._call(waiting[start : start + self._every])
        return found

    def _call(self, shown: list[tuple[Pictures, Pictures, str | None]]) -> list[tuple[float, bool]]:
        """Scores some pictures; those of another instruction are another call."""
        found: list[tuple[float, bool]] = [(0.0, False)] * len(shown)
        for instruction in dict.fromkeys(said for _, _, said in shown):
            rows = [row for row, (_, _, said) in enumerate(shown) if said == instruction]
            pictures = np.stack([shown[row][0] for row in rows])
            scores = self._model.score(pictures, _stacked([shown[row][1] for row in rows]), instruction)
            valid = scores.valid & np.isfinite(scores.values)
            for row, value, known in zip(rows, scores.values, valid, strict=True):
                found[row] = (float(value), True) if known else (0.0, False)
        return found

    def _picture(self, observation: Observation) -> Pictures:
        """Returns a copy, because environments may draw the next picture into the same memory."""
        shown = {name: np.asarray(value)[None] for name, value in observation.items()}
        return np.array(pictures_of(shown, self._model.eye)[0])

    def state_dict(self) -> StateDict:
        """Returns what waits and the firsts, each once, so that later calls show the model the very same arrays."""
        firsts = {id(first): first for first in [*(first for _, first, _ in self._waiting), *self._firsts.values()]}
        number = {identity: index for index, identity in enumerate(firsts)}
        return {
            "pictures": {str(index): picture for index, (picture, _, _) in enumerate(self._waiting)},
            "firsts": {str(number[identity]): first for identity, first in firsts.items()},
            "first_of": [number[id(first)] for _, first, _ in self._waiting],
            "said": [said for _, _, said in self._waiting],
            "running": {str(index): number[id(first)] for index, first in self._firsts.items()},
            "running_said": {str(index): said for index, said in self._instructions.items()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        firsts = [np.array(state["firsts"][str(index)]) for index in range(len(state["firsts"]))]
        pictures = [np.array(state["pictures"][str(index)]) for index in range(len(state["pictures"]))]
        shown = [firsts[number] for number in state["first_of"]]
        self._waiting = [*zip(pictures, shown, state["said"], strict=True)]
        self._firsts = {int(index): firsts[number] for index, number in state["running"].items()}
        self._instructions = {int(index): said for index, said in state["running_said"].items()}


def _stacked(firsts: list[Pictures]) -> Pictures:
    """Returns (N, H, W, 3); of one episode without copies, so that a model can see that it need look at one only."""
    same = all(first is firsts[0] for first in firsts)
    return np.broadcast_to(firsts[0], (len(firsts), *firsts[0].shape)) if same else np.stack(firsts)
