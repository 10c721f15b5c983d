"""SAC that stays near a prior policy: soft actor-critic with KL(pi || pi_0) in the place of minus the entropy.

Levine 2018, "Reinforcement Learning and Control as Probabilistic Inference", arXiv:1805.00909; Korbak, Perez and Buckley 2022,
"RL with KL penalties is better viewed as Bayesian inference", arXiv:2205.11275. The best policy is pi_0 exp(Q / alpha) / Z. The
wrapper `prior` says the mean of pi_0, a normal distribution cut to [-1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.prior import LEAST_STD, PRIOR_ACTION, log_prior
from robo_policies.learners.sac import SAC, SACConfig
from robo_policies.networks.actor_critic import Temperature
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.extras import Extra, SampledRows
from robo_rl.protocols.sampling import Sampling
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Layout, Transition


@dataclass(frozen=True)
class PriorActions(Extra):
    """`prior_actions` and `next_prior_actions` (B, A)."""

    @override
    def columns(self, spec: EnvironmentSpec) -> Layout:
        return {name: (spec.action.shape, np.float32) for name in ("prior_action", "next_prior_action")}

    @override
    def require(self, spec: EnvironmentSpec, step: Transition) -> None:
        if PRIOR_ACTION not in step.observation:
            raise InvalidSetting(
                "A step says nothing of the prior.",
                got=f"the observation {', '.join(step.observation)}",
                allowed=f"one with {PRIOR_ACTION}",
                fix="train in the wrapper prior, and record demonstrations there",
            )

    @override
    def record(self, step: Transition) -> Mapping[str, Any]:
        return {
            "prior_action": step.observation[PRIOR_ACTION],
            "next_prior_action": step.next_observation[PRIOR_ACTION],
        }

    @override
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        names = ("prior_action", "next_prior_action")
        return {f"{name}s": rows.column(name, rows.first) for name in names}


@dataclass(frozen=True)
class SACPriorConfig(SACConfig):
    """Settings of SAC near a prior."""

    prior_std: float = 0.3
    """Deviation of the prior around its action, in [-1, 1] units."""
    kl_per_action: float = 0.5
    """[nat] wanted KL(pi || pi_0) per action element; the temperature rises beyond it and falls below."""
    initial_temperature: float = 0.1
    """[1] weight of the divergence at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "prior_std": (LEAST_STD <= self.prior_std < math.inf, f"{LEAST_STD} or more"),
            "kl_per_action": (0 < self.kl_per_action < math.inf, "above 0"),
            "n_step": (self.n_step == 1, "1: the prior is known at the next step"),
        }
        require_allowed(self, allowed)

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(PriorActions(),))

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> SACPrior:
        return SACPrior(spec, self, seed)


class SACPrior(SAC):
    """Maximises the return less alpha KL(pi || pi_0), alpha so that the divergence is as wanted."""

    config: SACPriorConfig

    def __init__(self, spec: EnvironmentSpec, config: SACPriorConfig, seed: int) -> None:
        if PRIOR_ACTION not in spec.observation:
            fix = "add it: --environment.wrappers.prior {}"
            raise InvalidSetting("The environment has no prior.", got=spec.name, allowed="one in the wrapper prior", fix=fix)
        super().__init__(spec, config, seed)
        temperature = Temperature(config.initial_temperature, -config.kl_per_action * spec.action.size)
        self.temperature = self.parts.add("temperature", temperature, config.lr)

    @override
    def sampled(self, features: Tensor, data: TensorBatch, *, following: bool) -> tuple[Tensor, Tensor]:
        """Return actions (B, A) and log pi(a|s) - log pi_0(a|s), (B,)."""
        actions, log_densities = super().sampled(features, data, following=following)
        means = data.extras["next_prior_actions" if following else "prior_actions"]
        return actions, log_densities - log_prior(actions, means, self.config.prior_std)
