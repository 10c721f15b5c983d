"""The wrapper `prior`: adds the action of a prior policy, an expert's or a run's, near which a learner may stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
from typing_extensions import override

from robo_app.training.policy_wrappers import SCRIPTED, base_for
from robo_papers.sac_prior.environment import PriorEnv
from robo_rl.environments.wrapping import EnvironmentWrapper


@dataclass(frozen=True)
class PriorWrapper(EnvironmentWrapper):
    """Settings of the wrapper `prior`: observe the action of a prior policy, and reward likely actions."""

    changes = ("name", "observation")

    base: str = SCRIPTED
    """Prior policy: "scripted" for the environment's expert, or the name of a run."""
    std: float = 0.3
    """Standard deviation of the prior's density, in units of the action range [-1, 1]."""
    reward_weight: float = 0.0
    """Weight of the log density of the executed action under the prior, in the reward; 0 for none."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> PriorEnv:
        prior_for = base_for(environment, self.base, 0.0)
        return PriorEnv(environment, prior_for, std=self.std, reward_weight=self.reward_weight)
