"""Constraint costs of on-policy learners: storage, critics and advantages (Altman 1999, constrained MDPs).

T steps, N environments, C costs in alphabetical order, D numbers of an observation that critics read. A limit d is a bound on
J_C, the mean undiscounted sum of a cost over an episode: J_C <= d.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_policies.learners.clipped_step import ClippedAdam
from robo_policies.learners.multipliers import LimitSettings
from robo_policies.learners.ppo import PPOSettings, copied
from robo_policies.networks.policy_value import CRITIC_GAIN, Floats, TanhMLP, critic_vectors, orthogonal
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.fitting import resolve_device
from robo_rl.moments import RunningMoments
from robo_rl.protocols.components import Stateful
from robo_rl.protocols.contract import ANY_SPACE, ROLLOUTS, Feature, Needs
from robo_rl.spec.cost import cost_names
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.advantages import generalized_advantages
from robo_rl.training.on_policy import Normalization, VectorStep
from robo_rl.training.rollout_buffer import RolloutBuffer
from robo_rl.types import Array, Metrics, StateDict

ROUNDING = 1e-8
"""Largest ratio of standard deviation to mean that counts as a deviation of 0. It is a ratio, because costs have different
units."""


@dataclass(frozen=True)
class CostNormalization(Normalization):
    """Settings that choose what a constrained learner standardises: observations, rewards and constraint costs."""

    costs: bool = True
    """Divide costs by the running deviation of their discounted sums, as rewards; the log shows unscaled multipliers."""


@dataclass(frozen=True)
class ConstrainedSettings(PPOSettings, LimitSettings):
    """Settings common to PPO-based learners that keep constraint costs below limits, such as PPO-Lagrangian.

    Beside PPO's fields and `limits` they steer the advantages and the critics of the costs.
    """

    needs = Needs((ROLLOUTS,), ANY_SPACE - {Feature.PICTURES})

    cost_gae_lambda: float = 0.95
    """Lambda of the generalised advantage estimates of costs, 0 to 1."""
    cost_lr: float = 1e-3
    """Learning rate of the critics of costs."""
    normalize: CostNormalization = CostNormalization()
    """What is standardised: observations, rewards and costs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range = 0 <= self.cost_gae_lambda <= 1
        allowed = {"cost_gae_lambda": (in_range, "0 to 1"), "cost_lr": (self.cost_lr > 0, "above 0")}
        require_allowed(self, allowed)
        self.network.require_unused("critics of costs read vectors", "convolutions")


def required(costs: Array | None) -> Array:
    """Return the costs (N, C) of a step unchanged.

    Raises:
        InvalidSetting: `costs` is None, because the environments report no costs.
    """
    if costs is None:
        raise InvalidSetting(
            "The learner needs constraint costs of each step, and the environments report none.",
            got="no costs",
            allowed='info["costs"], name -> value, or info["cost"]',
            fix="take an environment with costs (docs/safety/constraints.md), or another learner",
        )
    return costs


class CostCritic(nn.Module):
    """Critic V_C of C constraint costs: an MLP from scaled vectors (B, D) to expected discounted cost sums (B, C)."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], costs: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.trunk = TanhMLP(inputs)
        for units in hidden:
            self.trunk.append(units, generator)
        self.weight = orthogonal(self.trunk.size, costs, CRITIC_GAIN, generator)
        self.bias = nn.Parameter(torch.zeros(costs))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the expected discounted cost sums V_C (B, C) for scaled observation vectors (B, D)."""
        return torch.addmm(self.bias, self.trunk(vectors), self.weight)


class CostRollout(Stateful):
    """Memory of the constraint costs of one rollout; PPO's `RolloutBuffer` stores observations, actions and rewards."""

    def __init__(self, config: ConstrainedSettings, count: int) -> None:
        shape = (config.steps_per_env, config.num_envs, count)
        self._config = config
        self.costs = np.zeros(shape, np.float32)
        """Costs (T, N, C) of the rollout."""
        self.final_values = np.zeros(shape, np.float32)
        """Values V_C (T, N, C) of the last observation of an episode that a time limit ended at this step, 0 elsewhere."""
        self.sums = np.zeros((config.num_envs, count))
        """Sums (N, C) of the costs of each running episode so far."""
        self.finished = np.zeros((0, count))
        """Sums (E, C) of the costs of the E episodes that ended in this rollout."""
        self.discounted = np.zeros((config.num_envs, count))
        """Discounted sums (N, C) of the costs of each running episode; their deviation scales the costs."""
        self.total, self.taken, self.ends = np.zeros(count), np.zeros(1), np.zeros(1)
        """Totals of the whole training: costs (C,), steps (1,) and ended episodes (1,)."""
        self.scale = RunningMoments(count)

    @property
    def deviations(self) -> Array:
        """Divisors (C,) by which costs are scaled, a running standard deviation; 1 for a cost that never changed."""
        found = np.sqrt(self.scale.variance)
        return np.where(found > ROUNDING * np.abs(self.scale.mean), found, 1.0)

    @property
    def steps_per_episode(self) -> float:
        """Mean number of steps of an episode over the whole training; all steps so far if no episode has ended."""
        return float(self.taken[0] / max(self.ends[0], 1.0))

    def begin(self) -> None:
        """Reset the running cost sums of all N environments, because a new episode begins in each of them."""
        self.sums[:] = self.discounted[:] = 0.0
        self.finished = self.finished[:0]

    def add(self, step: VectorStep, buffer: RolloutBuffer, value: Callable[[Floats], Floats]) -> None:
        """Store the costs (N, C) of the newest step.

        Args:
            step: The step of N environments.
            buffer: Buffer in which the step is already stored.
            value: Function that returns V_C (K, C) of scaled vectors (K, D).

        Raises:
            InvalidSetting: The step has no costs.
        """
        number, ended, costs = buffer.length - 1, step.terminated | step.truncated, required(step.costs)
        self.costs[number], self.final_values[number] = costs, 0.0
        if step.final_observations:
            self.final_values[number][step.truncated & ~step.terminated] = value(buffer.scaled(step.final_observations))
        self.sums += costs
        self.discounted = self.discounted * self._config.discount + costs
        if self._config.normalize.costs:
            self.scale.merge(self.discounted)
        self.total += costs.sum(0)
        self.taken += len(costs)
        self.ends += ended.sum()
        self.finished = np.concatenate((self.finished, self.sums[ended]))
        self.sums[ended] = self.discounted[ended] = 0.0

    def advantages(self, values: Floats, ended: npt.NDArray[np.bool_]) -> Floats:
        """Return generalised advantage estimates (T, N, C) of scaled costs.

        values: V_C (T + 1, N, C) of the observations. ended: (T, N), True if an episode ended at this step.
        """
        steps, config = len(ended), self._config
        return generalized_advantages(
            self.costs[:steps] / self.deviations.astype(np.float32),
            values,
            discount=config.discount,
            gae_lambda=config.cost_gae_lambda,
            ended=ended[:, :, None],
            final_values=self.final_values[:steps],
        )

    @override
    def state_dict(self) -> StateDict:
        arrays = {name: np.array(value) for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return arrays | {"scale": self.scale.state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, np.array(state[name]))
        self.scale.load_state_dict(state["scale"])


class Costs(Stateful):
    """Everything that a constrained learner needs for its costs: limits, stored costs of the rollout, critics, and J_C.

    J_C is the mean sum of each cost over an episode.
    """

    def __init__(self, spec: EnvironmentSpec, config: ConstrainedSettings, seed: int) -> None:
        self.config, self.limits, self.device = config, config.limits_of(spec), resolve_device(config.device)
        self.names = cost_names(spec.costs)
        self.bounds = np.array([self.limits[name] for name in self.names])
        """Limits d (C,) of the sum of each cost over an episode."""
        self._random = np.random.default_rng(np.random.SeedSequence(seed).spawn(5)[4])
        self.rollout = CostRollout(config, len(self.names))
        inputs = critic_vectors(spec.observation, privileged=config.privileged_critic).size
        self.critic = CostCritic(inputs, config.network.hidden, len(self.names), self._random).to(self.device)
        self._optimizer = ClippedAdam(self.critic.parameters(), config.cost_lr, max_norm=config.max_gradient_norm)
        self.per_episode = np.full(len(self.names), np.nan)
        """J_C (C,), mean over the episodes of the newest rollout in which an episode ended; NaN before."""

    def observe(self, step: VectorStep, buffer: RolloutBuffer) -> None:
        """Store the costs of a step that was just added to PPO's buffer, and their critics' values."""
        self.rollout.add(step, buffer, lambda scaled: self.values(torch.from_numpy(scaled)).numpy())

    def count(self) -> Array:
        """Set J_C to the mean cost sums of the episodes that ended in this rollout, if there are any.

        Returns:
            Cost sums (E, C) of these E episodes; E may be 0, and J_C then stays as it was.
        """
        finished, self.rollout.finished = self.rollout.finished, self.rollout.finished[:0]
        if len(finished):
            self.per_episode = finished.mean(0)
        return finished

    @torch.no_grad()
    def values(self, vectors: Tensor) -> Tensor:
        """Return values V_C (K, C), on the CPU, of scaled vectors (K, D)."""
        found: Tensor = self.critic(vectors.to(self.device))
        return found.cpu()

    def advantages(self, vectors: Tensor, buffer: RolloutBuffer) -> Tensor:
        """Return the advantages (T N, C) of the scaled costs, then fit the critics to the rollout.

        vectors: scaled vectors ((T + 1) N, D) of all observations of the rollout.
        """
        steps = buffer.length
        values = self.values(vectors).view(steps + 1, -1, len(self.names)).numpy()
        found = self.rollout.advantages(values, buffer.ended[:steps])
        moved, targets = (torch.from_numpy(each).to(self.device).flatten(0, 1) for each in (found, found + values[:-1]))
        self._fit(vectors[: len(moved)], targets)
        return moved

    def _fit(self, vectors: Tensor, targets: Tensor) -> None:
        """Take `epochs` passes of gradient steps on the critics' squared error to targets (T N, C)."""
        self._optimizer.norms = []
        for _ in range(self.config.epochs):
            order = torch.from_numpy(self._random.permutation(len(vectors))).to(self.device)
            for rows in order.split(self.config.batch_size):
                self._optimizer.descend((self.critic(vectors[rows]) - targets[rows]).square().mean())

    def metrics(self) -> Metrics:
        """Return the mean of each cost per step over the whole training so far, as train/cost_rate_<name>."""
        rates = self.rollout.total / self.rollout.taken
        return {f"train/cost_rate_{name}": rate for name, rate in zip(self.names, rates.tolist(), strict=True)}

    @override
    def state_dict(self) -> StateDict:
        learnt: StateDict = {"critic": copied(self.critic.state_dict()), "optimizer": self._optimizer.state_dict()}
        learnt |= {"random": self._random.bit_generator.state, "per_episode": self.per_episode.copy()}
        return learnt | {"rollout": self.rollout.state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for name, value in self.critic.state_dict().items():
            value.copy_(torch.as_tensor(state["critic"][name]))
        self._optimizer.load_state_dict(state["optimizer"])
        self._random.bit_generator.state = state["random"]
        self.per_episode = np.array(state["per_episode"])
        self.rollout.load_state_dict(state["rollout"])
