"""Soft actor-critic: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905.

Equation numbers are those of that paper. At equal settings it is the algorithm of Stable-Baselines3's SAC.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robo_policies.learners.actor_critic import ActorCritic
from robo_policies.learners.learning import ActorPolicy, EncodedBatch, track
from robo_policies.networks.perceptrons import Floats, Precision
from robo_policies.networks.settings import require_continuous, require_ranges
from robo_rl.sampling import Sampling
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
    replay_folder: str | None = None
    """Folder on a disk in which the online replay memory is mapped; None keeps it in RAM."""
    offline_fraction: float = 0.0
    """Share of each batch that comes from demonstrations."""
    precision: Precision = "float32"
    """Of the products of the hidden layers. "bfloat16" is faster on processors made for it (see docs/learners/sac.md),
    slower on others, and rounds to three digits; parameters, targets, losses and Adam stay float32."""

    def __post_init__(self) -> None:
        require_ranges(self)

    @property
    def sampling(self) -> Sampling:
        """What the training loop must provide."""
        return Sampling.of(self)

    def build(self, spec: EnvironmentSpec, seed: int) -> SAC:
        """Returns a fresh learner."""
        return SAC(spec, self, seed)


class SAC:
    """Maximises return and entropy; one critic, actor and temperature update per batch."""

    def __init__(self, spec: EnvironmentSpec, config: SACConfig, seed: int) -> None:
        require_continuous(spec, "SAC")
        self.config = config
        self.parts = parts = ActorCritic(spec, config, seed)
        self.encoder, self.actor, self.temperature = parts.encoder, parts.actor, parts.temperature
        self.critic, self.target_critic = parts.critic, parts.target_critic

    @property
    def policy(self) -> ActorPolicy:
        """The policy being trained."""
        return self.parts.policy

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what is not finite is refused with a better message
    def update(self, batch: Batch) -> Metrics:
        """Takes one gradient step of each network (algorithm 1, lines 10 to 13)."""
        data = EncodedBatch.of(batch, self.encoder, self.parts.updates)
        # Differs from algorithm 1: the actions of the present policy are drawn once and serve both the temperature and
        # the actor, as in Stable-Baselines3, because the actor does not change in between.
        actions, log_densities = self.actor.sample(data.observations, self.parts.generator, keep=True)
        alpha = self.temperature.value
        temperature_loss, by_log_alpha = self.temperature.loss(log_densities)
        self.temperature.backward(by_log_alpha)
        self.parts.descend("temperature", temperature_loss)

        targets = self.critic_target(data, alpha)
        values = self.critic.values(data.observations, data.actions, keep=True)
        critic_loss, by_values = self.critic_loss(values, targets, data.weights)
        self.critic.backward(by_values)
        self.parts.descend("critic", critic_loss)

        actor_loss, by_actions, by_log_densities = self.actor_loss(data.observations, actions, log_densities, alpha)
        self.actor.backward(by_actions, by_log_densities)
        self.parts.descend("actor", actor_loss)
        track(self.target_critic.network, self.critic.network, self.config.tau)
        losses = {"critic_loss": critic_loss, "actor_loss": actor_loss, "ent_coef_loss": temperature_loss}
        return self.parts.finish_update(losses | {"ent_coef": alpha, "q_mean": values.mean(), "entropy": -log_densities.mean()})

    def critic_target(self, data: EncodedBatch, alpha: float) -> Floats:
        """Returns y (B,), the right-hand side of eq. 5 with the soft value of eq. 3 and the minimum over target critics."""
        next_actions, next_log_densities = self.actor.sample(data.next_observations, self.parts.generator)
        next_q = self.target_critic.values(data.next_observations, next_actions).min(0)
        soft_value = next_q - alpha * next_log_densities
        targets: Floats = data.rewards + data.discounts * data.masks * soft_value
        return targets

    def critic_loss(self, values: Floats, targets: Floats, weights: Floats) -> tuple[float, Floats]:
        """J_Q, eq. 5: half the squared soft Bellman residual, summed over the critics; its derivative by `values` (N, B)."""
        residuals = values - targets
        by_values = weights * residuals / np.float32(len(targets))
        return 0.5 * float(np.vdot(by_values, residuals)), by_values

    def actor_loss(
        self, observations: Floats, actions: Floats, log_densities: Floats, alpha: float
    ) -> tuple[float, Floats, Floats]:
        """J_pi, eq. 9: alpha log pi(a|s) - min_i Q_i(s, a) at the policy's own actions, and its derivatives by a and log pi."""
        q = self.critic.values(observations, actions, keep=True)
        is_smallest = q.argmin(0) == np.arange(len(q))[:, None]
        by_actions = self.critic.action_gradient(is_smallest * np.float32(-1 / len(actions)), actions.shape[1])
        by_log_densities = np.full_like(log_densities, alpha / len(log_densities))
        return float((alpha * log_densities - q.min(0)).mean()), by_actions, by_log_densities

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return self.parts.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        self.parts.load_state_dict(state)
