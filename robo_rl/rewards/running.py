"""Scores the pictures of environments under way, many at once, and makes rewards of the scores in the order of the steps."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, RewardUnavailable, require_allowed
from robo_rl.rewards.pictures import PictureReward, Pictures, Scores, pictures_of
from robo_rl.spec import Observation
from robo_rl.stopwatch import timed
from robo_rl.types import Metrics, StateDict

RECENT = 100  # episodes of which means are told, as of the environment's own return (robo_rl.record)
MOST_MISSING = 1000  # steps in a row without a label; an endpoint that is down should not cost a night of learning nothing


@dataclass(frozen=True)
class Completion:
    """A bonus where the model, not the simulator, sees the task completed."""

    model: PictureReward
    """Whose score says how sure it is; its mode is "level"."""
    threshold: float = 0.5
    """Score from which the task counts as completed."""
    bonus: float = 1.0
    """Paid in the step that completes the task, with which it ends for the learner: paid in every step it would pay for waiting
    where the model is wrong, and paid without an end a state would be worth what was paid before."""

    def __post_init__(self) -> None:
        if self.model.mode != "level":
            raise InvalidSetting("Completion is a level.", got=f"mode {self.model.mode!r}", allowed="mode: level")
        require_allowed(self, {"bonus": (bool(np.isfinite(self.bonus)), "a finite number")})


@dataclass
class _Episode:
    """What is known of an episode under way."""

    score: float = 0.0
    """Of the newest picture that was scored."""
    known: bool = False
    completed: bool = False
    """Whether the model has seen the task completed: what follows is not learnt from."""
    total: float = 0.0
    """Sum of what was paid, as far as it is known."""


@dataclass(frozen=True)
class _Event:
    """A beginning or a step of an environment whose scores are still to come."""

    index: int
    begins: bool = False
    terminated: bool = False
    ended: bool = False
    asks: bool = True
    """Whether its picture is scored; else the score before holds."""


class RunningRewards:
    """The rewards of N environments; implements `robo_rl.protocols.DelayedRewards`.

    Each picture is scored once: the score of the newest one is kept until the next step needs it. State and pictures that wait
    are saved, so that after a resume the same pictures are scored in the same calls.
    """

    def __init__(
        self,
        model: PictureReward,
        environments: int,
        *,
        weight: float,
        every: int,
        hold: int,
        completion: Completion | None,
    ) -> None:
        self._model, self._weight, self._every, self._completion = model, weight, every, completion
        self._hold, self._asks_firsts = hold, hold > 1 or model.mode != "level"
        self._seen = _Queue(model, every)
        self._done = None if completion is None else _Queue(completion.model, every)
        self._events: list[_Event] = []
        self._episodes = [_Episode() for _ in range(environments)]
        self._taken = [0] * environments  # steps of the episodes under way
        self._returns: deque[float] = deque(maxlen=RECENT)
        self._completed: deque[bool] = deque(maxlen=RECENT)
        self._steps = self._missing = self._missing_in_a_row = 0

    @property
    def is_due(self) -> bool:
        """True once `every` pictures wait."""
        return len(self._seen) >= self._every

    @property
    def metrics(self) -> Metrics:
        """The model's mean return over recent episodes, how often it saw them completed, and the share of missing labels.

        Its return is what it pays for: of a potential, which adds to no whole episode, the bonus alone.
        """
        found = {"reward/missing": self._missing / max(self._steps, 1)}
        if self._returns:
            found["reward/model_return"] = float(np.mean(self._returns))
            if self._done is not None:
                found["reward/completed"] = float(np.mean(self._completed))
        return found

    def restart(self) -> None:
        """Forgets what waits."""
        self._events.clear()
        for queue in self._queues:
            queue.clear()

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode."""
        for queue in self._queues:
            queue.begin(index, observation, instruction)
        if self._asks_firsts:  # a level of every step needs no score of the first picture
            self._seen.add(index, observation)
        self._taken[index] = 0
        self._events.append(_Event(index, begins=True))

    def add(self, index: int, observation: Observation, *, terminated: bool, truncated: bool) -> None:
        """Environment `index` took a step that led to `observation`."""
        self._taken[index] += 1
        ended = terminated or truncated
        asks = ended or self._taken[index] % self._hold == 0
        for queue in self._queues if asks else ():
            queue.add(index, observation)
        self._events.append(_Event(index, terminated=terminated, ended=ended, asks=asks))

    def score(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Returns the rewards of the steps since the last call, in their order, which are known, and which end the task."""
        steps, events = [], self._events
        seen = iter(timed("score", self._seen.scores))
        done = iter(timed("score", self._done.scores) if self._done is not None else [])
        self._events = []
        for event in events:
            if event.begins:
                score, known = next(seen) if self._asks_firsts else (0.0, False)
                self._episodes[event.index] = _Episode(score, known)
            else:
                episode = self._episodes[event.index]
                now = next(seen) if event.asks else (episode.score, episode.known)
                steps.append(self._reward(event, now, next(done, None) if event.asks else None))
        values, known, ends = ([step[part] for step in steps] for part in range(3))
        return np.array(values, np.float32), np.array(known, np.bool_), np.array(ends, np.bool_)

    def _reward(self, event: _Event, now: tuple[float, bool], done: tuple[float, bool] | None) -> tuple[float, bool, bool]:
        """Returns the reward of a step, whether it is known, and whether the task ends with it.

        done: the score of completion, where that was asked for.
        """
        episode = self._episodes[event.index]
        before, (episode.score, episode.known) = (episode.score, episode.known), now
        if episode.completed:
            self._finish(event, episode)
            return 0.0, False, False
        completion, is_told = self._completion, done is None or done[1]
        completes = completion is not None and done is not None and done[1] and done[0] >= completion.threshold
        needed = [now] if self._model.mode == "level" else [before, now]
        scores = Scores(*(np.array(part) for part in zip(*needed, strict=True)))
        values, valid = self._model.rewards(scores, terminated=event.terminated or completes)
        value, known = self._weight * float(values[-1]), bool(valid[-1]) and is_told
        bonus = completion.bonus if completion is not None and completes else 0.0
        episode.completed = completes
        self._count(known)
        if known:
            episode.total += bonus + (0.0 if self._model.mode == "potential" else value)
        self._finish(event, episode)
        return (value + bonus, True, completes) if known else (0.0, False, False)

    def _finish(self, event: _Event, episode: _Episode) -> None:
        if event.ended:
            self._returns.append(episode.total)
            self._completed.append(episode.completed)

    def _count(self, known: bool) -> None:
        self._steps += 1
        self._missing += not known
        self._missing_in_a_row = 0 if known else self._missing_in_a_row + 1
        if self._missing_in_a_row >= MOST_MISSING:
            raise RewardUnavailable(
                f"The reward {self._model.identity[0]} has given no usable answer for {self._missing_in_a_row} steps.",
                got=f"{self._missing} of {self._steps} steps without a label",
                allowed=f"less than {MOST_MISSING} in a row",
                fix="look at what the model answers (robo-rl label shows it on recorded episodes), then resume the run",
            )

    @property
    def _queues(self) -> list[_Queue]:
        return [self._seen] if self._done is None else [self._seen, self._done]

    def state_dict(self) -> StateDict:
        """Returns what waits, what is known of the episodes under way, and the recent ones."""
        return {
            "queues": {str(number): queue.state_dict() for number, queue in enumerate(self._queues)},
            "events": [asdict(event) for event in self._events],
            "episodes": [asdict(episode) for episode in self._episodes],
            "taken": list(self._taken),
            "returns": list(self._returns),
            "completed": list(self._completed),
            "counts": [self._steps, self._missing, self._missing_in_a_row],
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned, of as many environments."""
        for number, queue in enumerate(self._queues):
            queue.load_state_dict(state["queues"][str(number)])
        self._events = [_Event(**event) for event in state["events"]]
        self._episodes = [_Episode(**episode) for episode in state["episodes"]]
        self._taken = list(state["taken"])
        self._returns.extend(state["returns"])
        self._completed.extend(state["completed"])
        self._steps, self._missing, self._missing_in_a_row = state["counts"]


class _Queue:
    """Pictures that wait to be scored by one model."""

    def __init__(self, model: PictureReward, every: int) -> None:
        self._model, self._every = model, every
        self._firsts: dict[int, Pictures] = {}
        self._instructions: dict[int, str | None] = {}
        self._waiting: list[tuple[Pictures, Pictures, str | None]] = []

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        self._firsts[index] = self._picture(observation)
        self._instructions[index] = self._model.instruction or instruction

    def add(self, index: int, observation: Observation) -> None:
        self._waiting.append((self._picture(observation), self._firsts[index], self._instructions[index]))

    def __len__(self) -> int:
        return len(self._waiting)

    def clear(self) -> None:
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
        return np.array(pictures_of(shown, self._model.camera)[0])

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
