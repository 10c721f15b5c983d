"""Policy and value networks of PPO and their distributions of actions, on any device.

B rows, D visible and P privileged numbers of an observation, F features, O outputs of the actor, A action elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from robo_policies.networks.convolutions import ConvEncoder
from robo_policies.networks.settings import BaseNetwork, own_encoder, own_layers
from robo_rl.errors import InvalidSetting
from robo_rl.requirements import require_role
from robo_rl.spec.environment import EnvironmentSpec, ObservationSpec
from robo_rl.types import Array, StateDict

Floats = npt.NDArray[np.float32]
HIDDEN_GAIN, ACTOR_GAIN, CRITIC_GAIN = math.sqrt(2.0), 0.01, 1.0  # scales of the first weights in Stable-Baselines3's PPO
HALF_LOG_TAU, LOG_2 = 0.5 * math.log(2.0 * math.pi), math.log(2.0)
EDGE = 1e-6  # nearest to 0 and to 1 that a Beta action is drawn: densities and their derivatives are finite there


class Gaussian(nn.Module):
    """Distribution of continuous actions: a ~ Normal(mean(s), std), with a learnt std that is the same in every state.

    The network outputs (B, A) are the means.

    Densities are those before actions are clipped to [-1, 1] for the environment, as in Stable-Baselines3.
    """

    def __init__(self, size: int, initial_log_std: float = 0.0) -> None:
        super().__init__()
        self.outputs = size
        self.log_std = nn.Parameter(torch.full((size,), initial_log_std))

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the most likely actions (B, A), the means, not clipped."""
        return outputs

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Array:
        """Return random actions (B, A), not yet clipped."""
        noise = generator.standard_normal(tuple(outputs.shape), np.float32)
        return np.asarray(outputs.cpu().numpy() + np.exp(self.log_std.detach().cpu().numpy()) * noise)

    def executed(self, actions: Array) -> Array:
        """Return drawn actions (B, A) clipped to [-1, 1], as environments accept them."""
        return np.minimum(np.maximum(actions, np.float32(-1.0)), np.float32(1.0))

    def most_likely(self, outputs: Tensor) -> Tensor:
        """Return the most likely actions (B, A): the means clipped to [-1, 1]."""
        return self.mode(outputs).clamp(-1.0, 1.0)

    def log_density(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Return log pi(a|s) (B,) of actions (B, A) before clipping, for means (B, A) as `outputs`."""
        constant, precisions = self.log_std.sum() + self.outputs * HALF_LOG_TAU, torch.exp(-2.0 * self.log_std)
        return torch.addmv(constant, (actions - outputs).square(), precisions, beta=-1, alpha=-0.5)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy [nat] of each row, (B,)."""
        return (self.log_std.sum() + self.outputs * (HALF_LOG_TAU + 0.5)).expand(len(outputs))


class Beta(nn.Module):
    """Distribution of continuous actions: a = 2 u - 1 with u ~ Beta(alpha(s), beta(s)) (Chou et al. 2017); never clipped.

    The network outputs (B, 2 A) give alpha and beta as 1 + softplus(output), so that the density has one maximum. The methods
    take and return u in [0, 1], except `executed` and `most_likely`, which return a. Densities and entropies are those of a.
    They are computed in double precision, because log gamma of large numbers is inexact in single precision.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.outputs = 2 * size

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the most likely u (B, A), (alpha - 1) / (alpha + beta - 2)."""
        above = self._concentrations(outputs) - 1.0
        tiny = torch.finfo(above.dtype).tiny  # the middle if both are 0
        return ((above[:, 0] + tiny) / (above.sum(1) + 2 * tiny)).float()

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Array:
        """Return random u (B, A) in [EDGE, 1 - EDGE]."""
        alpha, beta = self._concentrations(outputs).cpu().numpy().swapaxes(0, 1)
        return np.asarray(np.clip(generator.beta(alpha, beta), EDGE, 1.0 - EDGE), np.float32)

    def executed(self, actions: Array) -> Array:
        """Return the actions 2 u - 1 in [-1, 1] of stored u (B, A)."""
        return np.asarray(np.float32(2.0) * actions - np.float32(1.0))

    def most_likely(self, outputs: Tensor) -> Tensor:
        """Return the most likely actions 2 mode - 1 (B, A), in single precision, which is exact enough without log gamma."""
        above = softplus(outputs).reshape(len(outputs), 2, -1)
        tiny = torch.finfo(above.dtype).tiny
        return 2.0 * (above[:, 0] + tiny) / (above.sum(1) + 2 * tiny) - 1.0

    def log_density(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Return log pi(a|s) (B,) for stored u (B, A); a = 2 u - 1 subtracts log 2 for each element."""
        law = self._law(outputs)
        densities: Tensor = law.log_prob(actions.to(law.concentration0.dtype)) - LOG_2
        return densities.sum(1).float()

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy [nat] of each row, (B,)."""
        entropies: Tensor = self._law(outputs).entropy() + LOG_2
        return entropies.sum(1).float()

    def _law(self, outputs: Tensor) -> torch.distributions.Beta:
        alpha, beta = self._concentrations(outputs).unbind(1)
        return torch.distributions.Beta(alpha, beta, validate_args=False)

    def _concentrations(self, outputs: Tensor) -> Tensor:
        """Return alpha and beta of each element, (B, 2, A)."""
        exact = outputs.float() if outputs.device.type == "mps" else outputs.double()  # which has no double precision
        return 1.0 + softplus(exact).reshape(len(outputs), 2, -1)


class Categorical(nn.Module):
    """Distribution of discrete actions: pi(a|s) = softmax(outputs), for network outputs (B, A) of A choices."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.outputs = size

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the most likely choices (B,) int64."""
        return outputs.argmax(-1)

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Array:
        """Return random choices (B,) int64, by the Gumbel-max trick (Gumbel 1954)."""
        return np.asarray((outputs.cpu().numpy() + generator.gumbel(size=tuple(outputs.shape))).argmax(-1))

    def executed(self, actions: Array) -> Array:
        """Return the choices unchanged; a choice needs no clipping."""
        return actions

    def most_likely(self, outputs: Tensor) -> Tensor:
        """Return the most likely choices (B,) int64."""
        return self.mode(outputs)

    def log_density(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Return log pi(a|s) (B,) of choices (B,), for network outputs (B, A)."""
        return torch.log_softmax(outputs, -1).gather(1, actions[:, None])[:, 0]

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy [nat] of each row, (B,)."""
        logs = torch.log_softmax(outputs, -1)
        return -(logs.exp() * logs).sum(-1)


Distribution = Gaussian | Beta | Categorical
CONTINUOUS = ("normal", "beta")


def distribution_of(spec: EnvironmentSpec, continuous: str, initial_log_std: float = 0.0) -> Distribution:
    """Return the distribution of an environment's actions.

    Args:
        spec: The environment's spec; its action decides between discrete and continuous.
        continuous: "normal" or "beta", the distribution of continuous actions.
        initial_log_std: Logarithm of the first standard deviation of normal actions.

    Raises:
        InvalidSetting: Discrete actions with a distribution other than "normal".
    """
    if not spec.action.is_discrete:
        return Beta(spec.action.size) if continuous == "beta" else Gaussian(spec.action.size, initial_log_std)
    if continuous != "normal":
        raise InvalidSetting(
            f"The actions of {spec.name!r} are choices, which have no {continuous} distribution.",
            got=f"policy {continuous}, {spec.action.size} choices",
            allowed="continuous actions",
            fix="leave policy out",
        )
    return Categorical(spec.action.size)


class TanhMLP(nn.Module):
    """MLP of linear layers, each followed by tanh: (B, in) -> (B, size). Weights are (in, out)."""

    def __init__(self, inputs: int) -> None:
        """Make an MLP without layers for inputs (B, `inputs`); `append` adds layers."""
        super().__init__()
        self.size, self._depth = inputs, 0

    def append(self, units: int, generator: np.random.Generator) -> None:
        """Add a linear layer of `units` units, with orthogonal weights and zero biases, followed by tanh."""
        self.register_parameter(f"weight{self._depth}", orthogonal(self.size, units, HIDDEN_GAIN, generator))
        self.register_parameter(f"bias{self._depth}", nn.Parameter(torch.zeros(units)))
        self.size, self._depth = units, self._depth + 1

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weight (in, out) and bias (out,) of each layer."""
        return [(getattr(self, f"weight{index}"), getattr(self, f"bias{index}")) for index in range(self._depth)]

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs (B, size) of inputs (B, in)."""
        for weight, bias in self.layers:
            x = torch.tanh(torch.addmm(bias, x, weight))
        return x


@dataclass(frozen=True)
class PolicyValueNetwork(BaseNetwork):
    """Settings group `network` of PPO: hidden layers, convolutions for pictures, and the distribution of actions."""

    hidden: tuple[int, ...] = (64, 64)
    """Units of the hidden layers of the actor, and of as many separate ones of the critic."""
    convolutions: tuple[int, ...] = ()
    """Channels of the convolutions that read pictures, each of which halves height and width; none: pictures are not read.
    CaRL: 8, 16, 24, 32, 64, 128, 256 for pictures of 256 pixels."""
    distribution: Literal["normal", "beta"] = "normal"
    """Distribution of continuous actions. CaRL: beta."""
    initial_log_std: float = 0.0
    """Natural logarithm of the initial standard deviation of normal actions, which lie in [-1, 1]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        can_convolve = all(channels >= 1 for channels in self.convolutions) and bool(self.hidden or not self.convolutions)
        allowed = {
            "convolutions": (can_convolve, "1 or more channels in each layer, and hidden layers after them"),
            "distribution": (self.distribution in CONTINUOUS, ", ".join(CONTINUOUS)),
            "initial_log_std": (self.distribution == "normal" or not self.initial_log_std, "0 unless distribution is normal"),
        }
        self.require(allowed)


class PolicyValue(nn.Module):
    """Actor and critic of PPO, with the encoder of pictures, if any, that they share.

    The actor reads features (B, F), the critic inputs (B, F + P): the same features, then P privileged numbers.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        network: PolicyValueNetwork,
        generator: np.random.Generator,
        *,
        privileged_critic: bool = False,
    ) -> None:
        super().__init__()
        observation = spec.observation
        _require_readable(spec, network, privileged_critic)
        self.vectors = observation.vectors
        self.visible = self.vectors.size
        self.reads = critic_vectors(observation, privileged=privileged_critic)
        """Vectors that are read, D + P numbers: first those of the policy, then the privileged ones of the critic."""
        self.distribution = distribution_of(spec, network.distribution, network.initial_log_std)
        self.encoder: nn.Module | None = None
        if network.encoder is not None:
            self.encoder = _seeded(generator, own_encoder, network.encoder, spec)
        elif network.convolutions:
            self.encoder = _seeded(generator, ConvEncoder, spec, network.convolutions)
        self.pictures = observation.subset("image").arrays if self.encoder is not None else ()
        self.seen = int(self.encoder.size) if self.encoder is not None else self.visible  # type: ignore[arg-type]
        """F, number of inputs of the actor."""
        self.inputs = self.seen + self.reads.size - self.visible
        """F + P, number of inputs of the critic, those of the actor first."""
        trunks = list[nn.Module]()
        for setting, size in (("actor", self.seen), ("critic", self.inputs)):
            own, named = getattr(network, setting), f"network.{setting}"
            trunks.append(_seeded(generator, own_layers, named, own, size, network.hidden) if own else TanhMLP(size))
        for units in network.hidden:
            for mlp in (trunk for trunk in trunks if isinstance(trunk, TanhMLP)):
                mlp.append(units, generator)
        self.actor_trunk, self.critic_trunk = trunks
        actor, critic = (int(trunk.size) for trunk in trunks)  # type: ignore[arg-type]
        self.actor_weight = orthogonal(actor, self.distribution.outputs, ACTOR_GAIN, generator)
        self.actor_bias = nn.Parameter(torch.zeros(self.distribution.outputs))
        self.critic_weight = orthogonal(critic, 1, CRITIC_GAIN, generator)
        self.critic_bias = nn.Parameter(torch.zeros(1))

    def heads(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the actor's outputs (B, O), the parameters of its action distribution, and the critic's values (B,).

        Args:
            inputs: (B, F + P): F features that actor and critic read, then P privileged numbers that only the critic reads.
        """
        values = torch.addmm(self.critic_bias, self.critic_trunk(inputs), self.critic_weight)
        return self.act(inputs[:, : self.seen]), values.squeeze(1)

    def act(self, features: Tensor) -> Tensor:
        """Compute the actor's outputs (B, O), the parameters of its action distribution, for features (B, F)."""
        return torch.addmm(self.actor_bias, self.actor_trunk(features), self.actor_weight)

    def load(self, state: StateDict) -> None:
        """Copy parameters from a state on any device; raises RuntimeError if names or shapes differ."""
        self.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})

    def encoded(self, vectors: Tensor, pictures: Mapping[str, Tensor]) -> Tensor:
        """Encode observations into the inputs of actor and critic: vectors unchanged, pictures by the convolutions.

        Args:
            vectors: (B, D + P) for the critic, or (B, D) for the actor alone.
            pictures: uint8 (B, height, width, channels) by name; none without an encoder.

        Returns:
            (B, F + P), or (B, F) for vectors (B, D).
        """
        if self.encoder is None:
            return vectors
        parts = vectors[:, : self.visible].split_with_sizes([array.size for array in self.vectors.values()], 1)
        shaped = {each.name: part.view(-1, *each.shape) for each, part in zip(self.vectors.arrays, parts, strict=True)}
        return torch.cat((self.encoder({**shaped, **pictures}), vectors[:, self.visible :]), 1)


def critic_vectors(observation: ObservationSpec, *, privileged: bool) -> ObservationSpec:
    """Return the spec of the vectors that a critic reads: those of the policy, then, if `privileged`, the privileged ones."""
    more = observation.subset("privileged").arrays if privileged else ()
    return ObservationSpec((*observation.vectors.arrays, *more))


def _seeded(generator: np.random.Generator, make: Callable[..., nn.Module], *arguments: object) -> nn.Module:
    """Return a module whose first parameters PyTorch draws, determined by the generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator.integers(2**63)))
        return make(*arguments)


def _require_readable(spec: EnvironmentSpec, network: PolicyValueNetwork, privileged_critic: bool) -> None:
    """Raise InvalidSetting if there is nothing to read, or nothing that the critic alone reads."""
    observation = spec.observation
    if privileged_critic:
        require_role(spec, "privileged", "privileged_critic")
    if not observation.vectors and not network.convolutions and not (network.encoder and observation.subset("image")):
        raise InvalidSetting(
            f"PPO reads nothing of {spec.name!r}.",
            got=list(observation),
            allowed="proprioception, object or goal entries, or pictures with convolutions",
            fix="set network.convolutions if there are pictures, for instance to [8, 16, 32, 32]",
        )


def orthogonal(rows: int, columns: int, gain: float, generator: np.random.Generator) -> nn.Parameter:
    """Return a random matrix with orthonormal rows or columns, whichever are fewer, times `gain` (Saxe et al. 2014)."""
    draws = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(draws)
    q *= np.sign(np.diag(r))  # makes the distribution uniform
    return nn.Parameter(torch.from_numpy((gain * (q if rows >= columns else q.T)).astype(np.float32)))
