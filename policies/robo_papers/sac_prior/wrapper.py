"""The wrapper `prior`: a prior policy, an expert's or a run's, that a learner may stay near."""

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
    """Observe the action of a prior policy, and reward what it finds likely."""

    changes = ("name", "observation")

    base: str = SCRIPTED
    """"scripted", the environment's expert, or a run."""
    std: float = 0.3
    """Deviation of the prior's density."""
    reward_weight: float = 0.0
    """Weight of its log density in the reward."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> PriorEnv:
        prior_for = base_for(environment, self.base, 0.0)
        return PriorEnv(environment, prior_for, std=self.std, reward_weight=self.reward_weight)
