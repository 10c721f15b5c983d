"""Score each step of one environment by a reward model at once, for costs and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from robo_rl.entry_points import load
from robo_rl.errors import RewardUnavailable
from robo_rl.protocols.rewards import DelayedRewards, RewardModel
from robo_rl.settings import settings_as
from robo_rl.spec.environment import EnvironmentSpec, Observation


class ScoredSteps:
    """A reward model applied to the steps of one environment, step by step."""

    def __init__(self, purpose: str, reward: str, settings: Mapping[str, Any], spec: EnvironmentSpec) -> None:
        """Load the reward model.

        Args:
            purpose: Purpose of the values, for messages.
            reward: Name of a reward, or "program:FILE".
            settings: Settings of the reward.
            spec: Spec of the environment.

        Raises:
            UnknownName: There is no such reward.
            InvalidSetting: The reward cannot judge the environment.
            InvalidProgram: The program is rejected.
        """
        kind, _, path = reward.partition(":")
        given = {**settings, **({"path": path} if path else {})}
        model: RewardModel = settings_as(load("rewards", kind), given, source=f"the model of {purpose}")
        self._purpose, self._instruction = purpose, spec.instruction
        self._running: DelayedRewards = model.online(spec, weight=1.0, discount=None).running(1)

    def begin(self, observation: Observation, info: Mapping[str, Any]) -> None:
        """Begin an episode with its first observation and the info of the reset."""
        self._running.restart()
        self._running.begin(0, _copy(observation), info.get("instruction", self._instruction))

    def value(self, action: Any, step: tuple[Any, Any, bool, bool, dict[str, Any]]) -> float:
        """Return the value of a step; raises RewardUnavailable if the model gives none.

        Args:
            action: Action that was sent.
            step: What the environment's method `step` returned.
        """
        observation, reward, terminated, truncated, info = step
        executed = np.asarray(info.get("executed_action", action))
        ends = {"terminated": terminated, "truncated": truncated}
        self._running.add(0, _copy(observation), action=executed, reward=float(reward), **ends)
        labels = self._running.score().labels
        if len(labels.values) != 1 or not labels.valid[0]:
            raise RewardUnavailable(
                f"The model of {self._purpose} gave no value for a step.",
                got=f"{int(labels.valid.sum())} values",
                allowed="one value for each step: a missing one is not zero",
                fix="take a reward program, or a model of single pictures that answers at once",
            )
        return float(labels.values[0])


def _copy(observation: Observation) -> Observation:
    """Return a copy of an observation, which the environment's next step cannot overwrite."""
    return {name: np.array(value) for name, value in observation.items()}
