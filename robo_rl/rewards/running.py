"""Scores the pictures of environments under way, many at once, and makes rewards of the scores in the order of the steps."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass

import numpy as np

from robo_rl.errors import InvalidSetting, RewardUnavailable, require_allowed
from robo_rl.rewards.picture_queue import PictureQueue
from robo_rl.rewards.pictures import PictureReward, Scores
from robo_rl.spec import Observation
from robo_rl.stopwatch import timed
from robo_rl.types import Array, Labels, Metrics, StateDict, StepRewards

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
    state: tuple[float, ...] = ()
    """What counts beside the picture."""


class RunningRewards:
    """The rewards of N environments; implements `robo_rl.reward_protocols.DelayedRewards`.

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
        self._seen = PictureQueue(model, every)
        self._done = None if completion is None else PictureQueue(completion.model, every)
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

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step that led to `observation`; a picture is judged by itself."""
        del action, reward
        self._taken[index] += 1
        ended = terminated or truncated
        asks = ended or self._taken[index] % self._hold == 0
        for queue in self._queues if asks else ():
            queue.add(index, observation)
        state = self._model.states({name: np.asarray(value)[None] for name, value in observation.items()})[0]
        self._events.append(_Event(index, terminated=terminated, ended=ended, asks=asks, state=tuple(state.tolist())))

    def score(self) -> StepRewards:
        """Return the rewards of the steps since the last call, in their order."""
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
        values, valid, ends = (np.array([step[part] for step in steps]) for part in range(3))
        return StepRewards(Labels.finite(values, valid.astype(np.bool_)), ends.astype(np.bool_))

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
        paid = self._model.combined(values[-1:], np.array([event.state]))[0]
        value, known = self._weight * float(paid), bool(valid[-1]) and is_told
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
    def _queues(self) -> list[PictureQueue]:
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
