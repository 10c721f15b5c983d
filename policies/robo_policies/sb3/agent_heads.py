"""Networks of Stable-Baselines3's agents, rebuilt from the names and shapes of their weights, to act with.

B observations of D numbers, A elements of an action, L features before the last layer. Weights come from
`torch.load(weights_only=True)`; no code of the file is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from robo_rl.errors import InvalidSetting

Weights = Mapping[str, Tensor]
LOG_STD = (-20.0, 2.0)
"""Limits of the logarithm of SAC's standard deviation, as in SB3."""
READ = (
    "actor.",
    "actor_target.",
    "mlp_extractor.",
    "action_net.",
    "value_net.",
    "log_std",
    "critic.",
    "critic_target.",
    "log_ent_coef",
)
READ_BY_DQN = ("q_net.", "q_net_target.")


@dataclass(frozen=True)
class HeadSettings:
    """Settings of a published agent's network that its weights do not show."""

    activation: type[nn.Module]
    clip_mean: float = 2.0
    """Largest magnitude of SAC's mean before tanh with state-dependent exploration; 0 for no limit."""


class Head(Protocol):
    """Interface of the network of a published agent, which chooses an action for one observation."""

    inputs: int
    """D, number of elements of an observation."""
    outputs: int
    """A, elements of an action, or the number of choices."""
    is_discrete: bool
    is_normalized: bool
    """True if actions are in [-1, 1], False if they are in the units of the environment."""

    def reset(self, generator: torch.Generator) -> None:
        """Begin an episode: draw new noise for state-dependent exploration, if the agent has it."""

    def act(self, features: Tensor, deterministic: bool, generator: torch.Generator) -> Tensor:
        """Return an action (A,), or a choice (), for an observation (D,)."""


class _Head:
    """Base class of heads: hidden layers, no memory."""

    is_discrete = False
    is_normalized = True

    def __init__(self, tower: nn.Sequential, outputs: int) -> None:
        self._tower, self.outputs = tower, outputs
        self.inputs = next(layer.in_features for layer in tower if isinstance(layer, nn.Linear))

    def reset(self, generator: torch.Generator) -> None:
        """Do nothing: the head has no noise that lasts for an episode."""


class DeterministicHead(_Head):
    """Network that acts for TD3 and DDPG: tanh of the last layer."""

    def act(self, features: Tensor, deterministic: bool, generator: torch.Generator) -> Tensor:
        """Return the deterministic action (A,); these agents have no random one."""
        return torch.tanh(self._tower(features))


class ChoiceHead(_Head):
    """Network that acts for discrete agents: by logits of PPO and A2C, or by values of DQN (`is_greedy`)."""

    is_discrete = True

    def __init__(self, tower: nn.Sequential, outputs: int, *, is_greedy: bool) -> None:
        super().__init__(tower, outputs)
        self._is_greedy = is_greedy

    def act(self, features: Tensor, deterministic: bool, generator: torch.Generator) -> Tensor:
        """Return a choice (): the best one for DQN, or if deterministic; else a sample."""
        found: Tensor = self._tower(features)
        if deterministic or self._is_greedy:
            return found.argmax()
        return torch.multinomial(torch.softmax(found, 0), 1, generator=generator)[0]


class GaussianHead(_Head):
    """Network that acts by a Gaussian: of PPO and A2C in the units of the environment, or of SAC followed by tanh.

    `is_squashed` is True for SAC. With state-dependent exploration (gSDE: Raffin et al. 2022, arXiv:2005.05719) one matrix of
    noise is drawn per episode.
    """

    def __init__(
        self, tower: nn.Sequential, mean: nn.Linear, log_std: nn.Linear | Tensor, *, is_squashed: bool, clip_mean: float = 0.0
    ) -> None:
        """Make the head.

        Args:
            tower: Hidden layers.
            mean: Layer of the means.
            log_std: Logarithms of the standard deviations: a layer, a tensor (A,), or (L, A) with state-dependent exploration.
            is_squashed: True if tanh follows.
            clip_mean: Largest magnitude of a mean with state-dependent exploration; 0 for no limit.
        """
        super().__init__(tower, mean.out_features)
        self._mean, self._log_std, self.is_normalized, self._clip_mean = mean, log_std, is_squashed, clip_mean
        self._noise: Tensor | None = None

    def reset(self, generator: torch.Generator) -> None:
        """Draw the matrix of noise (L, A) of an episode, if exploration depends on the state."""
        if isinstance(self._log_std, Tensor) and self._log_std.ndim == 2:
            self._noise = self._log_std.exp() * torch.randn(self._log_std.shape, generator=generator)

    def act(self, features: Tensor, deterministic: bool, generator: torch.Generator) -> Tensor:
        """Return an action (A,): the mean if `deterministic`, else a random one."""
        latent = self._tower(features)
        action: Tensor = self._mean(latent)
        if self._noise is not None and self._clip_mean:
            action = action.clamp(-self._clip_mean, self._clip_mean)
        if not deterministic:
            action = action + self._drawn(latent, generator)
        return torch.tanh(action) if self.is_normalized else action

    def _drawn(self, latent: Tensor, generator: torch.Generator) -> Tensor:
        if self._noise is not None:
            return latent @ self._noise
        log_std = self._log_std if isinstance(self._log_std, Tensor) else self._log_std(latent).clamp(*LOG_STD)
        return log_std.exp() * torch.randn(self.outputs, generator=generator)


def read_head(weights: Weights, settings: HeadSettings) -> Head:
    """Build the network that acts from the weights of an agent.

    Raises InvalidSetting for weights of another algorithm, or of an agent that observes pictures or a dict.
    """
    known = READ_BY_DQN if "q_net.q_net.0.weight" in weights else READ
    if foreign := sorted(name for name in weights if not name.startswith(known)):
        raise InvalidSetting(
            "The agent has networks that are not read here.",
            got=", ".join(foreign[:3]),
            allowed="an MlpPolicy of PPO, A2C, SAC, TQC, TD3, DDPG or DQN",
            fix="agents that see pictures, or observe a dict, cannot be played",
        )
    try:
        return _read(weights, settings)
    except (KeyError, IndexError, StopIteration, RuntimeError, ValueError) as error:
        raise InvalidSetting(
            "The weights are of no agent of Stable-Baselines3.",
            got=f"{type(error).__name__}: {str(error)[:200]}",
            allowed="the names of its PPO, A2C, SAC, TQC, TD3, DDPG or DQN",
        ) from None


def _read(weights: Weights, settings: HeadSettings) -> Head:
    made = settings.activation
    if "q_net.q_net.0.weight" in weights:
        tower = _tower(weights, "q_net.q_net.", made, ends=True)
        return ChoiceHead(tower, _last(tower).out_features, is_greedy=True)
    if "action_net.weight" in weights:
        tower, last = _tower(weights, "mlp_extractor.policy_net.", made), _layer(weights, "action_net.")
        if "log_std" not in weights:
            return ChoiceHead(nn.Sequential(*tower, last), last.out_features, is_greedy=False)
        return GaussianHead(tower, last, _deviation(weights["log_std"], tower, last), is_squashed=False)
    if "actor.latent_pi.0.weight" in weights:
        tower = _tower(weights, "actor.latent_pi.", made)
        if "actor.log_std" in weights:  # state-dependent exploration
            prefix = "actor.mu.0." if "actor.mu.0.weight" in weights else "actor.mu."
            mean = _layer(weights, prefix)
            spread = _deviation(weights["actor.log_std"], tower, mean)
            return GaussianHead(tower, mean, spread, is_squashed=True, clip_mean=settings.clip_mean)
        return GaussianHead(tower, _layer(weights, "actor.mu."), _layer(weights, "actor.log_std."), is_squashed=True)
    tower = _tower(weights, "actor.mu.", made, ends=True)
    return DeterministicHead(tower, _last(tower).out_features)


def _tower(weights: Weights, prefix: str, activation: type[nn.Module], *, ends: bool = False) -> nn.Sequential:
    """Return the layers PREFIX0, PREFIX2, ... in order, each followed by an activation, except the last one if `ends`."""
    found = (re.fullmatch(rf"{re.escape(prefix)}(\d+)\.weight", name) for name in weights)
    numbers = sorted(int(match[1]) for match in found if match)
    layers = [part for number in numbers for part in (_layer(weights, f"{prefix}{number}."), activation())]
    return nn.Sequential(*(layers[:-1] if ends else layers))


def _layer(weights: Weights, prefix: str) -> nn.Linear:
    weight, bias = weights[f"{prefix}weight"], weights[f"{prefix}bias"]
    if weight.ndim != 2 or bias.shape != weight.shape[:1] or not (weight.isfinite().all() and bias.isfinite().all()):
        raise ValueError(f"{prefix}weight of shape {tuple(weight.shape)}, bias {tuple(bias.shape)}, or not finite")
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight.float(), "bias": bias.float()})
    return layer.requires_grad_(requires_grad=False)


def _last(tower: nn.Sequential) -> nn.Linear:
    return [layer for layer in tower if isinstance(layer, nn.Linear)][-1]


def _deviation(values: Tensor, tower: nn.Sequential, mean: nn.Linear) -> Tensor:
    """Return the logarithms of the standard deviations, (A,) or (L, A); raises ValueError for another shape."""
    if values.shape not in {(mean.out_features,), (mean.in_features, mean.out_features)}:
        raise ValueError(f"log_std of shape {tuple(values.shape)}")
    return values.float()
