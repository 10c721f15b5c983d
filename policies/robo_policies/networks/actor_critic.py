"""Actors and critics of all learners, over ensembles of MLPs or hidden layers of one's own.

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
    """Takes steps down the gradient of losses, by the parameters it was made for."""

    def minimize(self, loss: Tensor, lr: float | None = None) -> None:
        """Take one step, from now on with another learning rate if given one."""


class Trainable(nn.Module):
    """A network that a learner trains: `LearnerParts.add` gives it its optimiser."""

    optimizer: Optimizer | None = None

    def descend(self, loss: Tensor, lr: float | None = None) -> None:
        """Take one step down the gradient of a loss, by this network only; raises NonFiniteUpdate, keeping the parameters."""
        assert self.optimizer is not None, "LearnerParts.add gives a network its optimiser"
        self.optimizer.minimize(loss, lr)

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies share: they are targets or act, so they have no optimiser."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}


class EnsembleLinear(nn.Module):
    """N linear layers side by side: (N, B, in) -> (N, B, out)."""

    def __init__(self, members: int, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound, generator=generator))

    def forward(self, inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return the outputs of some members."""
        if len(self.weight) == 1:  # products of batches of one take longer to begin
            return torch.addmm(self.bias[0], inputs[0], self.weight[0])[None]
        return torch.baddbmm(self.bias[members], inputs, self.weight[members])


class EnsembleLayerNorm(nn.Module):
    """Layer normalisation (Ba et al. 2016) with scale and shift of each member's own."""

    def __init__(self, members: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.weight, self.bias = nn.Parameter(torch.ones(members, 1, size)), nn.Parameter(torch.zeros(members, 1, size))

    def forward(self, inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return the outputs (N, B, size) of some members."""
        arrays = (inputs, self.weight[members].squeeze(1), self.bias[members].squeeze(1))
        of_members = zip(*(array.unbind() for array in arrays), strict=True)  # the kernel takes one scale and shift
        return torch.stack([functional.layer_norm(values, (self.size,), scale, shift) for values, scale, shift in of_members])


class MLPEnsemble(nn.Module):
    """N MLPs of one shape: linear layers with ReLU between, optionally LayerNorm before and dropout after it."""

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
        """Return (N, B, out) of some members for inputs (B, in), given in parts side by side; drops units with a generator."""
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
    """Hidden layers of one's own for each of N members, and a linear layer after them."""

    def __init__(self, members: int, layers: Sequence[nn.Module], outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.members, self.hidden = members, nn.ModuleList(layers)
        self.last = EnsembleLinear(members, int(layers[0].size), outputs, generator)  # type: ignore[arg-type]

    def forward(self, *inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return (N, B, out) of some members for inputs (B, in), given in parts side by side."""
        joined = torch.cat(inputs, -1)
        picked = self.hidden[members] if isinstance(members, slice) else [self.hidden[index] for index in members]
        outputs: Tensor = self.last(torch.stack([layers(joined) for layers in picked]), members)
        return outputs


@dataclass(frozen=True)
class NetworkFactory:
    """Factory of networks by the group `network` of a learner's settings."""

    settings: Network
    device: torch.device
    generator: torch.Generator

    def actor(self, inputs: int, outputs: int, dropout: float = 0.0) -> nn.Module:
        """Return a network (B, in) -> (1, B, out)."""
        return self._network("actor", 1, inputs, outputs, dropout=dropout)

    def critic(self, inputs: int, members: int = 2, *, layer_norm: bool | None = None, outputs: int = 1) -> nn.Module:
        """Return a network (B, in) -> (N, B, out); layer_norm: by default that of the settings."""
        layer_norm = self.settings.layer_norm if layer_norm is None else layer_norm
        return self._network("critic", members, inputs, outputs, layer_norm=layer_norm)

    def squashed_gaussian(self) -> Callable[[Tensor, Tensor, tuple[float, float]], tuple[Tensor, Tensor]]:
        """Return the function of that name, or its kernel."""
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
    """Return the result of `make` with PyTorch's global random state drawn from a generator, and restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(1 << 62, (), generator=generator)))
        return make()


class Critics(Trainable):
    """N functions Q_i(s, a), or V_i(s)."""

    __call__: Callable[..., Tensor]

    def __init__(self, factory: NetworkFactory, inputs: int, members: int = 2, *, layer_norm: bool | None = None) -> None:
        super().__init__()
        self.members = members
        self.layers = factory.critic(inputs, members, layer_norm=layer_norm)

    def forward(self, *inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return (N, B) of some members for features (B, F) and, unless they are V, actions (B, A)."""
        values: Tensor = self.layers(*inputs, members=members)
        return values.squeeze(-1)


class TanhGaussianActor(Trainable):
    """a = tanh(u), u ~ Normal(mean(s), std(s)): the policy of soft actor-critic; features past the first F are for critics."""

    def __init__(self, factory: NetworkFactory, inputs: int, actions: int) -> None:
        super().__init__()
        self.layers, self._inputs = factory.actor(inputs, 2 * actions), inputs
        self._squashed = factory.squashed_gaussian()

    def sample(self, observations: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return actions (B, A), through which gradients flow, and log pi (B,)."""
        outputs = self._outputs(observations)
        return self._squashed(outputs, normal(outputs.chunk(2, -1)[0], generator), LOG_STD)

    def mode(self, observations: Tensor) -> Tensor:
        """Return tanh of the mean, (B, A)."""
        return torch.tanh(self._outputs(observations).chunk(2, -1)[0])

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return actions (B, A) without their densities."""
        mean, log_std = self._outputs(observations).chunk(2, -1)
        return torch.tanh(mean + torch.exp(log_std.clamp(*LOG_STD)) * normal(mean, generator))

    def _outputs(self, observations: Tensor) -> Tensor:
        outputs: Tensor = self.layers(observations[:, : self._inputs]).squeeze(0)
        return outputs


def squashed_gaussian(outputs: Tensor, noise: Tensor, limits: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Return tanh(mean + std noise) (B, A) and its log density (B,), mean and log std being the halves of outputs (B, 2 A)."""
    mean, log_std = outputs.chunk(2, -1)
    log_std = log_std.clamp(*limits)
    unbounded = mean + torch.exp(log_std) * noise
    # log(1 - tanh(u)^2) in a form that stays finite if tanh(u) rounds to 1
    squash = 2.0 * (math.log(2.0) - unbounded - functional.softplus(-2.0 * unbounded))
    density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - squash
    return torch.tanh(unbounded), density.sum(-1)


class Temperature(Trainable):
    """The weight alpha of the entropy, by its logarithm, tuned so that the policy's entropy approaches a target."""

    def __init__(self, initial: float, target_entropy: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([initial]).log())
        self.target_entropy = target_entropy

    def alpha(self) -> Tensor:
        """Return alpha (1,), a constant to all losses but its own."""
        return self.log_alpha.detach().exp()

    def loss(self, log_densities: Tensor) -> Tensor:
        """J(alpha), Haarnoja et al. 2018, eq. 18, for the policy's own actions.

        Differs from eq. 18: log alpha stands in place of alpha, as in the authors' code and in Stable-Baselines3, because the
        step size then does not vanish with alpha.
        """
        return -(self.log_alpha * (log_densities.detach().mean() + self.target_entropy)).squeeze()


def normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return standard normal noise of the same shape, drawn on the CPU so that it is the same on every device."""
    return torch.randn(like.shape, generator=generator).to(like.device, non_blocking=True)
