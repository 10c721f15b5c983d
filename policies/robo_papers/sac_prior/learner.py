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

from robo_papers.sac_prior.environment import LEAST_STD, PRIOR_ACTION, log_prior
from robo_policies.learners.sac import SAC, Objective, SACSettings
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.extras import Extra, SampledRows
from robo_rl.protocols.sampling import Sampling
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Layout, Transition


@dataclass(frozen=True)
class PriorActions(Extra):
    """Extra `prior_actions` and `next_prior_actions`, each (B, A): a prior policy's actions at s and s'."""

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
class SACPriorConfig(SACSettings):
    """Settings of SAC near a prior policy (Levine 2018, arXiv:1805.00909): KL to the prior in place of the entropy.

    They set the width of the prior and the wanted divergence.
    """

    prior_std: float = 0.3
    """Standard deviation of the prior around its action, in units of the action range [-1, 1]."""
    kl_per_action: float = 0.5
    """Wanted KL(pi || pi_0) for each action element [nat]; the temperature rises above it and falls below."""
    initial_temperature: float = 0.1
    """Temperature alpha, the weight of the divergence, at the start; above 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "prior_std": (LEAST_STD <= self.prior_std < math.inf, f"{LEAST_STD} or more"),
            "kl_per_action": (0 < self.kl_per_action < math.inf, "above 0"),
            "replay.n_step": (self.replay.n_step == 1, "1: the prior is known at the next step"),
        }
        require_allowed(self, allowed)

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(PriorActions(),))

    def build(self, spec: EnvironmentSpec, seed: int) -> SAC:
        """Build an untrained learner for a spec; raises InvalidSetting for an environment without a prior policy."""
        if PRIOR_ACTION not in spec.observation:
            fix = "add it: --environment.wrappers.prior {}"
            raise InvalidSetting("The environment has no prior.", got=spec.name, allowed="one in the wrapper prior", fix=fix)
        return SAC(spec, replace(self, target_entropy_per_action=-self.kl_per_action), seed, NearPrior(self.prior_std))


@dataclass(frozen=True)
class NearPrior(Objective):
    """Objective of SAC that is the return less alpha KL(pi || pi_0); alpha is tuned so that the divergence is as wanted."""

    std: float
    """Standard deviation of the prior pi_0."""

    @override
    def entropy_terms(self, log_densities: Tensor, actions: Tensor, data: TensorBatch, *, following: bool) -> Tensor:
        """Return the entropy terms log pi(a|s) - log pi_0(a|s) (B,), for the policy's log densities (B,)."""
        means = data.extras["next_prior_actions" if following else "prior_actions"]
        return log_densities - log_prior(actions, means, self.std)
