"""Policy and value networks of PPO and their distributions of actions, on any device.

B rows, D visible and P privileged numbers of an observation, F features, O outputs of the actor, A action elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from robo_policies.networks.settings import NetworkSettings, own_encoder, own_layers
from robo_rl.errors import InvalidSetting
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Array

Floats = npt.NDArray[np.float32]
HIDDEN_GAIN, ACTOR_GAIN, CRITIC_GAIN = math.sqrt(2.0), 0.01, 1.0  # scales of the first weights in Stable-Baselines3's PPO
HALF_LOG_TAU, LOG_2 = 0.5 * math.log(2.0 * math.pi), math.log(2.0)
EDGE = 1e-6  # nearest to 0 and to 1 that a Beta action is drawn: densities and their derivatives are finite there
FEATURES = 64
"""Features of each picture."""


class Gaussian(nn.Module):
    """a ~ Normal(mean(s), std), uncorrelated, std learnt and independent of the state.

    Densities are those before actions are clipped to [-1, 1] for the environment, as in Stable-Baselines3.
    """

    def __init__(self, size: int, initial_log_std: float = 0.0) -> None:
        super().__init__()
        self.outputs = size
        self.log_std = nn.Parameter(torch.full((size,), initial_log_std))

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the means (B, A)."""
        return outputs

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Array:
        """Return random actions (B, A), not yet clipped."""
        noise = generator.standard_normal(tuple(outputs.shape), np.float32)
        drawn: Array = outputs.cpu().numpy() + np.exp(self.log_std.detach().cpu().numpy()) * noise
        return drawn

    def executed(self, actions: Array) -> Array:
        """Return actions clipped to [-1, 1]."""
        clipped: Array = np.minimum(np.maximum(actions, np.float32(-1.0)), np.float32(1.0))
        return clipped

    def log_density(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Return log pi(a|s), (B,)."""
        constant, precisions = self.log_std.sum() + self.outputs * HALF_LOG_TAU, torch.exp(-2.0 * self.log_std)
        return torch.addmv(constant, (actions - outputs).square(), precisions, beta=-1, alpha=-0.5)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy [nat] of each row, (B,)."""
        return (self.log_std.sum() + self.outputs * (HALF_LOG_TAU + 0.5)).expand(len(outputs))


class Beta(nn.Module):
    """u ~ Beta(alpha(s), beta(s)) for each element, a = 2 u - 1 (Chou et al. 2017): no action is clipped.

    alpha and beta are 1 + softplus of an output each, so that there is one hump. Actions are stored as u; densities and
    entropies are those of a, in double precision: log gamma of large numbers has no digits left in single.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.outputs = 2 * size

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the most likely actions (B, A), (alpha - 1) / (alpha + beta - 2)."""
        above = self._concentrations(outputs) - 1.0
        tiny = torch.finfo(above.dtype).tiny  # the middle if both are 0
        return ((above[:, 0] + tiny) / (above.sum(1) + 2 * tiny)).float()

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Array:
        """Return random actions (B, A) in [EDGE, 1 - EDGE]."""
        alpha, beta = self._concentrations(outputs).cpu().numpy().swapaxes(0, 1)
        drawn: Array = np.clip(generator.beta(alpha, beta), EDGE, 1.0 - EDGE).astype(np.float32)
        return drawn

    def executed(self, actions: Array) -> Array:
        """Return actions in [-1, 1]."""
        scaled: Array = np.float32(2.0) * actions - np.float32(1.0)
        return scaled

    def log_density(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Return log pi(a|s) = sum (alpha - 1) log u + (beta - 1) log(1 - u) - log B(alpha, beta) - log 2, (B,)."""
        both = self._concentrations(outputs)
        shares = actions.to(both.dtype)
        logs = torch.stack((shares.log(), torch.log1p(-shares)), 1)
        return (((both - 1.0) * logs).sum(1) - _log_beta(both) - LOG_2).sum(1).float()

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy [nat] of each row, (B,)."""
        both = self._concentrations(outputs)
        total = both.sum(1)
        entropies = _log_beta(both) + LOG_2 + (total - 2.0) * torch.digamma(total)
        return (entropies - ((both - 1.0) * torch.digamma(both)).sum(1)).sum(1).float()

    def _concentrations(self, outputs: Tensor) -> Tensor:
        """Return alpha and beta of each element, (B, 2, A)."""
        exact = outputs.float() if outputs.device.type == "mps" else outputs.double()  # which has no double precision
        return 1.0 + softplus(exact).reshape(len(outputs), 2, -1)


def _log_beta(both: Tensor) -> Tensor:
    return torch.lgamma(both).sum(1) - torch.lgamma(both.sum(1))


class Categorical(nn.Module):
    """pi(a|s) = softmax(outputs): one of A choices."""

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
        """Return the choices."""
        return actions

    def log_density(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Return log pi(a|s), (B,)."""
        return torch.log_softmax(outputs, -1).gather(1, actions[:, None])[:, 0]

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy [nat] of each row, (B,)."""
        logs = torch.log_softmax(outputs, -1)
        return -(logs.exp() * logs).sum(-1)


Distribution = Gaussian | Beta | Categorical
CONTINUOUS = ("normal", "beta")


def distribution_of(spec: EnvironmentSpec, continuous: str, initial_log_std: float = 0.0) -> Distribution:
    """Return a distribution of the actions of an environment; raises InvalidSetting for a Beta distribution of choices."""
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


class ConvEncoder(nn.Module):
    """3 x 3 convolutions that halve each picture's sides, with ReLU, then one layer with LayerNorm and tanh; F = 64 a picture.

    Actor and critic share them, as in CaRL; tanh as in DrQ-v2 (Yarats et al. 2022). Pictures share nothing, and may differ in
    size. The vectors follow the features as they are.
    """

    def __init__(self, spec: EnvironmentSpec, channels: Sequence[int]) -> None:
        super().__init__()
        self._vectors, pictures = spec.observation.vectors, spec.observation.subset("image").arrays
        self.size = FEATURES * len(pictures) + sum(array.size for array in self._vectors.values())
        self.pictures = nn.ModuleDict({each.name: _convolutions(each.shape, channels) for each in pictures})

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Return (B, size) of uint8 pictures (B, height, width, channels) and vectors."""
        scaled = {name: observations[name].permute(0, 3, 1, 2).float() * (1 / 255) for name in self.pictures}
        features = [layers(scaled[name]) for name, layers in self.pictures.items()]
        return torch.cat([*features, *(observations[name].flatten(1) for name in self._vectors)], 1)


def _convolutions(picture: tuple[int, ...], channels: Sequence[int]) -> nn.Sequential:
    height, width, depth = picture
    layers: list[nn.Module] = []
    for before, after in pairwise((depth, *channels)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
        height, width = (height + 1) // 2, (width + 1) // 2
    layers += [nn.Flatten(), nn.Linear(height * width * channels[-1], FEATURES)]
    made = nn.Sequential(*layers, nn.LayerNorm(FEATURES, elementwise_affine=False), nn.Tanh())
    for parameter in made.parameters():
        if parameter.ndim > 1:
            nn.init.orthogonal_(parameter, HIDDEN_GAIN)
        else:
            nn.init.zeros_(parameter)
    return made


class TanhMLP(nn.Module):
    """E tanh networks with the same hidden layers, evaluated together: weights (E, in, out), biases (E, 1, out).

    Each sees the first `inputs[e]` columns. Its first weights are 0 beyond, and stay so if what stands there is 0.
    """

    def __init__(self, inputs: Sequence[int], hidden: Sequence[int], generator: np.random.Generator) -> None:
        super().__init__()
        self.count, self.size, self._depth = len(inputs), (max(inputs), *hidden)[-1], len(hidden)
        for index, width in enumerate(hidden):
            drawn = [orthogonal(seen, width, HIDDEN_GAIN, generator) for seen in inputs]
            first = np.stack([np.pad(each, ((0, max(inputs) - len(each)), (0, 0))) for each in drawn])
            self.register_parameter(f"weight{index}", nn.Parameter(torch.from_numpy(first)))
            self.register_parameter(f"bias{index}", nn.Parameter(torch.zeros(self.count, 1, width)))
            inputs = [width] * self.count

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer."""
        return [(getattr(self, f"weight{index}"), getattr(self, f"bias{index}")) for index in range(self._depth)]

    def forward(self, x: Tensor) -> Tensor:
        """Return (E, B, H) of (B, in) or (E, B, in)."""
        x = x.expand(self.count, -1, -1)
        for weight, bias in self.layers:
            x = torch.tanh(torch.baddbmm(bias, x, weight))
        return x

    def first(self, x: Tensor) -> Tensor:
        """Return (B, H) of the first network for what it sees."""
        for weight, bias in self.layers:
            x = torch.tanh(torch.addmm(bias[0], x, weight[0, : x.shape[1]]))
        return x


class SingleMLP(TanhMLP):
    """One such network."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, H) of (B, in)."""
        return self.first(x)


@dataclass(frozen=True)
class PolicyValueSettings(NetworkSettings):
    """Settings of the networks of PPO."""

    hidden: tuple[int, ...] = (64, 64)
    """Units of the hidden layers of actor and critic, which share none."""
    convolutions: tuple[int, ...] = ()
    """Channels of the layers that encode pictures, each of half the height and width; none: pictures are not read.
    CaRL: 8, 16, 24, 32, 64, 128, 256 for pictures of 256 pixels."""
    privileged_critic: bool = False
    """The critic sees privileged entries, too; the policy never does. CaRL: on."""
    policy: Literal["normal", "beta"] = "normal"
    """Distribution of continuous actions. CaRL: beta."""
    initial_log_std: float = 0.0
    """Logarithm of the first standard deviation of normal actions, in [-1, 1] units."""


class PolicyValue(nn.Module):
    """Actor and critic on features of an observation; inputs of the critic end with the privileged numbers.

    Without trunks of one's own both are one TanhMLP, whose actor gets zeros in the place of privileged numbers.
    """

    def __init__(self, spec: EnvironmentSpec, settings: PolicyValueSettings, generator: np.random.Generator) -> None:
        super().__init__()
        _require(spec, settings)
        observation, hidden = spec.observation, settings.hidden
        self.vectors = observation.vectors
        self.visible = sum(array.size for array in self.vectors.values())
        self.privileged_vectors = observation.subset(*(("privileged",) if settings.privileged_critic else ()))
        self.privileged = sum(array.size for array in self.privileged_vectors.values())
        self.distribution = distribution_of(spec, settings.policy, settings.initial_log_std)
        self.encoder: nn.Module | None = None
        if settings.network is not None:
            self.encoder = _own(generator, own_encoder, settings.network, spec)
        elif settings.convolutions:
            self.encoder = _own(generator, ConvEncoder, spec, settings.convolutions)
        self.pictures = observation.subset("image").arrays if self.encoder is not None else ()
        self.seen = int(self.encoder.size) if self.encoder is not None else self.visible  # type: ignore[arg-type]
        """Inputs of the actor."""
        self.inputs = self.seen + self.privileged
        """Inputs of the critic, those of the actor first."""
        own = settings.actor_network, settings.critic_network
        self.trunk = None if any(own) else TanhMLP((self.seen, self.inputs), hidden, generator)
        if self.trunk is None:
            self.actor_trunk = _trunk("actor_network", own[0], self.seen, hidden, generator)
            self.critic_trunk = _trunk("critic_network", own[1], self.inputs, hidden, generator)
        sizes = [int(each.size) for each in (self.trunk or self.actor_trunk, self.trunk or self.critic_trunk)]  # type: ignore[arg-type]
        hides = self.privileged if self.trunk is not None and not hidden else 0
        first = orthogonal(sizes[0] - hides, self.distribution.outputs, ACTOR_GAIN, generator)
        first = np.pad(first, ((0, hides), (0, 0)))
        self.actor_weight, self.actor_bias = nn.Parameter(torch.from_numpy(first)), nn.Parameter(torch.zeros(first.shape[1]))
        self.critic_weight = nn.Parameter(torch.from_numpy(orthogonal(sizes[1], 1, CRITIC_GAIN, generator)))
        self.critic_bias = nn.Parameter(torch.zeros(1))

    def forward(self, vectors: Tensor, pictures: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the actor's outputs (B, O) and values (B,) of scaled vectors (B, D + P) and uint8 pictures."""
        return self.heads(self.encoded(vectors, pictures))

    def heads(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs (B, O) and values (B,) of inputs (B, F + P)."""
        if self.trunk is None:
            actor, critic = self.actor_trunk(inputs[:, : self.seen]), self.critic_trunk(inputs)
        else:
            hidden = torch.stack((pad(inputs[:, : self.seen], (0, self.privileged)), inputs)) if self.privileged else inputs
            actor, critic = self.trunk(hidden).unbind(0)
        outputs = torch.addmm(self.actor_bias, actor, self.actor_weight)
        return outputs, torch.addmm(self.critic_bias, critic, self.critic_weight).squeeze(1)

    def act(self, inputs: Tensor) -> Tensor:
        """Return the actor's outputs (B, O) of what it sees (B, F)."""
        actor = self.actor_trunk(inputs) if self.trunk is None else self.trunk.first(inputs)
        return torch.addmm(self.actor_bias, actor, self.actor_weight[: actor.shape[1]])

    def encoded(self, vectors: Tensor, pictures: Mapping[str, Tensor]) -> Tensor:
        """Return inputs (B, F + P), or (B, F) of vectors (B, D): features, then what is privileged in the vectors."""
        if self.encoder is None:
            return vectors
        parts = vectors[:, : self.visible].split_with_sizes([array.size for array in self.vectors.values()], 1)
        shaped = {each.name: part.view(-1, *each.shape) for each, part in zip(self.vectors.arrays, parts, strict=True)}
        return torch.cat((self.encoder({**shaped, **pictures}), vectors[:, self.visible :]), 1)


def _trunk(setting: str, name: str | None, inputs: int, hidden: Sequence[int], generator: np.random.Generator) -> nn.Module:
    if name is None:
        return SingleMLP([inputs], hidden, generator)
    return _own(generator, own_layers, setting, name, inputs, hidden)


def _own(generator: np.random.Generator, make: Callable[..., nn.Module], *arguments: object) -> nn.Module:
    """Return a module whose first parameters PyTorch draws, determined by the generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator.integers(2**63)))
        return make(*arguments)


def _require(spec: EnvironmentSpec, settings: PolicyValueSettings) -> None:
    """Raise InvalidSetting if the networks cannot read what the settings demand, or nothing is read."""
    observation, pictures = spec.observation, spec.observation.subset("image")
    there = {"convolutions": ("image", pictures), "privileged_critic": ("privileged", observation.subset("privileged"))}
    for setting, (role, entries) in there.items():
        if getattr(settings, setting) and not entries:
            raise InvalidSetting(
                f"{setting} is set, and {spec.name!r} has no {role} entry.",
                got=list(observation),
                allowed=f"an entry of role {role}",
                fix=f"leave {setting} out, or look for an argument of the environment that adds one",
            )
    for picture in pictures.arrays if settings.convolutions else ():
        if picture.dtype != "uint8" or len(picture.shape) != 3:
            raise InvalidSetting(
                f"{picture.name!r} is not a picture that convolutions can read.",
                got=f"{picture.dtype}{list(picture.shape)}",
                allowed="uint8 (height, width, channels)",
            )
    if not observation.vectors and not settings.convolutions and not (settings.network and pictures):
        raise InvalidSetting(
            f"PPO reads nothing of {spec.name!r}.",
            got=list(observation),
            allowed="proprioception, object or goal entries, or pictures with convolutions",
            fix="set convolutions if there are pictures, for instance to [8, 16, 32, 32]",
        )


def orthogonal(rows: int, columns: int, gain: float, generator: np.random.Generator) -> Floats:
    """Return a matrix with orthonormal rows or columns, whichever are fewer, times `gain` (Saxe et al. 2014)."""
    draws = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(draws)
    q *= np.sign(np.diag(r))  # makes the distribution uniform
    return (gain * (q if rows >= columns else q.T)).astype(np.float32)
