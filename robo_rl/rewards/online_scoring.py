"""Runs a reward of steps beside the environments of a training: batches, delays, missing answers, metrics, resuming."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from robo_rl.errors import RewardUnavailable
from robo_rl.reward_protocols import DelayedRewards, Relabelling
from robo_rl.rewards.episode_sums import EpisodeSums
from robo_rl.rewards.place import Place
from robo_rl.rewards.steps import Judged, StepQueue, Steps
from robo_rl.spec import Observation
from robo_rl.stopwatch import timed
from robo_rl.types import Array, Labels, Metrics, StateDict, StepRewards

if TYPE_CHECKING:
    from robo_rl.rewards.step_reward import StepReward

MOST_MISSING = 1000  # steps in a row without a label; an endpoint that is down should not cost a night of learning nothing


class RunningReward(DelayedRewards):
    """The rewards of N environments.

    Steps wait until there are `every` of them, and are scored in one call. All of its state is saved, so that after a resume
    the same steps are scored in the same calls.
    """

    def __init__(self, reward: StepReward, place: Place) -> None:
        self._reward, self._place, self.repeats_itself = reward, place, reward.repeats_itself
        self._queue, self._sums = StepQueue(reward.entries(place), reward.keep), EpisodeSums()
        self._over: set[int] = set()
        """Environments in which the reward has seen the task completed"""
        self._steps = self._missing = self._missing_in_a_row = 0
        reward.start(place)

    @property
    def is_due(self) -> bool:
        """True once enough wait for one call."""
        return self._reward.is_due(self._queue)

    @property
    def relabelling(self) -> Relabelling | None:
        """That of the reward."""
        return self._reward.relabelling(self._place)

    @property
    def metrics(self) -> Metrics:
        """Means over recent episodes of what rewards and terms added up to, and the share of missing rewards."""
        sums = {f"reward/{name}": mean for name, mean in self._sums.means.items()}
        return {**sums, "reward/missing": self._missing / max(self._steps, 1), **self._reward.metrics(self._place)}

    def restart(self) -> None:
        """Forget what waits."""
        self._queue.clear()
        self._sums.restart()
        self._over.clear()

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode."""
        self._queue.begin(index, observation, instruction)

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step."""
        self._queue.add(index, observation, action=action, reward=reward, terminated=terminated, truncated=truncated)

    def add_all(
        self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Every environment took a step."""
        self._queue.add_all(observations, actions=actions, rewards=rewards, terminated=terminated, truncated=truncated)

    def score(self) -> StepRewards:
        """Return the rewards of the steps since the last call."""
        steps = self._queue.take()
        if not len(steps):
            return StepRewards(Labels.missing(0), np.zeros(0, np.bool_))
        judged = timed("score", lambda: self._reward.score_steps(steps, self._place))
        ends = np.zeros(len(steps), np.bool_) if judged.ends is None else judged.ends
        is_after = self._after_an_end(steps, ends)
        weight = 1.0 if self._reward.is_weighted else self._place.weight
        total = weight * np.where(judged.labels.valid, judged.labels.values, 0.0)
        labels = Labels.finite(total, judged.labels.valid & ~is_after)
        self._count(steps, judged, np.where(labels.valid, total, np.nan), is_after)
        return StepRewards(labels, ends & labels.valid)

    def _after_an_end(self, steps: Steps, ends: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which steps follow one with which the task was completed, (K,): they are not learnt from."""
        found = np.zeros(len(steps), np.bool_)
        if ends.any() or self._over:
            for row, index in enumerate(steps.index.tolist()):
                if steps.begins[row]:
                    self._over.discard(index)
                found[row] = index in self._over
                if ends[row]:
                    self._over.add(index)
        return found

    def _count(self, steps: Steps, judged: Judged, paid: npt.NDArray[np.float64], is_after: npt.NDArray[np.bool_]) -> None:
        terms = {**({} if self._reward.is_weighted else {"model_return": paid}), **judged.terms}
        self._sums.add(steps, {name: np.where(is_after, np.nan, values) for name, values in terms.items()})
        valid = np.isfinite(paid)[~is_after]
        self._steps += len(valid)
        self._missing += int((~valid).sum())
        last = np.flatnonzero(valid)
        self._missing_in_a_row = len(valid) - 1 - int(last[-1]) if len(last) else self._missing_in_a_row + len(valid)
        if self._missing_in_a_row >= MOST_MISSING:
            raise RewardUnavailable(
                f"The reward {self._reward.identity[0]} has given no usable answer for {self._missing_in_a_row} steps.",
                got=f"{self._missing} of {self._steps} steps without a label",
                allowed=f"less than {MOST_MISSING} in a row",
                fix=self._reward.remedy,
            )

    def state_dict(self) -> StateDict:
        """Return what waits, what the reward remembers, the sums for the log and the counts."""
        return {
            "queue": self._queue.state_dict(),
            "memory": self._place.memory.state_dict(),
            "sums": self._sums.state_dict(),
            "over": sorted(self._over),
            "counts": [self._steps, self._missing, self._missing_in_a_row],
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self._queue.load_state_dict(state["queue"])
        self._place.memory.load_state_dict(state["memory"])
        self._sums.load_state_dict(state["sums"])
        self._over = set(state["over"])
        self._steps, self._missing, self._missing_in_a_row = state["counts"]
