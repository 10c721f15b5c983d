"""Rewards from pictures in a training: a model scores many pictures in one call, and rewards are computed from the scores.

    reward of a step = weight * (level, delta or potential of the model's scores) + bonus if the model sees the task completed

If the model sees the task completed, the episode ends there for the learner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.images.picture_reward import PictureReward, Pictures, pictures_of
from robo_rl.rewards.step_rewards.place import Memory, Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import StepQueue, Steps, StepScores
from robo_rl.types import Labels


@dataclass(frozen=True)
class Completion:
    """Bonus for the step in which a model of pictures, not the simulator, sees the task completed."""

    model: PictureReward
    """Model that scores how completed the task is; its mode must be "level"."""
    threshold: float = 0.5
    """Score from which the task counts as completed."""
    bonus: float = 1.0
    """Reward for the step that completes the task, with which the episode ends for the learner. Paid in every step, it would
    reward waiting if the model is wrong; paid without an end, the value of a state would depend on earlier payments."""

    def __post_init__(self) -> None:
        if self.model.mode != "level":
            raise InvalidSetting("Completion is a level.", got=f"mode {self.model.mode!r}", allowed="mode: level")
        require_allowed(self, {"bonus": (bool(np.isfinite(self.bonus)), "a finite number")})


@dataclass(frozen=True)
class PictureScoring(StepReward):
    """Reward of a training that scores pictures by a model, many in one call.

    It collects `every` pictures, scores them together, and turns the scores into rewards of the steps.
    """

    is_weighted: ClassVar[bool] = True
    """True, because `score_steps` already multiplies the rewards by `Place.weight`."""
    model: PictureReward
    """Model that scores pictures."""
    every: int = 64
    """Pictures scored in one call, 1 or more."""
    hold: int = 1
    """Steps between two scored pictures, 1 or more, for models that are slow or cost money; in between the last score holds."""
    completion: Completion | None = None
    """Bonus for completion; None for none."""
    alone: Sequence[str] = ()
    """Names of observation entries that only the reward reads; the policy does not see them."""

    def __post_init__(self) -> None:
        require_allowed(self, {name: (getattr(self, name) >= 1, "1 or more") for name in ("every", "hold")})
        if self.model.mode == "potential" and self.completion is None:
            raise InvalidSetting(
                "A potential alone makes all policies equally good: nothing would be learnt.",
                got="mode potential without a completion",
                allowed="potential with a completion bonus, or mode: delta",
                fix="name a model of completion in reward.completion, or set reward.settings.mode to delta",
            )

    @property
    @override
    def identity(self) -> tuple[str, str]:
        return self.model.identity

    def facts(self, place: Place) -> Mapping[str, str | float]:
        """Return further values on which the rewards depend: a hash of the words, and model and settings of the completion."""
        facts: dict[str, str | float] = {"prompt": self.model.prompt_hash, "hold": self.hold}
        if (completion := self.completion) is not None:
            name, weights = completion.model.identity
            facts |= {"completion_model": name, "completion_weights": weights}
            facts |= {"completion_prompt": completion.model.prompt_hash}
            facts |= {"completion_threshold": completion.threshold, "completion_bonus": completion.bonus}
        return facts

    @override
    def hidden(self) -> Sequence[str]:
        return self.alone

    def require(self, place: Place) -> None:
        """Raise InvalidSetting unless there are pictures, and the model can score single ones by these words."""
        blank = {name: np.zeros((1, *array.shape), array.dtype) for name, array in place.spec.observation.items()}
        for model in self._models:
            none = pictures_of(blank, model.eye)[:0]
            model.score(none, none, model.instruction or place.spec.instruction)

    @property
    def _models(self) -> Sequence[PictureReward]:
        return [self.model] if self.completion is None else [self.model, self.completion.model]

    def entries(self, place: Place) -> Sequence[str]:
        """Return the names of the observation entries that the reward reads: all vectors and its cameras' pictures."""
        eyes = {name for model in self._models for name in (model.eye, f"camera_{model.eye}")}
        return [*super().entries(place), *(name for name in place.spec.observation if name in eyes)]

    @property
    def _asks_firsts(self) -> bool:
        """True if first pictures of episodes are scored, too; unnecessary if each step is paid the level of its own picture."""
        return self.hold > 1 or self.model.mode != "level"

    def _asks(self, steps: Steps) -> npt.NDArray[np.bool_]:
        """Return (K,) True for steps whose pictures are scored; for others the last score holds."""
        asks: npt.NDArray[np.bool_] = steps.ended | (steps.number % self.hold == 0)
        return asks

    @override
    def is_due(self, waiting: StepQueue) -> bool:
        pictures = len(waiting) if self.hold == 1 else waiting.count(self._asks)
        return pictures + waiting.started * self._asks_firsts >= self.every

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the rewards of K steps; a step ends the task if the completion's model sees the task completed."""
        asks, completion = self._asks(steps), self.completion
        now, before = self._scores(steps, asks, place)
        valid, ends, bonus = np.ones(len(steps), np.bool_), np.zeros(len(steps), np.bool_), 0.0
        if completion is not None:
            shown = _shown(steps, completion.model, place.memory, "completed firsts")
            seen = self._called(completion.model, [each for each, is_asked in zip(shown, asks, strict=True) if is_asked])
            valid[asks], ends[asks] = seen.valid, seen.valid & (seen.values >= completion.threshold)
            bonus = completion.bonus
        paid = self._paid(now, before, steps.terminated | ends)
        value = place.weight * self.model.combined(paid.values, self.model.states(steps.after)).astype(np.float64)
        labels = Labels.finite(value + bonus * ends, valid & paid.valid, dtype=np.float64)
        earned = bonus * ends if self.model.mode == "potential" else labels.values
        terms = {"model_return": np.where(labels.valid, earned, np.nan)}
        return StepScores(labels, terms if completion is None else {**terms, "completed": ends.astype(np.float64)}, ends)

    def _paid(self, now: Labels, before: Labels, ends: npt.NDArray[np.bool_]) -> Labels:
        """Return the rewards (K,) of steps from the scores before and after them.

        ends: (K,) True if the task ended with the step.
        """
        if self.model.mode == "level":
            return self.model.rewards(now)
        pairs = [np.stack(both, axis=1) for both in ((before.values, now.values), (before.valid, now.valid))]
        found = (
            self.model.rewards(Labels(values, valid), terminated=bool(is_end))
            for values, valid, is_end in zip(*pairs, ends, strict=True)
        )
        return Labels.joined([*found])

    def _scores(self, steps: Steps, asks: npt.NDArray[np.bool_], place: Place) -> tuple[Labels, Labels]:
        """Return the scores after and before each step; only steps in `asks` are scored, others keep the score before."""
        is_first = steps.begins & self._asks_firsts
        wanted = []
        for row, shown in enumerate(_shown(steps, self.model, place.memory, "firsts")):
            wanted += [shown._replace(picture=shown.first)] if is_first[row] else []
            wanted += [shown] if asks[row] else []
        labels = self._called(self.model, wanted)
        found = zip(labels.values.tolist(), labels.valid.tolist(), strict=True)
        last, both = place.memory.setdefault("scores", {}), []
        for row, index in enumerate(map(str, steps.index.tolist())):
            if steps.begins[row]:
                last[index] = next(found) if is_first[row] else (0.0, False)
            before = last[index]
            last[index] = next(found) if asks[row] else before
            both.append((*last[index], *before))
        values, valid, values_before, valid_before = (np.array(part) for part in zip(*both, strict=True))
        return Labels(values, valid), Labels(values_before, valid_before)

    def _called(self, model: PictureReward, shown: Sequence[ModelInput]) -> Labels:
        """Return the scores of pictures, at most `every` in one call of the model; each instruction needs its own call."""
        values, valid = np.zeros(len(shown), np.float32), np.zeros(len(shown), np.bool_)
        for start in range(0, len(shown), self.every):
            part = range(start, min(start + self.every, len(shown)))
            for instruction in dict.fromkeys(shown[row].instruction for row in part):
                rows = [row for row in part if shown[row].instruction == instruction]
                pictures = np.stack([shown[row].picture for row in rows])
                scores = model.score(pictures, _stacked([shown[row].first for row in rows]), instruction)
                values[rows], valid[rows] = np.where(scores.valid, scores.values, 0), scores.valid
        return Labels(values, valid)


class ModelInput(NamedTuple):
    """What a picture model reads for one score: the picture, the episode's first picture, and the instruction."""

    picture: Pictures
    """(H, W, 3) uint8 picture to score"""
    first: Pictures
    """(H, W, 3) first picture of the episode; the same array for all pictures of the episode"""
    instruction: str | None


def _shown(steps: Steps, model: PictureReward, memory: Memory, key: str) -> list[ModelInput]:
    """Return the model's input after each step; `memory[key]` keeps the first pictures of running episodes."""
    pictures, began = (pictures_of(side, model.eye) for side in (steps.after, steps.before))
    firsts, shown = memory.setdefault(key, {}), []
    for row, index in enumerate(map(str, steps.index.tolist())):
        if steps.begins[row]:
            firsts[index] = np.array(began[row])
        shown.append(ModelInput(pictures[row], firsts[index], model.instruction or steps.instructions[row]))
    return shown


def _stacked(firsts: Sequence[Pictures]) -> Pictures:
    """Return the pictures as (N, H, W, 3), without a copy if all are the same array, so that a model can encode it once."""
    same = all(first is firsts[0] for first in firsts)
    return np.broadcast_to(firsts[0], (len(firsts), *firsts[0].shape)) if same else np.stack(firsts)
