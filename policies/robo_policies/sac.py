"""Soft actor-critic: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905.

Equation numbers are those of that paper. At equal settings it is the algorithm of Stable-Baselines3's SAC.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robo_policies.learning import (
    ActorPolicy,
    CheckedAdam,
    MetricsWindow,
    TensorBatch,
    clone_state,
    generators,
    load_generator,
    load_state,
    require_continuous,
    require_ranges,
    track,
)
from robo_policies.networks import ObservationEncoder, QEnsemble, TanhGaussianActor
from robo_rl.replay import Sampling
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict


@dataclass(frozen=True)
class SACConfig:
    """Settings of SAC; defaults are those of Stable-Baselines3's SAC unless a field says otherwise."""

    lr: float = 3e-4
    """Learning rate of actor, critics and temperature."""
    batch_size: int = 256
    """Transitions of one update."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    tau: float = 0.005
    """Share of the online critics that enters the target critics at each update."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers of actor and critics."""
    critics: int = 2
    """Critics of which the minimum counts."""
    layer_norm: bool = False
    """LayerNorm before each ReLU of the critics."""
    initial_temperature: float = 1.0
    """[1] weight of the entropy at the start."""
    target_entropy_per_action: float = -1.0
    """[nat] wanted entropy of the policy per action element; the paper's -dim(A) in all."""
    normalization_rows: int = 0
    """Observations whose mean and deviation standardise the input; 0 leaves it as it is."""
    n_step: int = 1
    """Steps of reward before the bootstrap value."""
    learning_starts: int = 5_000
    """Environment steps with random actions before the first update. Stable-Baselines3 has 100, the
    settings tuned for MuJoCo tasks 10,000."""
    replay_capacity: int = 1_000_000
    """Rows of the replay memory."""
    offline_fraction: float = 0.0
    """Share of each batch that comes from demonstrations."""

    def __post_init__(self) -> None:
        require_ranges(self)

    @property
    def sampling(self) -> Sampling:
        """What the training loop must provide."""
        return Sampling(
            batch_size=self.batch_size,
            updates_per_step=1,
            n_step=self.n_step,
            discount=self.discount,
            learning_starts=self.learning_starts,
            replay_capacity=self.replay_capacity,
            offline_fraction=self.offline_fraction,
        )

    def build(self, spec: EnvironmentSpec, seed: int) -> SAC:
        """Returns a fresh learner."""
        return SAC(spec, self, seed)


class SAC:
    """Maximises return and entropy; one critic, actor and temperature update per batch."""

    def __init__(self, spec: EnvironmentSpec, config: SACConfig, seed: int) -> None:
        require_continuous(spec, "SAC")
        initial, self._generator, acting = generators(seed, 3)
        self.config = config
        self.updates = 0
        self.encoder = ObservationEncoder(spec, config.normalization_rows)
        self.actor = TanhGaussianActor(self.encoder.size, spec.action.size, config.hidden, initial)
        inputs = self.encoder.size + spec.action.size
        self.critic = QEnsemble(inputs, config.hidden, config.critics, config.layer_norm, initial)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.temperature = Temperature(config.initial_temperature, config.target_entropy_per_action * spec.action.size)
        self._policy = ActorPolicy(spec, self.encoder, self.actor, acting)
        self._optimizers = {
            "critic": CheckedAdam("critic loss", self.critic.parameters(), config.lr),
            "actor": CheckedAdam("actor loss", self.actor.parameters(), config.lr),
            "temperature": CheckedAdam("temperature loss", self.temperature.parameters(), config.lr),
        }
        self._metrics = MetricsWindow()

    @property
    def policy(self) -> ActorPolicy:
        """The policy being trained."""
        return self._policy

    def update(self, batch: Batch) -> Metrics:
        """Takes one gradient step of each network (algorithm 1, lines 10 to 13)."""
        data = TensorBatch.of(batch, self.encoder, self.updates)
        # Differs from algorithm 1: the actions of the present policy are drawn once and serve both the temperature and
        # the actor, as in Stable-Baselines3, because the actor does not change in between.
        actions, log_densities = self.actor.sample(data.observations, self._generator)
        alpha = self.temperature.value.detach()
        losses = {"ent_coef_loss": self.temperature.loss(log_densities)}
        self._optimizers["temperature"].minimize(losses["ent_coef_loss"], self.updates)
        values, targets = self.critic(data.observations, data.actions), self.critic_target(data, alpha)
        losses["critic_loss"] = self.critic_loss(values, targets, data.weights)
        self._optimizers["critic"].minimize(losses["critic_loss"], self.updates)
        losses["actor_loss"] = self.actor_loss(data.observations, actions, log_densities, alpha)
        self._optimizers["actor"].minimize(losses["actor_loss"], self.updates)
        track(self.target_critic, self.critic, self.config.tau)
        self.updates += 1
        scalars = losses | {"ent_coef": alpha, "q_mean": values.mean(), "entropy": -log_densities.mean()}
        return self._metrics.add({f"train/{name}": value for name, value in scalars.items()})

    @torch.no_grad()
    def critic_target(self, data: TensorBatch, alpha: Tensor) -> Tensor:
        """Returns y (B,), the right-hand side of eq. 5 with the soft value of eq. 3 and the minimum over target critics."""
        next_actions, next_log_densities = self.actor.sample(data.next_observations, self._generator)
        next_q: Tensor = self.target_critic(data.next_observations, next_actions).amin(0)
        soft_value = next_q - alpha * next_log_densities
        return data.rewards + data.discounts * data.masks * soft_value

    def critic_loss(self, values: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """J_Q, eq. 5: half the squared soft Bellman residual, summed over the critics; `values` is (N, B)."""
        return 0.5 * (weights * (values - targets) ** 2).mean(1).sum()

    def actor_loss(self, observations: Tensor, actions: Tensor, log_densities: Tensor, alpha: Tensor) -> Tensor:
        """J_pi, eq. 9: alpha log pi(a|s) - min_i Q_i(s, a) at the policy's own actions."""
        q: Tensor = self.critic(observations, actions).amin(0)
        return (alpha * log_densities - q).mean()

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return {
            **{name: clone_state(module) for name, module in self._modules().items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
            "generator": self._generator.get_state().clone(),
            "policy": self._policy.state_dict(),
            "metrics": self._metrics.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        for name, module in self._modules().items():
            load_state(module, state[name])
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        load_generator(self._generator, state["generator"])
        self._policy.load_state_dict(state["policy"])
        self._metrics.load_state_dict(state["metrics"])
        self.updates = int(state["updates"])

    def _modules(self) -> dict[str, nn.Module]:
        return {
            "encoder": self.encoder,
            "actor": self.actor,
            "critic": self.critic,
            "target_critic": self.target_critic,
            "temperature": self.temperature,
        }


class Temperature(nn.Module):
    """The weight alpha of the entropy, tuned so that the policy's entropy approaches a target."""

    def __init__(self, initial: float, target_entropy: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(initial).log())
        self.target_entropy = target_entropy

    @property
    def value(self) -> Tensor:
        """Alpha > 0."""
        return self.log_alpha.exp()

    def loss(self, log_densities: Tensor) -> Tensor:
        """J(alpha), eq. 18, for the policy's own actions.

        Differs from eq. 18: log alpha stands in place of alpha, as in the authors' code and in Stable-Baselines3,
        because the step size then does not vanish with alpha.
        """
        return -(self.log_alpha * (log_densities.detach() + self.target_entropy)).mean()
