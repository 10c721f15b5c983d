"""The rewards of environments under way, from captions, labels that arrive some time later, and the environment's own.

r = c_e * r_env + c_l * r_llm(o') / N(o')^beta          N: how often the episode has had this caption
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.rewards.annotation.annotator import Annotator
from robo_rl.rewards.annotation.captioning import Described, WaitingCaptions
from robo_rl.rewards.annotation.kinds import CaptionRewards
from robo_rl.rewards.annotation.recorded import RECORD, Arrival
from robo_rl.rewards.running import RECENT
from robo_rl.spec import Observation
from robo_rl.stopwatch import timed
from robo_rl.types import Array, Labels, Metrics, StateDict, StepRewards


@dataclass(frozen=True)
class Factors:
    """What the parts of a reward count."""

    environment: float
    """c_e"""
    intrinsic: float
    """c_l"""
    count_exponent: float
    """beta"""
    limit: float
    """The sum is kept within this distance of 0."""
    weight: float
    """Of the whole."""

    def rewards(self, own: Array, llm: Array, counts: Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns rewards and the intrinsic part of them, (K,) each, from r_env, r_llm (0 where there is none) and N."""
        intrinsic = self.intrinsic * llm / counts.astype(np.float64) ** self.count_exponent
        own_part = self.environment * own if self.environment else np.zeros(len(own))
        return self.weight * np.clip(own_part + intrinsic, -self.limit, self.limit), self.weight * intrinsic


class AnnotatedRewards:
    """Rewards of N environments; implements `robo_rl.reward_protocols.DelayedVectorRewards` and `UnrepeatableRewards`.

    Nothing here waits for the annotator: labels count from the first call of `score` after they arrived. A caption without one
    has no bonus, is asked about and is counted as missing; it never becomes a label of 0.
    """

    def __init__(
        self,
        waiting: WaitingCaptions,
        kind: CaptionRewards,
        annotator: Annotator,
        factors: Factors,
        *,
        environments: int,
        every: int,
    ) -> None:
        """every: steps after which rewards are due; on-policy learners ask when a rollout is full."""
        self._waiting, self._kind, self._annotator, self._factors = waiting, kind, annotator, factors
        self._every = every
        self._arrivals: list[Arrival] = []
        self._step = self._heard_at = self._missing = 0
        self._seen: set[str] = set()
        self._totals = [0.0] * environments
        self._returns: deque[float] = deque(maxlen=RECENT)

    @property
    def repeats_itself(self) -> bool:
        """Whether labels come at the same steps again when the same steps are taken again."""
        return self._annotator.repeats_itself

    @property
    def is_due(self) -> bool:
        """True once `every` steps wait."""
        return len(self._waiting) >= self._every

    @property
    def metrics(self) -> Metrics:
        """The mean of what recent episodes were paid, steps whose caption had no label, and what the annotator does."""
        found = {"reward/missing": self._missing / max(self._step, 1), "annotation/captions": float(len(self._seen))}
        if self._returns:
            found["reward/model_return"] = float(np.mean(self._returns))
        return found | self._annotator.metrics | self._kind.metrics

    def restart(self) -> None:
        """Forgets the steps that wait and the episodes under way; labels stay."""
        self._waiting.clear()
        self._totals = [0.0] * len(self._totals)

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode."""
        self._waiting.begin(index, observation, instruction)

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step that led to `observation`."""
        self._step += 1
        self._waiting.add(index, observation, action=action, reward=reward, ended=terminated or truncated)

    def add_all(
        self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Every environment took a step that led to its row of `observations`."""
        self._step += len(rewards)
        self._waiting.add_all(observations, actions=actions, rewards=rewards, ended=terminated | truncated)

    def score(self) -> StepRewards:
        """Return the rewards of the steps since the last call.

        One is missing only if the environment's own reward counts and is not finite.
        """
        return timed("score", self._score)

    def _score(self) -> StepRewards:
        steps = self._waiting.take()
        self._hear()
        llm = self._looked_up(steps)
        rewards, intrinsic = self._factors.rewards(steps.rewards, llm, steps.occurrences)
        self._sum_up(steps, np.where(np.isfinite(intrinsic), intrinsic, 0.0))
        return StepRewards(Labels.finite(rewards), np.zeros(len(rewards), np.bool_))

    def _hear(self) -> None:
        """Takes in labels, at most once at a step: a record of these steps gives them at the same places again."""
        if self._step == self._heard_at:
            return
        labels = self._annotator.arrived(self._step)
        self._heard_at = self._step
        if labels:
            self._arrivals += [Arrival(self._step, label) for label in labels]
            self._kind.learn(labels)

    def _looked_up(self, steps: Described) -> npt.NDArray[np.float64]:
        """Returns r_llm of each step, 0 without a label, and asks for labels."""
        visits = np.bincount(steps.numbers, minlength=len(steps.captions)).tolist()
        self._seen.update(steps.captions)
        self._annotator.submit(self._kind.wanted(dict(zip(steps.captions, visits, strict=True))))
        values, known = self._kind.values(steps.captions)
        self._missing += int((~known)[steps.numbers].sum())
        found: npt.NDArray[np.float64] = np.where(known, values, 0.0)[steps.numbers]
        return found

    def _sum_up(self, steps: Described, intrinsic: npt.NDArray[np.float64]) -> None:
        """Adds up what the model pays in each episode; the environment's own return is told elsewhere."""
        counts = np.flatnonzero((intrinsic != 0.0) | steps.ended)  # few of the steps
        parts = (part[counts].tolist() for part in (steps.environments, steps.ended, intrinsic))
        for index, ended, value in zip(*parts, strict=True):
            self._totals[index] += value
            if ended:
                self._returns.append(self._totals[index])
                self._totals[index] = 0.0

    def state_dict(self) -> StateDict:
        """Returns labels with the steps at which they took effect, and everything else that later rewards depend on."""
        return {
            RECORD: [arrival.saved() for arrival in self._arrivals],
            "kind": self._kind.state_dict(),
            "annotator": self._annotator.state_dict(),
            "waiting": self._waiting.state_dict(),
            "counts": [self._step, self._heard_at, self._missing],
            "seen": sorted(self._seen),
            "totals": list(self._totals),
            "returns": list(self._returns),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned, of as many environments."""
        self._arrivals = [Arrival.restored(saved) for saved in state[RECORD]]
        self._kind.restore([arrival.label for arrival in self._arrivals])
        self._kind.load_state_dict(state["kind"])
        self._waiting.load_state_dict(state["waiting"])
        self._step, self._heard_at, self._missing = state["counts"]
        self._seen = set(state["seen"])
        self._totals = list(state["totals"])
        self._returns.extend(state["returns"])
        self._annotator.load_state_dict(state["annotator"])
