"""Actors and critics of all learners: ensembles of MLPs, or hidden layers that the user provides.

B batch, F features of an observation, A action elements, N members. Layers start as torch.nn.Linear does, uniform in
+-1 / sqrt(inputs), drawn from a generator that is passed in, never from the global one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_policies.networks.settings import Network, accelerates, own_layers

LOG_STD = (-20.0, 2.0)  # limits of the authors' SAC code, as in Stable-Baselines3 and RLPD


class Optimizer(Protocol):
    """Interface of optimisers that train the parameters of one network; `LearnerParts.add` makes one."""

    def minimize(self, loss: Tensor, lr: float | None = None) -> None:
        """Take one gradient step on a scalar loss; `lr`, if given, is the learning rate of this and all later steps."""


class Trainable(nn.Module):
    """Network with its own optimiser, which `LearnerParts.add` sets; base class of actors, critics and temperatures."""

    optimizer: Optimizer | None = None

    def descend(self, loss: Tensor, lr: float | None = None) -> None:
        """Take one gradient step on a scalar loss; only the parameters of this network change.

        Args:
            loss: Scalar.
            lr: Learning rate of this and all later steps; None keeps the present one.

        Raises:
            NonFiniteUpdate: The loss or a gradient is NaN or infinite; the parameters are then as before.
        """
        assert self.optimizer is not None, "LearnerParts.add gives a network its optimiser"
        self.optimizer.minimize(loss, lr)

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but the optimiser: a copy is a target network or acts, and is never trained itself."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}


class EnsembleLinear(nn.Module):
    """Module of N independent linear layers, computed in one call: (N, B, in) -> (N, B, out)."""

    def __init__(self, members: int, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound, generator=generator))

    def forward(self, inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return the outputs (M, B, out) of the M chosen members (all by default) for inputs (M, B, in)."""
        if len(self.weight) == 1:  # products of batches of one take longer to begin
            return torch.addmm(self.bias[0], inputs[0], self.weight[0])[None]
        return torch.baddbmm(self.bias[members], inputs, self.weight[members])


class EnsembleLayerNorm(nn.Module):
    """Module of layer normalisation (Ba et al. 2016) for N members, each with its own scale and shift."""

    def __init__(self, members: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.weight, self.bias = nn.Parameter(torch.ones(members, 1, size)), nn.Parameter(torch.zeros(members, 1, size))

    def forward(self, inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return the outputs (M, B, size) of the M chosen members (all by default) for inputs (M, B, size)."""
        arrays = (inputs, self.weight[members].squeeze(1), self.bias[members].squeeze(1))
        of_members = zip(*(array.unbind() for array in arrays), strict=True)  # the kernel takes one scale and shift
        return torch.stack([functional.layer_norm(values, (self.size,), scale, shift) for values, scale, shift in of_members])


class MLPEnsemble(nn.Module):
    """Module of N independent MLPs of one shape, computed together.

    A hidden layer is linear, LayerNorm (if `layer_norm`), ReLU, dropout (if set). `sizes` are the numbers of units from the
    input to the output. With `precision` "bfloat16" the hidden layers compute in bfloat16, the last layer in float32.
    """

    def __init__(
        self, members: int, sizes: Sequence[int], layer_norm: bool, generator: torch.Generator, precision: str = "float32"
    ) -> None:
        super().__init__()
        self.members, self.sizes, self._precision = members, tuple(sizes), precision
        self.linears = nn.ModuleList(EnsembleLinear(members, *pair, generator) for pair in pairwise(sizes))
        self.norms = nn.ModuleList(EnsembleLayerNorm(members, size) for size in sizes[1:-1] if layer_norm)
        self.dropout = 0.0

    def forward(
        self, *inputs: Tensor, members: Sequence[int] | slice = slice(None), generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the outputs (M, B, out) of the M chosen members.

        Args:
            inputs: One tensor (B, in), or several that are concatenated along the last axis to it.
            members: Numbers of the members that are evaluated, or a slice; all by default.
            generator: Draws the dropped units; None: no dropout.
        """
        joined = torch.cat(inputs, -1) if len(inputs) > 1 else inputs[0]
        is_short = self._precision == "bfloat16"
        with torch.autocast(joined.device.type, torch.bfloat16) if is_short else nullcontext():
            values = joined.expand(len(range(self.members)[members]) if isinstance(members, slice) else len(members), -1, -1)
            for index, linear in enumerate(self.linears[:-1]):
                values = linear(values, members)
                values = torch.relu(self.norms[index](values, members) if self.norms else values)
                if self.dropout and generator is not None:
                    kept = torch.rand(values.shape, generator=generator).to(values.device) >= self.dropout
                    values = values * kept / (1.0 - self.dropout)
        outputs: Tensor = self.linears[-1](values.float(), members)
        return outputs


class OwnLayers(nn.Module):
    """Ensemble of N members whose hidden layers are modules of the user, each followed by a linear output layer."""

    def __init__(self, members: int, layers: Sequence[nn.Module], outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.members, self.hidden = members, nn.ModuleList(layers)
        self.last = EnsembleLinear(members, int(layers[0].size), outputs, generator)  # type: ignore[arg-type]

    def forward(self, *inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return the outputs (M, B, out) of the M chosen members for inputs (B, in), given whole or in parts to concatenate."""
        joined = torch.cat(inputs, -1)
        picked = self.hidden[members] if isinstance(members, slice) else [self.hidden[index] for index in members]
        outputs: Tensor = self.last(torch.stack([layers(joined) for layers in picked]), members)
        return outputs


@dataclass(frozen=True)
class NetworkFactory:
    """Builds the actor and critic networks of a learner from the settings group `network`."""

    settings: Network
    device: torch.device
    generator: torch.Generator

    def actor(self, inputs: int, outputs: int, dropout: float = 0.0) -> nn.Module:
        """Return a network (B, in) -> (1, B, out); `dropout` is the probability that a hidden unit is dropped."""
        return self._network("actor", 1, inputs, outputs, dropout=dropout)

    def critic(self, inputs: int, members: int = 2, *, layer_norm: bool | None = None, outputs: int = 1) -> nn.Module:
        """Return a network (B, in) -> (N, B, out) of N = `members` critics; `layer_norm` None takes that of the settings."""
        layer_norm = self.settings.layer_norm if layer_norm is None else layer_norm
        return self._network("critic", members, inputs, outputs, layer_norm=layer_norm)

    def squashed_gaussian(self) -> Callable[[Tensor, Tensor, tuple[float, float]], tuple[Tensor, Tensor]]:
        """Return the function that makes actions and log densities of a tanh-Gaussian: `squashed_gaussian` of this module.

        If networks are on the CPU it is the faster version in NumPy.
        """
        if self.settings.engine != "reference" and self.device.type == "cpu":
            from robo_policies.networks.accelerated.gaussian import squashed_gaussian as kernel

            return kernel
        return squashed_gaussian

    def _network(
        self, setting: str, members: int, inputs: int, outputs: int, *, layer_norm: bool = False, dropout: float = 0.0
    ) -> nn.Module:
        settings, own = self.settings, getattr(self.settings, setting)
        is_accelerated = accelerates(settings, self.device, None if own is None else setting, settings.precision, dropout)
        if own is not None:
            make = partial(own_layers, f"network.{setting}", own, inputs, settings.hidden)
            layers = [make_seeded(make, self.generator) for _ in range(members)]
            return OwnLayers(members, layers, outputs, self.generator)
        made = MLPEnsemble(members, (inputs, *settings.hidden, outputs), layer_norm, self.generator, settings.precision)
        made.dropout = dropout
        if is_accelerated:
            from robo_policies.networks.accelerated.mlp import AcceleratedMLP

            return AcceleratedMLP(made)
        return made


def make_seeded(make: Any, generator: torch.Generator) -> Any:
    """Return `make()`, called with PyTorch's global random state seeded from a generator.

    The old state is restored afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(1 << 62, (), generator=generator)))
        return make()


class Critics(Trainable):
    """Ensemble of N = `members` value functions: Q_i(s, a), or V_i(s) if `forward` gets no actions."""

    __call__: Callable[..., Tensor]

    def __init__(self, factory: NetworkFactory, inputs: int, members: int = 2, *, layer_norm: bool | None = None) -> None:
        super().__init__()
        self.members = members
        self.layers = factory.critic(inputs, members, layer_norm=layer_norm)

    def forward(self, *inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return the values (M, B) of the M chosen members (all by default) for features (B, F) and, for Q, actions (B, A)."""
        values: Tensor = self.layers(*inputs, members=members)
        return values.squeeze(-1)


class TanhGaussianActor(Trainable):
    """Actor of soft actor-critic: a = tanh(u) with u ~ Normal(mean(s), std(s)).

    Its methods take features (B, F), or (B, F + P) of which it reads the first F; the others are for critics.
    """

    def __init__(self, factory: NetworkFactory, inputs: int, actions: int) -> None:
        super().__init__()
        self.layers, self._inputs = factory.actor(inputs, 2 * actions), inputs
        self._squashed = factory.squashed_gaussian()

    def sample(self, observations: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random actions (B, A) in [-1, 1] and their log densities (B,), both differentiable."""
        outputs = self._outputs(observations)
        return self._squashed(outputs, normal(outputs.chunk(2, -1)[0], generator), LOG_STD)

    def mode(self, observations: Tensor) -> Tensor:
        """Return the deterministic actions tanh(mean) (B, A)."""
        return torch.tanh(self._outputs(observations).chunk(2, -1)[0])

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return random actions (B, A) in [-1, 1], without their densities."""
        mean, log_std = self._outputs(observations).chunk(2, -1)
        return torch.tanh(mean + torch.exp(log_std.clamp(*LOG_STD)) * normal(mean, generator))

    def _outputs(self, observations: Tensor) -> Tensor:
        outputs: Tensor = self.layers(observations[:, : self._inputs]).squeeze(0)
        return outputs


def squashed_gaussian(outputs: Tensor, noise: Tensor, limits: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Return actions of a tanh-Gaussian and their log densities.

    Args:
        outputs: (B, 2 A), means and logarithms of the standard deviations.
        noise: (B, A), standard normal.
        limits: Smallest and largest logarithm of a standard deviation.

    Returns:
        Actions tanh(mean + std noise) (B, A), and their log densities (B,).
    """
    mean, log_std = outputs.chunk(2, -1)
    log_std = log_std.clamp(*limits)
    unbounded = mean + torch.exp(log_std) * noise
    # log(1 - tanh(u)^2) in a form that stays finite if tanh(u) rounds to 1
    squash = 2.0 * (math.log(2.0) - unbounded - functional.softplus(-2.0 * unbounded))
    density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - squash
    return torch.tanh(unbounded), density.sum(-1)


class Temperature(Trainable):
    """The temperature of SAC, weight alpha of the entropy, trained so that the entropy [nat] approaches `target_entropy`.

    The parameter is log alpha, which begins at log `initial`.
    """

    def __init__(self, initial: float, target_entropy: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([initial]).log())
        self.target_entropy = target_entropy

    def alpha(self) -> Tensor:
        """Return alpha (1,), detached: only `loss` has a gradient for it."""
        return self.log_alpha.detach().exp()

    def loss(self, log_densities: Tensor) -> Tensor:
        """Return the loss of alpha, a scalar, for log densities (B,) of the policy's actions (Haarnoja et al. 2018, eq. 18).

        Differs from eq. 18: log alpha stands in place of alpha, as in the authors' code and in Stable-Baselines3, because the
        step size then does not vanish with alpha.
        """
        return -(self.log_alpha * (log_densities.detach().mean() + self.target_entropy)).squeeze()


def normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return standard normal noise with shape and device of `like`, drawn on the CPU so that all devices get the same."""
    return torch.randn(like.shape, generator=generator).to(like.device, non_blocking=True)
