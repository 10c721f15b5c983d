"""Proximal policy optimisation: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347.

Equation numbers are those of that paper; GAE is Schulman et al. 2016, arXiv:1506.02438. T steps, N environments, B rows of a
minibatch. At equal settings it is the algorithm of Stable-Baselines3's PPO.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from robo_policies.learners.rollout_buffer import Normalizer, RolloutBuffer, minibatches
from robo_policies.networks.policy_value import CONTINUOUS, Floats, Gaussian, PolicyValue, PolicyValueSettings
from robo_policies.networks.settings import accelerates, resolve_device
from robo_rl.collecting.rollouts import CollectedRollout
from robo_rl.contract import ANY_SPACE, COLLECTED_ROLLOUTS, ROLLOUTS, Needs
from robo_rl.errors import InvalidSetting, NonFiniteUpdate, RunError, require_allowed
from robo_rl.on_policy import OnPolicyTraining, VectorStep, make_vector
from robo_rl.protocols import Policy
from robo_rl.reward_protocols import OnlineRewards
from robo_rl.spec import EnvironmentSpec, Observation, specification
from robo_rl.types import Array, Episode, Metrics, StateDict, StepRewards

if TYPE_CHECKING:
    from robo_policies.networks.accelerated.policy_loss import PolicyLoss

FEWEST = 2  # rows of a rollout: advantages are normalised
LARGEST_LOG_RATIO = 20.0  # far outside any clip range, and its exponential is finite
MOST_PICTURES = 512  # rows in memory at once: a picture of 96 x 96 x 6 and its activations take half a megabyte
BLOCK = 16  # rows of one product of matrices when others act for the learner: a product of another shape rounds otherwise
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""Name -> share of the learning rate that is left after a share of the training."""
ADAM: Any = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-5, "weight_decay": 0.0, "amsgrad": False, "maximize": False}
"""Constants of Adam. Epsilon is that of Stable-Baselines3's PPO, after OpenAI Baselines; PyTorch has 1e-8."""
STATEFUL = ("observations", "rewards", "buffer", "policy")
Pictures = Mapping[str, Tensor]
Rows = Sequence[Tensor]
"""Places of pictures, vectors, actions, log pi_old, returns, advantages: (B, ...) each."""
Step = tuple[Tensor, Tensor, Tensor]
"""Ratios, advantages and value losses of rows that were learnt from at once, (B,) each."""


@dataclass(frozen=True)
class PPOConfig(PolicyValueSettings):
    """Settings of PPO; defaults are those of Stable-Baselines3's PPO unless a field says otherwise."""

    needs = Needs((ROLLOUTS, COLLECTED_ROLLOUTS), ANY_SPACE)

    lr: float = 3e-4
    """Learning rate of Adam."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Decay of the learning rate to 0 over the training, rollout by rollout. CaRL: linear."""
    num_envs: int = 16
    """Environments that step together. Stable-Baselines3 has 1 with 2048 steps; the rollout is equally long."""
    steps_per_env: int = 128
    """Steps of each environment between two updates."""
    batch_size: int = 64
    """Transitions of one gradient step; divides num_envs * steps_per_env."""
    epochs: int = 10
    """Passes over a rollout."""
    target_kl: float | None = None
    """[nat] A pass that moves the policy further than this is the last over its rollout. CaRL: 0.015."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    gae_lambda: float = 0.95
    """Weight of the advantage estimate that looks one step further."""
    clip_range: float = 0.2
    """Change of the probability ratio beyond which nothing is gained."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    max_gradient_norm: float = 0.5
    """Longer gradients are scaled to this length."""
    normalize_observations: bool = True
    """Scale observations by running moments. Off in Stable-Baselines3; its settings tuned for MuJoCo have it on."""
    normalize_rewards: bool = True
    """Divide rewards by the running deviation of the return. Off in Stable-Baselines3; as above."""

    def __post_init__(self) -> None:
        positive = ("lr", "num_envs", "steps_per_env", "epochs", "clip_range", "max_gradient_norm")
        size, convolutions = self.rollout_size, self.convolutions
        can_convolve = all(channels >= 1 for channels in convolutions) and bool(self.hidden or not convolutions)
        allowed = {name: (getattr(self, name) > 0, "above 0") for name in positive} | {
            "batch_size": (self.batch_size > 1, "2 or more, to normalise advantages within it"),
            "discount": (0 <= self.discount <= 1, "0 to 1"),
            "gae_lambda": (0 <= self.gae_lambda <= 1, "0 to 1"),
            "hidden": (all(units >= 1 for units in self.hidden), "1 or more units in each layer"),
            "convolutions": (can_convolve, "1 or more channels in each layer, and hidden layers after them"),
            "target_kl": (self.target_kl is None or self.target_kl > 0, "above 0, or none"),
            "lr_schedule": (self.lr_schedule in SCHEDULES, ", ".join(SCHEDULES)),
            "policy": (self.policy in CONTINUOUS, ", ".join(CONTINUOUS)),
            "initial_log_std": (self.policy == "normal" or not self.initial_log_std, "0 unless policy is normal"),
        }
        require_allowed(self, allowed)
        divides = f"a divisor of num_envs * steps_per_env = {size}"
        require_allowed(self, {"batch_size": (size % self.batch_size == 0, divides)})

    @property
    def rollout_size(self) -> int:
        """Transitions between two updates."""
        return self.num_envs * self.steps_per_env

    def build(self, spec: EnvironmentSpec, seed: int, *, steps: int = 0) -> PPO:
        """Return a fresh learner, whose learning rate falls over so many steps; 0: it stays.

        Raises InvalidSetting if the steps are fewer than one of every environment.
        """
        if 0 < steps < max(self.num_envs, FEWEST):
            raise InvalidSetting(
                "The training is shorter than one step of all environments.",
                got=f"{steps} steps, {self.num_envs} environments",
                allowed=f"{max(self.num_envs, FEWEST)} steps or more",
                fix="more --steps, or fewer --learner.num-envs with a --learner.batch-size that divides their rollout",
            )
        return PPO(spec, self, seed, rollouts=math.ceil(steps / self.rollout_size))

    def training(
        self,
        environment_factory: Callable[[], gymnasium.Env[Any, Any]],
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        initial_policy: Policy | None = None,
        reward: OnlineRewards | None = None,
    ) -> OnPolicyTraining:
        """Return a training at step 0; raises InvalidSetting if there are demonstrations, which PPO cannot use."""
        if demonstrations or initial_policy is not None:
            raise InvalidSetting(
                "PPO learns from its own actions alone.",
                got=f"{len(demonstrations)} demonstrations, {'an' if initial_policy is not None else 'no'} initial policy",
                fix="leave them out, or use rlpd, bc, or sb3-ppo with clone_epochs",
            )
        environments, spec = make_vector(environment_factory, self.num_envs)
        learner = self.build(spec if reward is None else reward.visible(spec), seed, steps=steps)
        rewards = None if reward is None else reward.running(self.num_envs)
        return OnPolicyTraining(environments, learner, steps=steps, seed=seed, rewards=rewards)

    def restored_policy(
        self, environment_factory: Callable[[], gymnasium.Env[Any, Any]], *, seed: int, state: StateDict
    ) -> PPOPolicy:
        """Return the policy of a saved training."""
        environment = environment_factory()
        learner = self.build(specification(environment), seed)
        environment.close()
        learner.load_state_dict(state["learner"])
        return learner.policy


class PPO:
    """Collects T steps of N environments, then takes some passes of gradient steps over them (algorithm 1)."""

    def __init__(self, spec: EnvironmentSpec, config: PPOConfig, seed: int, *, rollouts: int = 0) -> None:
        """`rollouts` are those of the training, over which the learning rate falls; 0: it stays."""
        children = np.random.SeedSequence(seed).spawn(4)
        initial, self._acting, self._shuffling, aside = (np.random.default_rng(child) for child in children)
        self.config, self.device = config, resolve_device(config.device)
        networks = PolicyValue(spec, config, initial)
        acts_apart = config.acting_device == "cpu" and self.device.type != "cpu"
        self.acting_networks = copy.deepcopy(networks) if acts_apart else networks
        """Networks that choose actions: those that learn, or a copy on the CPU that follows each update."""
        self.networks = networks.to(self.device)
        size = networks.visible + networks.privileged
        self.observations = Normalizer(size, is_on=config.normalize_observations)
        self.rewards = Normalizer(1, is_on=config.normalize_rewards, is_centred=False)
        self.buffer = RolloutBuffer(config.steps_per_env, config.num_envs, size, spec.action, networks.pictures)
        self.policy = PPOPolicy(spec.without_pictures(but=[*self.buffer.pictures]), self, aside)
        self.updates = 0
        """Passes over rollouts, as Stable-Baselines3 counts them."""
        self.rollouts = 0
        """Rollouts that were learnt from."""
        self._planned = rollouts
        self._optimizer = ClippedAdam(list(networks.parameters()), config.max_gradient_norm)
        self.parameters = self._optimizer.flat
        """Parameters of the networks, one after another in one tensor."""
        own = config.actor_network or config.critic_network
        self.kernel: PolicyLoss | None = None
        if accelerates(config, self.device, own):
            from robo_policies.networks.accelerated.policy_loss import PolicyLoss

            self.kernel = PolicyLoss(networks, self.parameters, self.objective, config)

    # collecting: section 5

    @property
    def is_ready(self) -> bool:
        """True once T steps are there."""
        return self.buffer.length == self.config.steps_per_env

    @property
    def is_collecting(self) -> bool:
        """True while a rollout is unfinished."""
        return self.buffer.length > 0

    def begin(self, observations: Mapping[str, Array]) -> None:
        """All environments begin an episode; an unfinished rollout is forgotten."""
        vectors = self._vectors("observations", observations)
        self.buffer.returns[:] = 0.0
        self.observations.merge(vectors)
        self.buffer.begin(self.observations.scaled(vectors), observations)

    def act(self) -> Array:
        """Return actions (N, ...) for the newest observations."""
        distribution = self.acting_networks.distribution
        actions = distribution.draw(self.outputs(*self.buffer.newest()), self._acting)
        self.buffer.actions[self.buffer.length] = actions
        return distribution.executed(actions)

    @torch.inference_mode()
    def outputs(self, vectors: Floats, pictures: Mapping[str, Array]) -> Tensor:
        """Return the actor's outputs (n, O) for scaled vectors (n, D) or (n, D+P) and pictures."""
        networks = self.acting_networks
        inputs = networks.encoded(*self._acting_tensors(vectors[:, : networks.visible], pictures))
        return self.kernel.act(inputs) if self.kernel else networks.act(inputs)

    def observe(self, step: VectorStep) -> None:
        """Store what the actions led to; raises NonFiniteUpdate, changing nothing, if that is not finite."""
        if step.rewards is not None:
            self._require_finite("rewards", step.rewards)
        if step.final_observations:
            self._vectors("final observations", step.final_observations)
        vectors = self._vectors("observations", step.observations)
        self.observations.merge(vectors)
        self._remember(step, vectors)

    def take_in(self, rollout: CollectedRollout) -> None:
        """Store a whole rollout of others, who acted with the policy as it is now.

        Differs from `observe`: all of it is scaled by the moments from before, with which the others acted, and is merged into
        them afterwards, because the others do not know each other's observations. Raises NonFiniteUpdate as `observe` does.
        """
        self._require_finite("rewards", rollout.rewards)
        if rollout.final_observations:
            self._vectors("final observations", rollout.final_observations)
        steps = [*rollout.steps()]
        first = {name: values[0] for name, values in rollout.observations.items()}
        vectors = [self._vectors("observations", seen) for seen in (first, *(step.observations for step in steps))]
        if rollout.begins:
            self.buffer.returns[:] = 0.0
        self.buffer.begin(self.observations.scaled(vectors[0]), first)
        for step, actions, observed in zip(steps, rollout.actions, vectors[1:], strict=True):
            self.buffer.actions[self.buffer.length] = actions
            self._remember(step, observed)
        for observed in vectors if rollout.begins else vectors[1:]:
            self.observations.merge(observed)

    def _remember(self, step: VectorStep, vectors: Floats) -> None:
        ended = step.terminated | step.truncated
        final_values = np.zeros(len(ended), np.float32)
        if step.final_observations:
            final_values[step.truncated & ~step.terminated] = self._final_values(step.final_observations)
        rewards = np.zeros_like(final_values) if step.rewards is None else self.scaled_rewards(step.rewards, ended)
        self.buffer.add(self.observations.scaled(vectors), rewards, ended, final_values, step.observations)

    def reward(self, rewards: StepRewards) -> None:
        """Store the rewards of the T N steps of a rollout that came without them, step after step."""
        labels, count = rewards.labels, self.config.num_envs
        paid = np.where(labels.valid, labels.values, np.float32(0)).reshape(-1, count)
        ends = rewards.ends.reshape(-1, count)
        data, taken = self.buffer, slice(len(paid))
        data.ended[taken] |= ends
        data.final_values[taken][ends] = 0.0  # an end as the model sees it, although a time limit may have cut, too
        for step, (values, ended) in enumerate(zip(paid, data.ended[taken], strict=True)):
            data.rewards[step] = self.scaled_rewards(values, ended)  # one that is missing, a zero, counts for the scale alone
        data.valid[taken] = labels.valid.reshape(-1, count)

    def scaled_rewards(self, rewards: Array, ended: Array) -> Floats:
        """Return rewards (N,) over the deviation of the discounted return so far, which is near 1 then; signs are kept."""
        returns = self.buffer.returns
        np.add(returns * self.config.discount, rewards, out=returns)
        self.rewards.merge(returns[:, None])
        returns[ended] = 0.0
        return self.rewards.scaled(rewards[:, None])[:, 0]

    def _vectors(self, name: str, observations: Mapping[str, Array]) -> Floats:
        """Return vectors (N, D+P), not yet scaled; raises NonFiniteUpdate."""
        vectors = flattened(observations, [*self.networks.vectors, *self.networks.privileged_vectors])
        self._require_finite(name, vectors)
        return vectors

    @torch.inference_mode()
    def _final_values(self, observations: Mapping[str, Array]) -> Floats:
        """Return V of the last observations of the K episodes that were cut, (K,)."""
        scaled = self.observations.scaled(self._vectors("final observations", observations))
        pictures = {name: observations[name] for name in self.buffer.pictures}
        _, values = self.acting_networks.heads(self.acting_networks.encoded(*self._acting_tensors(scaled, pictures)))
        return values.cpu().numpy()

    def _acting_tensors(self, vectors: Floats, pictures: Mapping[str, Array]) -> tuple[Tensor, dict[str, Tensor]]:
        device = self.acting_networks.actor_bias.device
        given = {name: torch.from_numpy(frames).to(device) for name, frames in pictures.items()}
        return torch.from_numpy(vectors).to(device), given

    def _require_finite(self, name: str, values: Array) -> None:
        bad = int((~np.isfinite(values)).reshape(len(values), -1).any(1).sum()) if not np.isfinite(values).all() else 0
        if bad:
            raise NonFiniteUpdate(
                f"Update {self.updates} was refused: rollout {name} are not finite; all parameters are kept.",
                got=f"{bad} of {len(values)} rows with NaN or infinity",
                allowed="finite numbers",
                fix="look at the environment's reward and sensors",
            )

    # learning

    def advantages(self, values: Floats) -> Floats:
        """Return A (T, N), eq. 11 and 12 (GAE, eq. 16), given the values (T+1, N) of all observations.

        Differs from eq. 12: if a time limit cut an episode, the value of its last observation stands for what would have
        followed, as in Stable-Baselines3, because the limit is no property of the task. Before a step without a reward the sum
        ends with the value of its state; the step itself is not learnt from.
        """
        data, gamma, taken = self.buffer, np.float32(self.config.discount), slice(len(values) - 1)
        following = np.where(data.ended[taken], data.final_values[taken], values[1:])
        residuals = data.rewards[taken] + gamma * following - values[:-1]  # delta, eq. 12
        decay = gamma * np.float32(self.config.gae_lambda) * ~data.ended[taken]
        total, advantages = np.zeros_like(residuals[0]), np.empty(residuals.shape, np.float32)
        for step in reversed(range(len(residuals))):
            total = np.where(data.valid[step], residuals[step] + decay[step] * total, np.float32(0.0))  # eq. 11
            advantages[step] = total
        return advantages

    def ratio(self, log_densities: Tensor, old_log_densities: Tensor) -> Tensor:
        """Return r(theta) = pi(a|s) / pi_old(a|s), section 3, (B,)."""
        return torch.exp((log_densities - old_log_densities).clamp(max=LARGEST_LOG_RATIO))

    def surrogate(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        """Return min(r A, clip(r, 1 - epsilon, 1 + epsilon) A), eq. 7 without the mean, (B,)."""
        limits = torch.add(
            advantages, advantages.abs(), alpha=self.config.clip_range
        )  # A + epsilon |A|, which only gains reach
        return (ratio * advantages).clamp(max=limits)

    def objective(
        self, outputs: Tensor, values: Tensor, actions: Tensor, old: Tensor, returns: Tensor, advantages: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return minus eq. 9 of each row, surrogate - c1 (V - V_target)^2 + c2 S, ratios and value losses, (B,) each."""
        ratio = self.ratio(self.networks.distribution.log_density(outputs, actions), old)
        value_losses = mse_loss(values, returns, reduction="none")
        losses = self.config.value_coefficient * value_losses - self.surrogate(ratio, advantages)
        if self.config.entropy_coefficient:
            losses = losses - self.config.entropy_coefficient * self.networks.distribution.entropy(outputs)
        return losses, ratio.detach(), value_losses.detach()

    def update(self) -> Metrics:
        """Take `epochs` passes over the rollout, then begin the next one; returns metrics with Stable-Baselines3's tags.

        Learns nothing from a rollout of which no reward is known, or of a single row. Raises NonFiniteUpdate, changing nothing,
        if a gradient is not finite.
        """
        buffer, steps = self.buffer, self.buffer.length
        valid = buffer.valid[:steps].T.ravel()
        if valid.size < FEWEST or not valid.any():
            self._next_rollout()
            return {}
        before = self._learnt_state()
        vectors = self._moved(buffer.vectors[: steps + 1])
        pictures = {name: self._moved(frames[: steps + 1]) for name, frames in buffer.pictures.items()}
        outputs, values = self._evaluated(vectors, pictures)
        with np.errstate(over="ignore", invalid="ignore"):  # gradients that are not finite are refused below
            advantages = self.advantages(values.view(steps + 1, -1).cpu().numpy())
        actions, gains = self._moved(buffer.actions[:steps]), self._moved(advantages)
        places = torch.arange(valid.size, device=self.device)
        with torch.no_grad():
            old = self.networks.distribution.log_density(outputs[: valid.size], actions)
        rows = (places, vectors[: valid.size], actions, old, gains + values[: valid.size], gains)
        by_environment = np.arange(valid.size).reshape(steps, -1).T.ravel()  # the order of Stable-Baselines3
        learnt = np.resize(by_environment[valid], valid.size)
        with np.errstate(over="ignore", invalid="ignore"):
            taken = self._descend(pictures, rows, learnt)
        norms = torch.stack(self._optimizer.norms).cpu()
        if len(bad := norms[~torch.isfinite(norms)]):
            self._load_learnt_state(before)
            raise NonFiniteUpdate(
                f"Update {self.updates} was refused: the gradient is not finite; the parameters before it are kept.",
                got=f"gradient norm {float(bad[0])} at step {len(norms) - len(bad) + 1} of the update",
                allowed="finite numbers",
                fix="the rollout is finite, so the networks diverge: lower the learning rate, or normalise the rewards",
            )
        chosen = self._moved(learnt)
        if not isinstance(self.networks.distribution, Gaussian):  # whose entropy is that of any outputs
            outputs, _ = self._evaluated(vectors, pictures)
        metrics = self._metrics(taken, rows[4][chosen], values[chosen], outputs[chosen])
        self._next_rollout()
        return metrics

    def _descend(self, pictures: Pictures, rows: Rows, learnt: npt.NDArray[np.int64]) -> list[list[Step]]:
        """Take the passes over the rows whose numbers are given; returns the steps of each."""
        config, passes = self.config, list[list[Step]]()
        self._optimizer.lr, self._optimizer.norms = self.learning_rate, []
        for _ in range(config.epochs):
            order = learnt[self._shuffling.permutation(len(learnt))]
            batches = minibatches(rows, order, config.batch_size)
            passes.append([step for batch in batches for step in self.descend(pictures, batch)])
            self.updates += 1
            if config.target_kl and divergence(torch.cat([step[0] for step in passes[-1]])).cpu() > config.target_kl:
                break  # Differs from Stable-Baselines3, which stops within a pass: because passes are what is counted
        return passes

    def descend(self, pictures: Pictures, batch: Rows) -> list[Step]:
        """Take one step of Adam down the loss of a minibatch; with pictures the gradient is summed over parts."""
        parts = list(zip(*(torch.split(each, MOST_PICTURES) for each in batch), strict=True)) if pictures else [batch]
        total, steps = torch.zeros(()), list[Step]()
        for places, vectors, *rows in parts:
            seen = {name: frames.index_select(0, places) for name, frames in pictures.items()}
            gradient, ratio, value_losses = self.gradient(vectors, seen, rows)
            total = gradient if len(parts) == 1 else total + gradient * (len(places) / len(batch[0]))
            steps.append((ratio, rows[-1], value_losses))
        self._optimizer.step(total)
        return steps

    def gradient(self, vectors: Tensor, pictures: Pictures, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the flat gradient of minus eq. 9, ratios and value losses (B,); `rows` are those of `objective`."""
        inputs = self.networks.encoded(vectors, pictures)
        if self.kernel:
            return self.kernel.gradient(inputs, rows)
        losses, ratio, value_losses = self.objective(*self.networks.heads(inputs), *rows)
        parameters, mean = self._optimizer.parameters, torch.full_like(losses, 1.0 / len(losses))
        found = torch.autograd.grad(losses, parameters, mean, allow_unused=True, materialize_grads=True)
        return torch.cat([each.reshape(-1) for each in found]), ratio, value_losses

    @property
    def learning_rate(self) -> float:
        """Learning rate of the present rollout: the whole for the first one, and some still for the last."""
        if not self._planned:
            return self.config.lr
        return self.config.lr * SCHEDULES[self.config.lr_schedule](min(1.0, self.rollouts / self._planned))

    def _next_rollout(self) -> None:
        self.buffer.restart()
        self.rollouts += 1
        if self.acting_networks is not self.networks:
            self.acting_networks.load_state_dict(self.networks.state_dict())

    def _moved(self, values: Array) -> Tensor:
        """Return values as a tensor on the device; (T, N, ...) of a rollout as (T N, ...)."""
        tensor = torch.from_numpy(values).to(self.device)
        return tensor.flatten(0, 1) if tensor.ndim > 1 else tensor

    @torch.no_grad()
    def _evaluated(self, vectors: Tensor, pictures: Pictures) -> tuple[Tensor, Tensor]:
        """Return outputs and values of all observations of the rollout, pictures in parts."""
        most = MOST_PICTURES if pictures else self.config.batch_size if self.kernel else len(vectors)
        heads, chunks = (self.kernel or self.networks).heads, (each.split(most) for each in (vectors, *pictures.values()))
        inputs = (
            self.networks.encoded(part, dict(zip(pictures, seen, strict=True))) for part, *seen in zip(*chunks, strict=True)
        )
        outputs, values = (torch.cat(each) for each in zip(*map(heads, inputs), strict=True))
        return outputs, values

    @torch.no_grad()
    def _metrics(self, passes: list[list[Step]], returns: Tensor, values: Tensor, outputs: Tensor) -> Metrics:
        steps = [step for one in passes for step in one]
        ratio, advantages, value_losses = (torch.cat(parts) for parts in zip(*steps, strict=True))
        config, distribution = self.config, self.networks.distribution
        surrogate, value_loss = self.surrogate(ratio, advantages).mean(), value_losses.mean()
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
        found |= {"n_updates": float(self.updates), "learning_rate": self._optimizer.lr, "clip_range": config.clip_range}
        return {f"train/{name}": value for name, value in found.items()}

    def _learnt_state(self) -> StateDict:
        networks = {name: value.detach().to("cpu", copy=True) for name, value in self.networks.state_dict().items()}
        learnt = {"networks": networks, "optimizer": self._optimizer.state_dict()}
        return learnt | {"shuffling": self._shuffling.bit_generator.state, "updates": self.updates}

    def _load_learnt_state(self, state: StateDict) -> None:
        load_networks(self.networks, state["networks"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._shuffling.bit_generator.state, self.updates = state["shuffling"], int(state["updates"])

    def state_dict(self) -> StateDict:
        """Return networks, optimiser, normalisation, the unfinished rollout, generators and counters, on the CPU."""
        parts = {name: getattr(self, name).state_dict() for name in STATEFUL}
        return self._learnt_state() | parts | {"acting": self._acting.bit_generator.state, "rollouts": self.rollouts}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned, on any device; the next update is the one that would have come.

        Raises RunError for a state of versions whose networks were no modules.
        """
        if "networks" not in state:
            what = "This checkpoint was made by a version of robo-rl with other networks: train again, or use that version."
            raise RunError(what, got=", ".join(state), allowed="networks, optimizer, ...")
        self._load_learnt_state(state)
        for name in STATEFUL:
            getattr(self, name).load_state_dict(state[name])
        self._acting.bit_generator.state, self.rollouts = state["acting"], int(state["rollouts"])
        if self.acting_networks is not self.networks:
            self.acting_networks.load_state_dict(self.networks.state_dict())


class PPOPolicy:
    """Acts with the networks that PPO goes on training, and with a random generator of its own."""

    def __init__(self, spec: EnvironmentSpec, learner: PPO, generator: np.random.Generator) -> None:
        self.environment_spec, self._learner, self._generator = spec, learner, generator
        self._vectors, self._pictures = [*learner.networks.vectors], [*learner.buffer.pictures]

    def reset(self) -> None:
        """Do nothing: the policy remembers no earlier step."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return an action (A,) float32 in [-1, 1], or an int64 scalar."""
        distribution = self._learner.acting_networks.distribution
        row = {name: observation[name][None] for name in (*self._vectors, *self._pictures)}
        outputs = self._learner.outputs(*self._seen(row))
        drawn = distribution.mode(outputs).cpu().numpy() if deterministic else distribution.draw(outputs, self._generator)
        action: Array = distribution.executed(drawn)[0]
        return action

    def draw(self, observations: Mapping[str, Array], generators: Sequence[np.random.Generator], first: int) -> Array:
        """Return actions (n, ...) of environments from number `first` on, each with a generator of its own.

        Every row has a fixed place in a block of BLOCK rows: no bit of it depends on how the environments are shared out.
        """
        start, stop = first % BLOCK, first % BLOCK + len(generators)
        seen, pictures = self._seen(observations)
        given = [np.pad(each, [(start, -stop % BLOCK), *[(0, 0)] * (each.ndim - 1)]) for each in (seen, *pictures.values())]
        blocks = [[rows[block : block + BLOCK] for rows in given] for block in range(0, len(given[0]), BLOCK)]
        outputs = torch.cat([self._learner.outputs(seen, dict(zip(pictures, rest, strict=True))) for seen, *rest in blocks])
        draw = self._learner.acting_networks.distribution.draw
        return np.concatenate([draw(outputs[row : row + 1], each) for row, each in enumerate(generators, start)])

    def executed(self, actions: Array) -> Array:
        """Return drawn actions as environments accept them."""
        return self._learner.networks.distribution.executed(actions)

    def _seen(self, observations: Mapping[str, Array]) -> tuple[Floats, dict[str, Array]]:
        """Return scaled visible vectors (n, D) and pictures; what is privileged may be missing."""
        vectors = flattened(observations, self._vectors)
        return self._learner.observations.scaled(vectors), {name: observations[name] for name in self._pictures}

    def parameters(self) -> StateDict:
        """Return copies of networks and moments."""
        learnt = self._learner._learnt_state()["networks"]
        return {"networks": learnt, "observations": self._learner.observations.state_dict()}

    def load_parameters(self, parameters: StateDict) -> None:
        """Act with those from now on; the learner whose policy this is has them, too."""
        for networks in (self._learner.networks, self._learner.acting_networks):
            load_networks(networks, parameters["networks"])
        self._learner.observations.load_state_dict(parameters["observations"])

    def state_dict(self) -> StateDict:
        """Return the state of the generator; the networks belong to the learner."""
        return {"generator": self._generator.bit_generator.state}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the generator."""
        self._generator.bit_generator.state = state["generator"]


class ClippedAdam:
    """Adam (Kingma & Ba 2015) with a limited gradient norm: one fused kernel, and no transfer from the device.

    The parameters become parts of one flat tensor.
    """

    def __init__(self, parameters: list[Tensor], max_norm: float) -> None:
        self.parameters, self._max_norm, self.lr = parameters, max_norm, 0.0
        self.flat = torch.cat([each.detach().reshape(-1) for each in parameters])
        for each, part in zip(parameters, self.flat.split_with_sizes([each.numel() for each in parameters]), strict=True):
            each.data = part.view(each.shape)
        self._mean, self._square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self._step = torch.zeros((), device=self.flat.device)
        self._state = {"mean": self._mean, "square": self._square, "step": self._step}
        self._tiny = torch.full_like(self._step, 1e-6 / max_norm)  # PyTorch adds 1e-6 to norms
        self.norms: list[Tensor] = []
        """Norms of the gradients of an update."""

    def step(self, gradient: Tensor) -> None:
        """Take one step along the flat gradient, whose norm is kept; what is not finite goes into the parameters."""
        self.norms.append(norm := torch.linalg.vector_norm(gradient))
        excess = torch.add(self._tiny, norm, alpha=1.0 / self._max_norm).clamp_(min=1.0)
        self._step += 1.0
        moments = [self._mean], [self._square], list[Tensor]()
        torch._fused_adam_([self.flat], [gradient], *moments, [self._step], **ADAM, lr=self.lr, grad_scale=excess)  # divides it

    def state_dict(self) -> StateDict:
        """Return copies of both moments and the number of steps, on the CPU."""
        return {name: value.to("cpu", copy=True) for name, value in self._state.items()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        for name, value in self._state.items():
            value.copy_(torch.as_tensor(state[name]))


def load_networks(networks: PolicyValue, state: StateDict) -> None:
    """Copy parameters from any device."""
    networks.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})


def flattened(observations: Mapping[str, Array], names: Sequence[str]) -> Floats:
    """Return the entries of N observations side by side as (N, D) float32."""
    rows = len(next(iter(observations.values())))
    parts = [np.asarray(observations[each], np.float32).reshape(rows, -1) for each in names]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros((rows, 0), np.float32), *parts], axis=1)


def divergence(ratio: Tensor) -> Tensor:
    """Return an estimate of KL(pi_old || pi) [nat], (r - 1) - log r (Schulman 2020, "Approximating KL Divergence")."""
    return ((ratio - 1.0) - ratio.log()).mean()
