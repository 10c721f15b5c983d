"""Parts of constrained on-policy learners: costs of a rollout, their critics and advantages (Altman 1999, constrained MDPs).

T steps, N environments, C costs in alphabetical order. Limits hold for undiscounted sums over episodes, J_C <= d.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_policies.learners.multipliers import LimitSettings
from robo_policies.learners.ppo import PPO, ClippedAdam, PPOConfig, copied
from robo_policies.networks.policy_value import CRITIC_GAIN, Floats, TanhMLP, orthogonal
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.moments import Normalizer
from robo_rl.protocols.contract import ANY_SPACE, ROLLOUTS, Feature, Needs
from robo_rl.spec.cost import cost_names
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.advantages import generalized_advantages
from robo_rl.training.on_policy import VectorStep
from robo_rl.training.rollout_buffer import RolloutBuffer, Value
from robo_rl.types import Array, Metrics, StateDict


@dataclass(frozen=True)
class ConstrainedConfig(PPOConfig, LimitSettings):
    """Settings of constrained on-policy learners."""

    needs = Needs((ROLLOUTS,), ANY_SPACE - {Feature.PICTURES})

    cost_gae_lambda: float = 0.95
    """Weight of the cost's advantage estimate that looks one step further."""
    cost_lr: float = 1e-3
    """Learning rate of the critics of costs."""
    normalize_costs: bool = True
    """Divide costs by the running deviation of their discounted sums, as rewards are; multipliers are reported without it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range = 0 <= self.cost_gae_lambda <= 1
        allowed = {"cost_gae_lambda": (in_range, "0 to 1"), "cost_lr": (self.cost_lr > 0, "above 0")}
        allowed |= {"convolutions": (not self.convolutions, "none: critics of costs read vectors")}
        require_allowed(self, allowed)


class ConstrainedBuffer(RolloutBuffer):
    """Rollout that holds costs, too."""

    def __init__(self, learner: ConstrainedPPO, *parts: Any) -> None:
        config = learner.config
        super().__init__(config, *parts)
        count, shape = len(learner.names), (config.steps_per_env, config.num_envs)
        self._learner = learner
        self.costs = np.zeros((*shape, count), np.float32)
        """(T, N, C)"""
        self.final_cost_values = np.zeros((*shape, count), np.float32)
        """(T, N, C) cost values of the last observation of an episode that was cut, 0 elsewhere."""
        self.sums = np.zeros((config.num_envs, count))
        """(N, C) costs of each running episode so far."""
        self.finished = np.zeros((0, count))
        """(E, C) costs of the episodes that ended in this rollout."""
        self.discounted = np.zeros((config.num_envs, count))
        """(N, C) discounted costs of each running episode, by which costs are scaled."""
        self.total, self.taken, self.ends = np.zeros(count), np.zeros(1), np.zeros(1)
        """(C,) costs, (1,) steps and (1,) episodes of the whole training."""
        self.cost_scale = Normalizer(count, is_on=config.normalize_costs, is_centred=False)

    @property
    def deviations(self) -> Array:
        """(C,) by which costs are divided."""
        return np.asarray(1.0 / self.cost_scale.scaled(np.ones((1, len(self.total))))[0])

    @property
    def reward_deviation(self) -> float:
        """Deviation by which rewards are divided."""
        return 1.0 / float(self._scale.scaled(np.ones((1, 1)))[0, 0])

    @property
    def steps_per_episode(self) -> float:
        """Steps of the whole training over the episodes that ended in it; the steps so far if none has."""
        return float(self.taken[0] / max(self.ends[0], 1.0))

    def cost_advantages(self, values: Floats) -> tuple[Floats, Floats]:
        """Return generalised advantage estimates (T, N, C) of scaled costs, and targets of their critics.

        values: (T+1, N, C).
        """
        steps, config = len(values) - 1, self._learner.config
        advantages = generalized_advantages(
            self.costs[:steps] / self.deviations.astype(np.float32),
            values,
            discount=config.discount,
            gae_lambda=config.cost_gae_lambda,
            ended=self.ended[:steps, :, None],
            final_values=self.final_cost_values[:steps],
        )
        return advantages, advantages + values[:-1]

    @override
    def _begin(self, vectors: Floats, observations: Mapping[str, Array], *, are_new: bool) -> None:
        super()._begin(vectors, observations, are_new=are_new)
        if are_new:
            self.sums[:] = self.discounted[:] = 0.0
            self.finished = self.finished[:0]

    @override
    def _add(self, step: VectorStep, vectors: Floats, value: Value) -> None:
        number, ended = self.length, step.terminated | step.truncated
        costs = required(step.costs)
        super()._add(step, vectors, value)
        self.costs[number], self.final_cost_values[number] = costs, 0.0
        if step.final_observations:
            cut, scaled = step.truncated & ~step.terminated, self.observations.scaled(self._spec.stack(step.final_observations))
            self.final_cost_values[number][cut] = self._learner.cost_values(torch.from_numpy(scaled)).numpy()
        self.sums += costs
        self.discounted = self.discounted * self._discount + costs
        self.cost_scale.merge(self.discounted)
        self.total += costs.sum(0)
        self.taken += len(costs)
        self.ends += ended.sum()
        self.finished = np.concatenate((self.finished, self.sums[ended]))
        self.sums[ended] = self.discounted[ended] = 0.0

    @override
    def restart(self) -> None:
        super().restart()
        self.finished = self.finished[:0]

    @override
    def state_dict(self) -> StateDict:
        return super().state_dict() | {"cost_moments": self.cost_scale.state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.finished = np.zeros_like(state["finished"])
        super().load_state_dict(state)
        self.cost_scale.load_state_dict(state["cost_moments"])


def required(costs: Array | None) -> Array:
    """Return the costs (N, C) of a step; raises InvalidSetting if the environments report none."""
    if costs is None:
        raise InvalidSetting(
            "The learner needs constraint costs of each step, and the environments report none.",
            got="no costs",
            allowed='info["costs"], name -> value, or info["cost"]',
            fix="take an environment with costs (docs/constraints.md), or another learner",
        )
    return costs


class CostCritic(nn.Module):
    """V_C (B, C) of scaled vectors, one network for all costs."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], costs: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.trunk = TanhMLP(inputs)
        for units in hidden:
            self.trunk.append(units, generator)
        self.weight = orthogonal(self.trunk.size, costs, CRITIC_GAIN, generator)
        self.bias = nn.Parameter(torch.zeros(costs))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (B, C)."""
        return torch.addmm(self.bias, self.trunk(vectors), self.weight)


class ConstrainedPPO(PPO):
    """PPO with critics of costs; `weigh` decides how their advantages count."""

    config: ConstrainedConfig
    buffer: ConstrainedBuffer

    def __init__(self, spec: EnvironmentSpec, config: ConstrainedConfig, seed: int, *, rollouts: int = 0) -> None:
        super().__init__(spec, config, seed, rollouts=rollouts)
        self.limits = config.limits_of(spec)
        self.names = cost_names(spec.costs)
        own = np.random.default_rng(np.random.SeedSequence(seed).spawn(5)[4])
        self.buffer = ConstrainedBuffer(self, self.networks.reads, self.networks.pictures, spec.action)
        self.cost_critic = CostCritic(self.networks.reads.size, config.hidden, len(self.names), own).to(self.device)
        self._cost_optimizer = ClippedAdam(list(self.cost_critic.parameters()), config.max_gradient_norm)
        self._cost_optimizer.lr = config.cost_lr
        self._cost_shuffling = own
        self.episode_costs = np.full(len(self.names), np.nan)
        """(C,) mean over the episodes that ended in the last rollout in which one did, J_C."""

    @torch.no_grad()
    def cost_values(self, vectors: Tensor) -> Tensor:
        """Return V_C (K, C), on the CPU, of scaled vectors (K, D + P)."""
        found: Tensor = self.cost_critic(vectors.to(self.device))
        return found.cpu()

    @override
    def update(self) -> Metrics:
        buffer = self.buffer
        if len(buffer.finished):
            self.episode_costs = buffer.finished.mean(0)
            self.constrain()
        rates = zip(self.names, (buffer.total / buffer.taken).tolist(), strict=True)
        return super().update() | {f"train/cost_rate_{name}": rate for name, rate in rates} | self.constraint_metrics()

    def constrain(self) -> None:
        """Adapt to `episode_costs`, before the policy is updated."""

    def constraint_metrics(self) -> Metrics:
        """Return scalars such as multipliers."""
        return {}

    def weigh(self, advantages: Tensor, cost_advantages: Tensor) -> Tensor:
        """Return the advantages (T N,) that actions are judged by.

        cost_advantages: (T N, C) of costs divided by `buffer.deviations`.
        """
        raise NotImplementedError

    @override
    def weighed(self, advantages: Tensor, vectors: Tensor) -> Tensor:
        steps = self.buffer.length
        values = self.cost_values(vectors).view(steps + 1, -1, len(self.names)).numpy()
        found, targets = self.buffer.cost_advantages(values)
        self._fit_costs(vectors[: len(advantages)], self._moved(targets))
        return self.weigh(advantages, self._moved(found))

    def _fit_costs(self, vectors: Tensor, targets: Tensor) -> None:
        """Take `epochs` passes of Adam down the squared error of the critics of costs."""
        optimizer, size = self._cost_optimizer, self.config.batch_size
        optimizer.norms = []
        for _ in range(self.config.epochs):
            order = torch.from_numpy(self._cost_shuffling.permutation(len(vectors))).to(self.device)
            for rows in order.split(size):
                loss = (self.cost_critic(vectors[rows]) - targets[rows]).square().mean()
                optimizer.gradient.zero_()
                loss.backward()
                optimizer.step(optimizer.gradient)

    @override
    def _learnt_state(self) -> StateDict:
        costs: StateDict = {"critic": copied(self.cost_critic.state_dict()), "optimizer": copied(self._cost_optimizer.state)}
        costs |= {"shuffling": self._cost_shuffling.bit_generator.state, "episode_costs": self.episode_costs.copy()}
        return super()._learnt_state() | {"costs": costs}

    @override
    def _load_learnt_state(self, state: StateDict) -> None:
        super()._load_learnt_state(state)
        costs = state["costs"]
        for name, value in self.cost_critic.state_dict().items():
            value.copy_(torch.as_tensor(costs["critic"][name]))
        for name, value in self._cost_optimizer.state.items():
            value.copy_(torch.as_tensor(costs["optimizer"][name]))
        self._cost_shuffling.bit_generator.state = costs["shuffling"]
        self.episode_costs = np.array(costs["episode_costs"])
