"""A pipeline on the steps of environments under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robo_rl.reward_protocols import DelayedRewards
from robo_rl.rewards.episode_sums import EpisodeSums
from robo_rl.rewards.pipeline_parts import Given, Mixture
from robo_rl.rewards.steps import StepQueue
from robo_rl.spec import Observation
from robo_rl.types import Array, Labels, Metrics, StateDict, StepRewards


class RunningPipeline:
    """Tells every source of every step, and mixes what they say; implements `robo_rl.reward_protocols.DelayedRewards`."""

    def __init__(
        self, sources: Sequence[tuple[str, DelayedRewards | None]], mixture: Mixture, *, weight: float, every: int
    ) -> None:
        """sources: in the order of the mixture, with their names; None for the environment's own reward."""
        self._sources, self._mixture, self._weight, self._every = sources, mixture, weight, every
        self._models = {name: source for name, source in sources if source is not None}
        self._queue = StepQueue(mixture.entries)
        self._sums = EpisodeSums()
        self._steps = self._missing = 0

    @property
    def is_due(self) -> bool:
        """True once `every` steps wait, or enough for a source."""
        return len(self._queue) >= self._every or any(source.is_due for source in self._models.values())

    @property
    def metrics(self) -> Metrics:
        """Means over recent episodes of every value on the way, and what the sources say of themselves, by their names."""
        found = {f"reward/{name}": mean for name, mean in self._sums.means.items()}
        found["reward/missing"] = self._missing / max(self._steps, 1)
        for name, source in self._models.items():
            found |= {f"reward/{name}/{tag.removeprefix('reward/')}": value for tag, value in source.metrics.items()}
        return found

    def restart(self) -> None:
        """Forgets what waits."""
        for each in (self._queue.clear, self._sums.restart, self._mixture.restart):
            each()
        for source in self._models.values():
            source.restart()

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode."""
        self._queue.begin(index, observation)
        for source in self._models.values():
            source.begin(index, observation, instruction)

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step; its own reward is kept beside, and counts where a source is that reward."""
        takers: list[StepQueue | DelayedRewards] = [self._queue, *self._models.values()]
        for taker in takers:
            taker.add(index, observation, action=action, reward=reward, terminated=terminated, truncated=truncated)

    def score(self) -> StepRewards:
        """Return the rewards of the steps since the last call; the task ends if it does for a source."""
        steps = self._queue.take()
        answers = [None if source is None else source.score() for _, source in self._sources]
        ends = np.zeros(len(steps), np.bool_)
        for answer in answers:
            ends |= False if answer is None else answer.ends
        if not len(steps):
            return StepRewards(Labels.missing(0), ends)
        ended = replace(steps, terminated=steps.terminated | ends)
        given = [
            None if answer is None else Given(answer.labels.values.astype(np.float64), answer.labels.valid)
            for answer in answers
        ]
        found = self._mixture.of(ended, given)
        total = self._weight * np.where(found.valid, found.total, 0.0)
        labels = Labels.finite(total, found.valid)
        self._steps += len(steps)
        self._missing += int((~labels.valid).sum())
        self._sums.add(steps, {**found.terms, "model_return": np.where(labels.valid, total, np.nan)})
        return StepRewards(labels, ends)

    def state_dict(self) -> StateDict:
        """Returns what waits, what stages and sources remember, and the sums for the log."""
        return {
            "queue": self._queue.state_dict(),
            "stages": self._mixture.state_dict(),
            "sums": self._sums.state_dict(),
            "counts": [self._steps, self._missing],
            "sources": {name: source.state_dict() for name, source in self._models.items()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._queue.load_state_dict(state["queue"])
        self._mixture.load_state_dict(state["stages"])
        self._sums.load_state_dict(state["sums"])
        self._steps, self._missing = state["counts"]
        for name, source in self._models.items():
            source.load_state_dict(state["sources"][name])
