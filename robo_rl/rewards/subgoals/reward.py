"""The bonus for subgoals beside the environment's own reward, in training alone.

    r = weight * (r_environment + bonus * sum over completed subgoals of (1 - steps since the one before / max_steps))

The environment says in `subgoal_bonus`, which no policy sees, what the sum is. Ruiz-Gonzalez et al. 2024, eq. of the reward.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.reward_protocols import DelayedRewards, OnlineRewards
from robo_rl.rewards.identity import settings_hash
from robo_rl.rewards.online import lived
from robo_rl.spec import EnvironmentSpec, Observation, ObservationSpec
from robo_rl.types import Array, Episode, Labels, Metrics, RewardLabels, StateDict, StepRewards

BONUS = "subgoal_bonus"
RECENT = 100
"""Episodes that the metrics are of."""


@dataclass(frozen=True)
class SubgoalReward:
    """The environment's own reward and a bonus for subgoals; for environments made with a `teacher`."""

    bonus: float = 0.2
    """Of a subgoal that is completed at once; the authors' experiments have 0.2."""

    def __post_init__(self) -> None:
        require_allowed(self, {"bonus": (bool(np.isfinite(self.bonus)), "a finite number")})

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings."""
        return "subgoals", settings_hash(self)

    def label(self, episode: Episode) -> RewardLabels:
        """Returns the rewards of an episode that was recorded in an environment with a teacher."""
        _require(episode.observations, "the recorded episode")
        earned = episode.observations[BONUS][1:, 0]
        values = (episode.rewards + self.bonus * earned).astype(np.float32)
        valid = np.isfinite(values)
        return RewardLabels(np.where(valid, values, 0), valid, *self.identity, prompt_hash="none")

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> OnlineRewards:
        """Returns what gives the rewards while a policy acts; raises InvalidSetting where the environment has no teacher."""
        del discount  # the bonus is paid as it is earned
        _require(spec.observation, spec.name)
        return OnlineSubgoalReward(self, weight)


@dataclass(frozen=True)
class OnlineSubgoalReward:
    """Implements `robo_rl.reward_protocols.OnlineRewards`."""

    model: SubgoalReward
    weight: float = 1.0

    @property
    def identity(self) -> Mapping[str, str | float]:
        """What the rewards follow from."""
        name, settings = self.model.identity
        return {"model": name, "weights": settings, "bonus": self.model.bonus, "weight": self.weight}

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec without the bonus: what a policy sees."""
        arrays = tuple(array for array in spec.observation.arrays if array.name != BONUS)
        return replace(spec, observation=ObservationSpec(arrays))

    def running(self, environments: int) -> DelayedRewards:
        """Returns what scores so many environments under way."""
        return RunningSubgoalRewards(self.model.bonus, self.weight, environments)

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yields a recorded episode as a policy of `spec` would have lived it, with these rewards, cut where one is missing."""
        _require(episode.observations, "the recorded episode")
        return lived(episode, self.running(1), spec)


class RunningSubgoalRewards:
    """Implements `robo_rl.reward_protocols.DelayedRewards`: nothing is waited for."""

    def __init__(self, bonus: float, weight: float, environments: int) -> None:
        self._bonus, self._weight = bonus, weight
        self._waiting: list[float] = []
        self._completed, self._earned = np.zeros(environments, np.int64), np.zeros(environments)
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)

    @property
    def is_due(self) -> bool:
        """False: the rollout ends soon enough."""
        return False

    @property
    def metrics(self) -> Metrics:
        """Subgoals completed in recent episodes, and the bonus that was earned for them: never part of any reported return."""
        if not self._recent:
            return {}
        completed, earned = np.mean(self._recent, axis=0)
        return {"reward/subgoals_completed": float(completed), "reward/bonus_return": float(earned)}

    def restart(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode."""
        del observation, instruction
        self._completed[index], self._earned[index] = 0, 0.0

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step."""
        del action
        earned = self._bonus * float(observation[BONUS][0])
        self._waiting.append(self._weight * (reward + earned))
        if earned:
            self._completed[index] += 1
            self._earned[index] += earned
        if terminated or truncated:
            self._recent.append((int(self._completed[index]), float(self._earned[index])))

    def add_all(
        self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Every environment took a step: what `add` is told, as arrays (N, ...)."""
        del actions
        earned = self._bonus * observations[BONUS][:, 0].astype(np.float64)
        self._waiting += (self._weight * (rewards + earned)).tolist()
        self._completed += earned != 0.0
        self._earned += earned
        for index in np.flatnonzero(terminated | truncated).tolist():
            self._recent.append((int(self._completed[index]), float(self._earned[index])))

    def score(self) -> StepRewards:
        """Return the rewards of the steps since the last call; one that is not finite is missing."""
        values = np.array(self._waiting)
        self._waiting.clear()
        return StepRewards(Labels.finite(values), np.zeros(len(values), np.bool_))

    def state_dict(self) -> StateDict:
        """Returns what waits, and the counts."""
        recent = [list(pair) for pair in self._recent]
        counts = {"completed": self._completed.copy(), "earned": self._earned.copy()}
        return {"waiting": list(self._waiting), "recent": recent, **counts}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._waiting = [float(value) for value in state["waiting"]]
        self._completed, self._earned = np.array(state["completed"]), np.array(state["earned"])
        self._recent.extend((int(completed), float(earned)) for completed, earned in state["recent"])


def _require(names: Mapping[str, object], what: str) -> None:
    if BONUS not in names:
        raise InvalidSetting(
            f"Nobody sets subgoals in {what}.",
            got=sorted(names),
            allowed=f"an observation {BONUS!r}",
            fix="set reward.arguments to {teaching: {teacher: perfect}}, and environment.arguments.subgoals to position",
        )
