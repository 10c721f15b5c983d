"""SAC with Lagrange multipliers: Ha et al. 2020, "Learning to Walk in the Real World with Minimal Human Effort", section IV-C.

arXiv:2002.08550. B rows, C costs in alphabetical order. Costs have critics of their own; limits hold for undiscounted sums
over episodes, as in Ray, Achiam and Amodei 2019.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.multipliers import (
    AdamMultiplier,
    LimitSettings,
    MultiplierSettings,
    PIDMultiplier,
    relative_violation,
)
from robo_policies.learners.parts import Learned
from robo_policies.learners.sac import SAC, Objective, SACSettings
from robo_policies.networks.actor_critic import Critics
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.extras import Costs
from robo_rl.protocols.contract import ONLINE, Needs
from robo_rl.protocols.sampling import Sampling
from robo_rl.spec.cost import costs_of
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict, Transition


@dataclass(frozen=True)
class SlowMultiplier(MultiplierSettings):
    """Settings group `multiplier` of SAC-Lagrangian, with smaller gains, because multipliers change after every episode."""

    lr: float = 0.01
    """Learning rate of Adam; 0 freezes the multiplier."""
    ki: float = 0.01
    """PID: gain of the sum of the relative violations over episodes."""


@dataclass(frozen=True)
class SACLagrangianConfig(SACSettings, LimitSettings):
    """Settings of SAC-Lagrangian (Ha et al. 2020, arXiv:2002.08550): SAC that keeps costs below limits by multipliers.

    Its own fields are the discount of the costs, the episodes whose costs are compared with a limit, and the multipliers.
    """

    needs = Needs((ONLINE,))

    cost_discount: float = 0.99
    """Discount of costs in the critics of costs, 0 to 1; limits hold for undiscounted sums."""
    cost_episodes: int = 10
    """Number of newest episodes whose mean cost is compared with the limit, after each episode."""
    multiplier: SlowMultiplier = SlowMultiplier()
    """How the Lagrange multipliers are updated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "cost_discount": (0 <= self.cost_discount <= 1, "0 to 1"),
            "cost_episodes": (self.cost_episodes >= 1, "1 or more"),
        }
        require_allowed(self, allowed | {"replay.n_step": (self.replay.n_step == 1, "1: targets of costs look one step ahead")})

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(Costs(),))

    def build(self, spec: EnvironmentSpec, seed: int) -> SACLagrangian:
        """Build an untrained SAC-Lagrangian learner for the spec of an environment; its networks are initialised from `seed`.

        Raises:
            InvalidSetting: The environment has no costs.
        """
        return SACLagrangian(spec, self, seed)


@dataclass(frozen=True)
class CostPenalty(Objective):
    """Objective of SAC-Lagrangian: in the actor's loss Q becomes Q - sum_c lambda_c Q_c, with critics Q_c of the costs."""

    critic: Critics
    """Critics Q_c of the costs."""
    multipliers: Sequence[PIDMultiplier | AdamMultiplier]
    """Lagrange multipliers lambda_c, in the order of the costs."""

    @override
    def actor_loss(self, loss: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """Return the mean of (alpha log pi - min_i Q_i + sum_c lambda_c Q_c) / (1 + sum_c lambda_c)."""
        weights = torch.tensor([each.value for each in self.multipliers], device=observations.device)
        costs = weights @ self.critic(observations.detach(), actions)
        return (loss + costs.mean()) / (1.0 + weights.sum())


class SACLagrangian(Learned):
    """Learner of SAC-Lagrangian: SAC whose actor maximises Q - sum_c lambda_c Q_c, with critics Q_c of the costs."""

    def __init__(self, spec: EnvironmentSpec, config: SACLagrangianConfig, seed: int) -> None:
        self.limits, self.config = config.limits_of(spec), config
        self.sac = SAC(spec, config, seed)
        self.parts = parts = self.sac.parts
        inputs = parts.encoder.critic_size + spec.action.size
        critic = Critics(parts.networks, inputs, len(self.limits))
        self.cost_critic = parts.add("cost_critic", critic, config.lr)
        self.target_cost_critic = parts.add_target("target_cost_critic", self.cost_critic)
        self.multipliers = [config.multiplier.build() for _ in self.limits]
        self.sac.objective = CostPenalty(self.cost_critic, self.multipliers)
        self._running = dict.fromkeys(self.limits, 0.0)
        self._episodes = {name: deque[float](maxlen=config.cost_episodes) for name in self.limits}

    def observe(self, transition: Transition) -> None:
        """Add the costs of a step to those of the episode; at the end of an episode update the multipliers.

        Episodes before the first update do not move the multipliers, because their actions are random.
        """
        for name, cost in costs_of(transition.info).items():
            self._running[name] += cost
        if not (transition.terminated or transition.truncated):
            return
        for (name, limit), multiplier in zip(self.limits.items(), self.multipliers, strict=True):
            self._episodes[name].append(self._running[name])
            self._running[name] = 0.0
            if self.parts.updates:  # the random actions before are not the policy's
                cost, largest = fmean(self._episodes[name]), self.config.multiplier.largest_violation
                multiplier.update(relative_violation(cost, limit, largest))

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of the critics of costs, then SAC's steps.

        Returns metrics for the log, empty if none are due.
        """
        parts, data = self.parts, self.parts.batch(batch)
        values = self.cost_critic(parts.encoder(data.observations).detach(), data.actions)
        loss = self.sac.critic_loss(values, self.cost_target(data), data.weights)
        self.cost_critic.descend(loss)
        parts.track(self.target_cost_critic, self.cost_critic, self.config.tau)
        found = parts.finish_update(self.sac.learn(data))
        if not found:
            return found
        figures = zip(self.limits, self.multipliers, values.detach().mean(1).cpu().tolist(), strict=True)
        means = {f"train/episode_cost_{name}": fmean(costs) for name, costs in self._episodes.items() if costs}
        return (
            found
            | means
            | {
                tag: figure
                for name, multiplier, value in figures
                for tag, figure in ((f"train/multiplier_{name}", multiplier.value), (f"train/q_{name}", value))
            }
        )

    @torch.no_grad()
    def cost_target(self, data: TensorBatch) -> Tensor:
        """Return the targets (C, B) of the critics of costs: c + gamma_c Q_c'(s', a'), with a' drawn from the policy."""
        parts, following = self.parts, data.next_observations
        actions, _ = self.sac.actor.sample(parts.encoder(following), parts.generator)
        following_costs = self.target_cost_critic(parts.target_encoder(following), actions)
        return data.extras["costs"].T + self.config.cost_discount * data.masks * following_costs

    @override
    def state_dict(self) -> StateDict:
        episodes = {name: list(costs) for name, costs in self._episodes.items()}
        costs = {
            "multipliers": [each.state_dict() for each in self.multipliers],
            "running": dict(self._running),
            "episodes": episodes,
        }
        return super().state_dict() | {"costs": costs}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        for each, saved in zip(self.multipliers, state["costs"]["multipliers"], strict=True):
            each.load_state_dict(saved)
        for name in self.limits:
            self._running[name] = float(state["costs"]["running"][name])
            self._episodes[name].extend(float(cost) for cost in state["costs"]["episodes"][name])
