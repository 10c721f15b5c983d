"""Proximal policy optimisation: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347.

Equation numbers are those of that paper; GAE is Schulman et al. 2016, arXiv:1506.02438. T steps, N environments, B rows of a
minibatch. At equal settings it is the algorithm of Stable-Baselines3's PPO.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from typing_extensions import override

from robo_policies.learners.clipped_step import ClippedAdam, clipped_surrogate, divergence, probability_ratio
from robo_policies.networks.convolutions import MOST_ROWS
from robo_policies.networks.policy_value import Floats, Gaussian, PolicyValue, PolicyValueNetwork
from robo_policies.networks.settings import LearnerSettings, accelerates
from robo_rl.errors import require_allowed
from robo_rl.fitting import resolve_device
from robo_rl.protocols.components import Stateful, Stateless
from robo_rl.protocols.contract import ANY_SPACE, COLLECTED_ROLLOUTS, ROLLOUTS, Needs
from robo_rl.requirements import refuse_step, require_same_networks
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.training.on_policy import Normalization, OnPolicyConfig, VectorStep
from robo_rl.training.rollout_buffer import RolloutBuffer, RolloutLearner
from robo_rl.types import Array, Metrics, StateDict

if TYPE_CHECKING:
    from robo_policies.networks.accelerated.policy_loss import PolicyLoss

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""Name of a schedule -> function from the finished share of the training, 0 to 1, to the factor of the learning rate."""
Pictures = Mapping[str, Tensor]
Numbers = npt.NDArray[np.int64]
Rows = Sequence[Tensor]
"""Six tensors (B, ...): row numbers of the pictures, vectors, actions, log pi_old, returns, advantages."""
Step = tuple[Tensor, Tensor, Tensor]
"""Results of one gradient computation: ratios pi/pi_old, advantages and value losses of its rows, each (B,)."""
Passes = list[list[Step]]
"""For each pass over a rollout, the results (`Step`) of its gradient computations, in order."""


@dataclass(frozen=True)
class PPOSettings(LearnerSettings, OnPolicyConfig):
    """Settings common to PPO and learners based on it: rollout, passes, clipping, weights of the loss, networks.

    Defaults are those of Stable-Baselines3's PPO unless a field says otherwise.
    """

    needs = Needs((ROLLOUTS, COLLECTED_ROLLOUTS), ANY_SPACE)

    lr: float = 3e-4
    """Learning rate of Adam."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Decay of the learning rate to 0 over the training, rollout by rollout. CaRL: linear."""
    num_envs: int = 16
    """Number of environments that step together. Stable-Baselines3 has 1 with 2048 steps: a rollout of the same size."""
    steps_per_env: int = 128
    """Steps of each environment between two updates."""
    batch_size: int = 64
    """Transitions of one gradient step; divides num_envs * steps_per_env."""
    epochs: int = 10
    """Passes over a rollout at each update."""
    target_kl: float | None = None
    """[nat] KL divergence between old and new policy; a pass that moves the policy further is the last over its rollout. None:
    no limit. CaRL: 0.015."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    gae_lambda: float = 0.95
    """Lambda of the generalised advantage estimate, 0 to 1: 0 looks one step ahead, 1 to the end of the episode."""
    clip_range: float = 0.2
    """Epsilon: probability ratios pi/pi_old outside [1 - epsilon, 1 + epsilon] are clipped; above 0."""
    value_coefficient: float = 0.5
    """Weight of the value loss in the loss (c1)."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus in the loss (c2); 0 for none."""
    max_gradient_norm: float = 0.5
    """Norm to which gradients with a larger norm are scaled; above 0."""
    privileged_critic: bool = False
    """The critic also reads privileged entries of the observation (those that only a simulator knows); the policy never reads
    them. CaRL: on."""
    network: PolicyValueNetwork = PolicyValueNetwork()
    """Sizes of the networks, and how they are computed."""
    normalize: Normalization = Normalization()
    """What is standardised: observations and rewards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = ("lr", "num_envs", "steps_per_env", "epochs", "clip_range", "max_gradient_norm")
        divides = self.rollout_size % self.batch_size == 0 if self.batch_size > 1 else False
        allowed = {name: (getattr(self, name) > 0, "above 0") for name in positive} | {
            "batch_size": (divides, f"2 or more, a divisor of num_envs * steps_per_env = {self.rollout_size}"),
            "discount": (0 <= self.discount <= 1, "0 to 1"),
            "gae_lambda": (0 <= self.gae_lambda <= 1, "0 to 1"),
            "target_kl": (self.target_kl is None or self.target_kl > 0, "above 0, or none"),
            "lr_schedule": (self.lr_schedule in SCHEDULES, ", ".join(SCHEDULES)),
        }
        require_allowed(self, allowed)

    @override
    def build(self, spec: EnvironmentSpec, seed: int, *, steps: int = 0) -> PPO:
        constraint = self.constraint(spec, seed)
        return PPO(spec, self, seed, constraint=constraint, rollouts=math.ceil(steps / self.rollout_size))

    def constraint(self, spec: EnvironmentSpec, seed: int) -> Constraint:
        """Return hooks by which a learner based on PPO changes it, such as a limit on costs; by default they change nothing."""
        return Constraint()


@dataclass(frozen=True)
class PPOConfig(PPOSettings):
    """Settings of the learner `ppo` (Schulman et al. 2017, arXiv:1707.06347): exactly the fields of `PPOSettings`."""


class Constraint(Stateless):
    """Hooks of PPO, by which another learner adds something to it, such as a limit on costs. This base class changes nothing.

    PPO calls `begin`, `paid` and `observe` while it collects a rollout of T steps of N environments, and `adapt`, `judge`,
    `improve` and `metrics`, in this order, at each update.
    """

    def begin(self) -> None:
        """Prepare for new episodes, because all N environments begin one; the base class does nothing."""

    def paid(self, step: VectorStep) -> VectorStep:
        """Return a step of N environments with the rewards that PPO shall learn from; called before the step is stored.

        The base class returns the step unchanged.
        """
        return step

    def observe(self, step: VectorStep, buffer: RolloutBuffer) -> None:
        """Read a step of N environments, such as its costs, after it was stored in the buffer; the base class does nothing."""

    def adapt(self) -> None:
        """Adapt the constraint, such as its multiplier, to the finished rollout; called before the policy is updated."""

    def judge(self, advantages: Tensor, vectors: Tensor, buffer: RolloutBuffer) -> Tensor:
        """Return the advantages (T N,) by which the policy is updated.

        Args:
            advantages: Advantages (T N,) of the rewards.
            vectors: Scaled vectors ((T + 1) N, D) of all observations, that after the last step included.
            buffer: The rollout.
        """
        return advantages

    def improve(self, learner: PPO, pictures: Pictures, rows: Rows, learnt: Numbers) -> Passes:
        """Update policy and values on a rollout; the base class takes PPO's usual passes.

        Args:
            learner: The PPO learner.
            pictures: Pictures of all observations of the rollout by name.
            rows: All T N rows of the rollout.
            learnt: Numbers of the rows to learn from: rows with a known reward, repeated up to T N numbers.

        Returns:
            The results of each pass's gradient computations.
        """
        return learner.take_passes(pictures, rows, learnt)

    def metrics(self, buffer: RolloutBuffer) -> Metrics:
        """Return the constraint's metrics for the log, such as its multipliers."""
        return {}


class PPO(RolloutLearner):
    """Learner of PPO: collects a rollout, T steps of N environments, then takes several passes of gradient steps over it.

    This is algorithm 1 of the paper.
    """

    def __init__(
        self, spec: EnvironmentSpec, config: PPOSettings, seed: int, *, constraint: Constraint | None = None, rollouts: int = 0
    ) -> None:
        """Make the learner.

        Args:
            spec: The environment's spec.
            config: Settings.
            seed: Seed of all random numbers.
            constraint: Hooks of a learner based on PPO; by default they change nothing.
            rollouts: Number of rollouts in the training, over which `lr_schedule` decays the learning rate; 0: no decay.
        """
        children = np.random.SeedSequence(seed).spawn(4)
        initial, self._acting, self._shuffling, aside = (np.random.default_rng(child) for child in children)
        self.config, self.device = config, resolve_device(config.device)
        self.constraint = constraint or Constraint()
        networks = PolicyValue(spec, config.network, initial, privileged_critic=config.privileged_critic)
        self._acting_device = torch.device("cpu") if config.network.acting_device == "cpu" else self.device
        self.acting_networks = networks if self._acting_device == self.device else copy.deepcopy(networks)
        """Networks that choose actions: `networks`, or a copy on the CPU that is updated after each update."""
        self.networks = networks.to(self.device)
        self.buffer = RolloutBuffer(config, networks.reads, networks.pictures, spec.action)
        if getattr(networks.encoder, "is_in_units", False):
            self.buffer.observations.is_on = False
        self.policy = PPOPolicy(spec.without_pictures(but=[*self.buffer.pictures]), self, aside)
        self.updates = 0
        """Number of passes over rollouts so far, which Stable-Baselines3 calls n_updates."""
        self._planned = rollouts
        self.optimizer = ClippedAdam(networks.parameters(), config.lr, max_norm=config.max_gradient_norm)
        self.parameters = self.optimizer.flat
        """All parameters of the networks, concatenated in one tensor."""
        self.kernel: PolicyLoss | None = None
        if accelerates(config.network, self.device, config.network.actor or config.network.critic):
            from robo_policies.networks.accelerated.policy_loss import PolicyLoss

            self.kernel = PolicyLoss(networks, self.parameters, self.objective, config)

    # collecting: section 5

    @override
    def begin(self, observations: Mapping[str, Array]) -> None:
        super().begin(observations)
        self.constraint.begin()

    @override
    def observe(self, step: VectorStep) -> None:
        step = self.constraint.paid(step)
        super().observe(step)
        self.constraint.observe(step, self.buffer)

    def act(self) -> Array:
        """Draw actions for the newest observations and store them in the buffer; return (N, A) in [-1, 1], or choices (N,)."""
        distribution = self.acting_networks.distribution
        actions = distribution.draw(self.outputs(*self.buffer.newest()), self._acting)
        self.buffer.actions[self.buffer.length] = actions
        return distribution.executed(actions)

    @torch.inference_mode()
    def outputs(self, vectors: Floats, pictures: Mapping[str, Array]) -> Tensor:
        """Return the actor's outputs (n, O), parameters of the action distribution, for n observations.

        Args:
            vectors: Scaled vectors (n, D), or (n, D + P) of which the first D are read.
            pictures: Pictures by name, if the policy reads any.
        """
        inputs = self._acting_inputs(vectors[:, : self.networks.visible], pictures)
        return (self.kernel or self.acting_networks).act(inputs)

    @override
    @torch.inference_mode()
    def values(self, vectors: Floats, pictures: Mapping[str, Array]) -> Floats:
        return self.acting_networks.heads(self._acting_inputs(vectors, pictures))[1].cpu().numpy()

    def _acting_inputs(self, vectors: Floats, pictures: Mapping[str, Array]) -> Tensor:
        moved = {name: torch.from_numpy(pictures[name]).to(self._acting_device) for name in self.buffer.pictures}
        return self.acting_networks.encoded(torch.from_numpy(vectors).to(self._acting_device), moved)

    def objective(
        self, outputs: Tensor, values: Tensor, actions: Tensor, old: Tensor, returns: Tensor, advantages: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return three quantities of each row, each (B,): PPO's objective (eq. 9), the ratio pi/pi_old, and the value loss.

        The objective is the surrogate - c1 (V - V_target)^2 + c2 S, with the entropy S.

        Args:
            outputs: Outputs (B, O) of the actor.
            values: Values V (B,) of the critic.
            actions: Actions (B, ...) as the distribution stores them.
            old: log pi_old(a|s) (B,).
            returns: V_target (B,).
            advantages: Advantages (B,).
        """
        config, distribution = self.config, self.networks.distribution
        ratio = probability_ratio(distribution.log_density(outputs, actions), old)
        surrogate = clipped_surrogate(ratio, advantages, config.clip_range, config.clip_range)
        value_losses = mse_loss(values, returns, reduction="none")
        objective = torch.sub(surrogate, value_losses, alpha=config.value_coefficient)
        if config.entropy_coefficient:
            objective = objective + config.entropy_coefficient * distribution.entropy(outputs)
        return objective, ratio.detach(), value_losses.detach()

    def update(self) -> Metrics:
        """Take `epochs` passes over the rollout, and begin the next rollout; returns metrics with Stable-Baselines3's tags.

        A rollout without any known reward, or of a single row, is skipped. Raises NonFiniteUpdate if a gradient is not finite;
        the networks are then as before the update.
        """
        steps = self.buffer.length
        valid = self.buffer.valid[:steps].T.ravel()
        self.constraint.adapt()
        metrics = self._learn(steps, valid) if valid.size > 1 and valid.any() else {}
        metrics |= self.constraint.metrics(self.buffer)
        self.buffer.restart()
        self._let_act()
        return metrics

    @np.errstate(over="ignore", invalid="ignore")  # values that are not finite are rejected
    def _learn(self, steps: int, valid: npt.NDArray[np.bool_]) -> Metrics:
        buffer, count, before = self.buffer, valid.size, self._learnt_state()
        vectors = self._moved(buffer.vectors[: steps + 1])
        pictures = {name: self._moved(frames[: steps + 1]) for name, frames in buffer.pictures.items()}
        outputs, values = self._evaluated(vectors, pictures)
        gains = self._moved(buffer.advantages(values.view(steps + 1, -1).cpu().numpy()))
        actions = self._moved(buffer.actions[:steps])
        with torch.no_grad():
            old = self.networks.distribution.log_density(outputs[:count], actions)
        returns, gains = gains + values[:count], self.constraint.judge(gains, vectors, buffer)
        rows = (torch.arange(count, device=self.device), vectors[:count], actions, old, returns, gains)
        by_environment = np.arange(count).reshape(steps, -1).T.ravel()  # the order of Stable-Baselines3
        learnt = np.resize(by_environment[valid], count)
        self.optimizer.lr, self.optimizer.norms = self.learning_rate, []
        passes = self.constraint.improve(self, pictures, rows, learnt)
        norms = torch.stack(self.optimizer.norms).cpu()
        if len(bad := norms[~torch.isfinite(norms)]):
            self._load_learnt_state(before)
            got = f"gradient norm {float(bad[0])} at step {len(norms) - len(bad) + 1} of the update"
            fix = "the rollout is finite, so the networks diverge: lower the learning rate, or normalise the rewards"
            refuse_step(buffer.rollouts, "gradient", got=got, fix=fix)
        chosen = self._moved(learnt)
        if not isinstance(self.networks.distribution, Gaussian):  # its entropy is that of any outputs
            outputs, _ = self._evaluated(vectors, pictures)
        return self._metrics(passes, rows[4][chosen], values[chosen], outputs[chosen])

    def take_passes(self, pictures: Pictures, rows: Rows, learnt: Numbers) -> Passes:
        """Take `epochs` passes of gradient steps over a rollout, or fewer if `target_kl` is exceeded.

        Returns the results of each pass's gradient computations. Arguments are those of `Constraint.improve`.
        """
        config, passes = self.config, Passes()
        for batches in self.passes(rows, learnt):
            passes.append([step for batch in batches for step in self.descend(pictures, batch)])
            if config.target_kl and divergence(torch.cat([step[0] for step in passes[-1]])).cpu() > config.target_kl:
                break  # Differs from Stable-Baselines3, which stops within a pass: because passes are counted
        return passes

    def passes(self, rows: Rows, learnt: Numbers) -> Iterator[list[tuple[Tensor, ...]]]:
        """Yield for each of `epochs` passes its minibatches, in a new random order.

        rows: all rows of the rollout. learnt: numbers of the rows to learn from, those with a known reward.
        """
        for _ in range(self.config.epochs):
            order = learnt[self._shuffling.permutation(len(learnt))]
            self.updates += 1
            yield minibatches(rows, order, self.config.batch_size)

    def descend(self, pictures: Pictures, batch: Rows) -> list[Step]:
        """Take one gradient step on the loss of a minibatch; with pictures the gradient is computed in parts, to save memory.

        Returns ratios, advantages and value losses of each part.
        """
        gradients, steps = list[Tensor](), list[Step]()
        for places, vectors, *rows in parts_of(batch) if pictures else [batch]:
            seen = {name: frames.index_select(0, places) for name, frames in pictures.items()}
            gradient, ratio, value_losses = self.gradient(vectors, seen, rows)
            gradients.append(gradient * (len(places) / len(batch[0])) if pictures else gradient)
            steps.append((ratio, rows[-1], value_losses))
        self.optimizer.step(sum(gradients[1:], gradients[0]))
        return steps

    def gradient(self, vectors: Tensor, pictures: Pictures, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradient of the loss, minus the mean of eq. 9, as one tensor, and ratios and value losses (B,).

        rows: actions, log pi_old, returns and advantages, as `objective` takes them.
        """
        inputs = self.networks.encoded(vectors, pictures)
        if self.kernel:
            return self.kernel.gradient(inputs, rows)
        objective, ratio, value_losses = self.objective(*self.networks.heads(inputs), *rows)
        self.optimizer.gradient.zero_()
        objective.backward(torch.full_like(objective, -1.0 / len(objective)))
        return self.optimizer.gradient, ratio, value_losses

    @property
    def learning_rate(self) -> float:
        """Learning rate of the current rollout: `lr` for the first rollout, decayed but above 0 for the last."""
        done = min(1.0, self.buffer.rollouts / self._planned) if self._planned else 0.0
        return self.config.lr * SCHEDULES[self.config.lr_schedule](done)

    def _let_act(self) -> None:
        """Copy the parameters to the networks that act, if these are a copy."""
        if self.acting_networks is not self.networks:
            self.acting_networks.load_state_dict(self.networks.state_dict())

    def _moved(self, values: Array) -> Tensor:
        """Return an array as a tensor on the device; (T, N, ...) becomes (T N, ...)."""
        tensor = torch.from_numpy(values).to(self.device)
        return tensor.flatten(0, 1) if tensor.ndim > 1 else tensor

    @torch.no_grad()
    def _evaluated(self, vectors: Tensor, pictures: Pictures) -> tuple[Tensor, Tensor]:
        """Return the actor's outputs and the values of all observations of the rollout, computed in parts to save memory."""
        heads = (self.kernel or self.networks).heads
        parts = parts_of((vectors, *pictures.values()))
        found = [heads(self.networks.encoded(part, dict(zip(pictures, seen, strict=True)))) for part, *seen in parts]
        outputs, values = (torch.cat(each) for each in zip(*found, strict=True))
        return outputs, values

    @torch.no_grad()
    def _metrics(self, passes: list[list[Step]], returns: Tensor, values: Tensor, outputs: Tensor) -> Metrics:
        steps = [step for one in passes for step in one]
        ratio, advantages, value_losses = (torch.cat(parts) for parts in zip(*steps, strict=True))
        config, distribution = self.config, self.networks.distribution
        surrogate = clipped_surrogate(ratio, advantages, config.clip_range, config.clip_range).mean()
        value_loss = value_losses.mean()
        entropy, variance = distribution.entropy(outputs).mean(), returns.var(correction=0)
        explained = 1.0 - (returns - values).var(correction=0) / variance
        scalars = {
            "loss": config.value_coefficient * value_loss - surrogate - config.entropy_coefficient * entropy,
            "policy_gradient_loss": -surrogate,
            "value_loss": value_loss,
            "entropy_loss": -entropy,
            "approx_kl": divergence(torch.cat([step[0] for step in passes[-1]])),  # as Stable-Baselines3 has it
            "clip_fraction": ((ratio - 1.0).abs() > config.clip_range).float().mean(),
            "explained_variance": torch.where(variance > 0, explained, 0.0),
        }
        if isinstance(distribution, Gaussian):
            scalars["std"] = distribution.log_std.exp().mean()
        found = dict(zip(scalars, torch.stack([*scalars.values()]).cpu().tolist(), strict=True))  # one transfer
        found |= {"n_updates": float(self.updates), "learning_rate": self.optimizer.lr, "clip_range": config.clip_range}
        return {f"train/{name}": value for name, value in found.items()}

    def _learnt_state(self) -> StateDict:
        learnt: StateDict = {"networks": copied(self.networks.state_dict()), "optimizer": self.optimizer.state_dict()}
        learnt |= {"shuffling": self._shuffling.bit_generator.state, "updates": self.updates}
        return learnt | {"constraint": self.constraint.state_dict()}

    def _load_learnt_state(self, state: StateDict) -> None:
        self.networks.load(state["networks"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.constraint.load_state_dict(state["constraint"])
        self._shuffling.bit_generator.state, self.updates = state["shuffling"], int(state["updates"])

    def state_dict(self) -> StateDict:
        """Return networks, optimiser, normalisation, the unfinished rollout, random generators and counters, on the CPU."""
        collected = {"buffer": self.buffer.state_dict(), "acting": self._acting.bit_generator.state}
        return self._learnt_state() | collected | {"policy": self.policy.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict` on any device; the next update is the same as without the interruption.

        Raises RunError if the state is that of other networks.
        """
        require_same_networks(", ".join(sorted(state["networks"])), ", ".join(sorted(self.networks.state_dict())))
        self._load_learnt_state(state)
        self.buffer.load_state_dict(state["buffer"])
        self.policy.load_state_dict(state["policy"])
        self._acting.bit_generator.state = state["acting"]
        self._let_act()


class PPOPolicy(Stateful):
    """Policy that acts with the networks that PPO trains; it has its own random generator."""

    def __init__(self, spec: EnvironmentSpec, learner: PPO, generator: np.random.Generator) -> None:
        self.environment_spec, self.learner, self._generator = spec, learner, generator

    def reset(self) -> None:
        """Do nothing: the policy has no memory of earlier steps."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Choose an action for one observation: the most likely one if `deterministic`, else a random one of the policy.

        Returns:
            Action (A,) float32 in [-1, 1], or the number of a discrete choice, an int64 scalar.
        """
        distribution = self.learner.acting_networks.distribution
        row = {name: observation[name][None] for name in self.environment_spec.observation.visible}
        outputs = self.learner.outputs(*self._seen(row))
        drawn = distribution.mode(outputs).cpu().numpy() if deterministic else distribution.draw(outputs, self._generator)
        return np.asarray(distribution.executed(drawn)[0])

    def draw(self, observations: Mapping[str, Array], generators: Mapping[int, np.random.Generator]) -> Array:
        """Return random actions for some rows of observations, each drawn with its own generator.

        Args:
            observations: (N, ...) by name.
            generators: Number of a row -> its generator.

        Returns:
            Actions of these rows, in the order of `generators`, as the distribution stores them.
        """
        outputs, draw = self.learner.outputs(*self._seen(observations)), self.learner.acting_networks.distribution.draw
        return np.concatenate([draw(outputs[row : row + 1], generator) for row, generator in generators.items()])

    def executed(self, actions: Array) -> Array:
        """Convert drawn actions into the form that environments accept: clipped to [-1, 1], or choices."""
        return self.learner.networks.distribution.executed(actions)

    def _seen(self, observations: Mapping[str, Array]) -> tuple[Floats, dict[str, Array]]:
        """Return scaled vectors (n, D) and pictures of observations (n, ...); privileged entries are not needed."""
        vectors = self.learner.buffer.observations.scaled(self.learner.networks.vectors.stack(observations))
        return vectors, {name: observations[name] for name in self.learner.buffer.pictures}

    def parameters(self) -> StateDict:
        """Return copies of the networks and of the mean and deviation of observations, for `load_parameters` elsewhere."""
        networks, moments = self.learner.networks, self.learner.buffer.observations
        return {"networks": copied(networks.state_dict()), "observations": moments.state_dict()}

    def load_parameters(self, parameters: StateDict) -> None:
        """Load parameters that `parameters` returned, into this policy and its learner, which share them."""
        for networks in (self.learner.networks, self.learner.acting_networks):
            networks.load(parameters["networks"])
        self.learner.buffer.observations.load_state_dict(parameters["observations"])

    @override
    def state_dict(self) -> StateDict:
        return {"generator": self._generator.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._generator.bit_generator.state = state["generator"]


def minibatches(rows: Rows, order: Numbers, size: int) -> list[tuple[Tensor, ...]]:
    """Return the minibatches of one pass, with advantages normalised to mean 0 and deviation 1 within each minibatch.

    Args:
        rows: Tensors (B, ...) of the rollout; the last one has the advantages.
        order: Numbers of the rows to learn from, in the order in which they are taken.
        size: Wanted number of rows in a minibatch. There are len(order) // size minibatches (at least one) of equal size; if
            `size` does not divide len(order) they are a little larger, and a remainder smaller than their number is left out.

    Returns:
        For each minibatch a tuple of tensors, one for each tensor of `rows`.

    Differs from algorithm 1 of PPO: normalising within a minibatch is that of Stable-Baselines3.
    """
    size = len(order) // (count := max(1, len(order) // size))
    index = torch.from_numpy(order[: size * count]).to(rows[0].device)
    *others, advantages = (each.index_select(0, index) for each in rows)
    table = advantages.view(count, size)
    scaled = (table - table.mean(1, keepdim=True)) / (table.std(1, keepdim=True) + 1e-8)
    return list(zip(*(each.chunk(count) for each in others), scaled.unbind(), strict=True))


def parts_of(rows: Rows) -> list[tuple[Tensor, ...]]:
    """Cut the rows of a minibatch into parts of at most MOST_ROWS rows, so that a gradient fits into memory."""
    return list(zip(*(each.split(MOST_ROWS) for each in rows), strict=True))


def copied(tensors: Mapping[str, Tensor]) -> StateDict:
    """Return copies of named tensors on the CPU."""
    return {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}
