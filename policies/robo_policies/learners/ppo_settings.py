"""Settings of proximal policy optimisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from robo_policies.networks.action_heads import CONTINUOUS
from robo_rl.errors import require_allowed

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""Name -> share of the learning rate that is left after a share of the training."""


@dataclass(frozen=True)
class PPOSettings:
    """What a learner goes by; defaults are those of Stable-Baselines3's PPO unless a field says otherwise."""

    lr: float = 3e-4
    """Learning rate of Adam."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate falls to 0 over the training, rollout by rollout. CaRL: linear."""
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
    hidden: tuple[int, ...] = (64, 64)
    """Units of the hidden layers of actor and critic, which share none."""
    convolutions: tuple[int, ...] = ()
    """Channels of the layers through which pictures are seen, each of half the height and width; none: they are not seen.
    CaRL: 8, 16, 24, 32, 64, 128, 256 for pictures of 256 pixels."""
    privileged_critic: bool = False
    """The critic sees privileged entries, too; the policy never does. CaRL: on."""
    policy: Literal["normal", "beta"] = "normal"
    """Distribution of continuous actions. CaRL: beta."""
    initial_log_std: float = 0.0
    """Logarithm of the first standard deviation of normal actions, in [-1, 1] units."""
    normalize_observations: bool = True
    """Scale observations by running moments. Off in Stable-Baselines3; its settings tuned for MuJoCo have it on."""
    normalize_rewards: bool = True
    """Divide rewards by the running deviation of the return. Off in Stable-Baselines3; as above."""

    def __post_init__(self) -> None:
        positive = ("lr", "num_envs", "steps_per_env", "epochs", "clip_range", "max_gradient_norm")
        require_allowed(self, {name: (getattr(self, name) > 0, "above 0") for name in positive})
        require_allowed(self, {"batch_size": (self.batch_size > 1, "2 or more, to normalise advantages within it")})
        require_allowed(
            self,
            {
                "discount": (0 <= self.discount <= 1, "0 to 1"),
                "gae_lambda": (0 <= self.gae_lambda <= 1, "0 to 1"),
                "hidden": (all(units >= 1 for units in self.hidden), "1 or more units in each layer"),
                "convolutions": (
                    all(channels >= 1 for channels in self.convolutions) and bool(self.hidden or not self.convolutions),
                    "1 or more channels in each layer, and hidden layers after them",
                ),
                "target_kl": (self.target_kl is None or self.target_kl > 0, "above 0, or none"),
                "lr_schedule": (self.lr_schedule in SCHEDULES, ", ".join(SCHEDULES)),
                "policy": (self.policy in CONTINUOUS, ", ".join(CONTINUOUS)),
                "initial_log_std": (self.policy == "normal" or not self.initial_log_std, "0 unless policy is normal"),
                "batch_size": (
                    self.rollout_size % self.batch_size == 0,
                    f"a divisor of num_envs * steps_per_env = {self.rollout_size}",
                ),
            },
        )

    @property
    def rollout_size(self) -> int:
        """Transitions between two updates."""
        return self.num_envs * self.steps_per_env
