"""Checks that every encoder and every class of hidden layers must pass, built in or third party.

    from robo_policies.networks.conformance import check_encoder, check_layers
    check_encoder(MyEncoder, spec)                  # raises ConformanceFailure
    check_layers(MyLayers, inputs=17, hidden=(256, 256))

Networks are checked in training mode, in which learners also act with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, SupportsIndex

import torch
from torch import Tensor, nn

from robo_rl.conformance.rules import Rule
from robo_rl.spec.environment import EnvironmentSpec

Inputs = Tensor | Mapping[str, Tensor]
MakeNetwork = Callable[[], nn.Module]
MakeInputs = Callable[[int], Inputs]
"""Function from a number of rows to random inputs with this number of rows; each call draws new ones."""
NetworkCheck = Callable[[MakeNetwork, MakeInputs], None]

_ROWS = (1, 7)


class EncoderNetwork(Protocol):
    """Interface of an nn.Module that replaces the encoder of a learner; the setting `network.encoder` names its class.

    It is built as `MyEncoder(spec)`, with PyTorch's random state seeded from the learner's seed. It gets vectors as float32 (B,
    ...), standardised if the learner does that, and pictures as uint8 (B, height, width, channels).
    """

    size: int
    """F, number of features of one observation."""

    def __call__(self, observations: dict[str, Tensor]) -> Tensor:
        """Return features (B, F) of the named entries of an observation, privileged ones excluded."""


class HiddenLayers(Protocol):
    """Interface of an nn.Module that replaces the hidden layers of an actor or a critic.

    The setting `network.actor` or `network.critic` names its class. It is built as `MyLayers(inputs, hidden)`, once for each
    member of an ensemble; a linear layer follows it.
    """

    size: int
    """H, number of outputs of one row."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, H) of inputs (B, `inputs`)."""


def check_encoder(make: Callable[[EnvironmentSpec], nn.Module], spec: EnvironmentSpec) -> None:
    """Run every check of this module on an encoder that `make(spec)` builds; raises ConformanceFailure."""
    _check(lambda: make(spec), observations_of(spec))


def check_layers(make: Callable[[int, tuple[int, ...]], nn.Module], inputs: int, hidden: Sequence[int]) -> None:
    """Run every check of this module on hidden layers that `make(inputs, hidden)` builds; raises ConformanceFailure."""
    _check(lambda: make(inputs, tuple(hidden)), features_of(inputs))


def observations_of(spec: EnvironmentSpec) -> MakeInputs:
    """Return a function from a number of rows B to random vectors and pictures (B, ...) by name, nothing privileged."""
    generator = torch.Generator().manual_seed(0)
    vectors, pictures = spec.observation.vectors, spec.observation.subset("image")
    return lambda rows: (
        {name: torch.randn(rows, *array.shape, generator=generator) for name, array in vectors.items()}
        | {
            name: torch.randint(256, (rows, *array.shape), generator=generator).to(getattr(torch, array.dtype))
            for name, array in pictures.items()
        }
    )


def features_of(inputs: int) -> MakeInputs:
    """Return a function from a number of rows B to random features (B, inputs)."""
    generator = torch.Generator().manual_seed(0)
    return lambda rows: torch.randn(rows, inputs, generator=generator)


def features_have_the_size(make: MakeNetwork, inputs: MakeInputs) -> None:
    """Check that outputs are finite float32 (B, `size`), for one row and for several; raises ConformanceFailure."""
    network, require = _made(make, "features have the size")
    size = getattr(network, "size", None)
    require(
        isinstance(size, SupportsIndex) and int(size) >= 1, "`size` is no number of features", got=size, allowed="int from 1"
    )
    for rows in _ROWS:
        features = network(inputs(rows))
        require(isinstance(features, Tensor), "the output is no tensor", got=type(features).__name__)
        found, right = (features.dtype, tuple(features.shape)), (torch.float32, (rows, size))
        require(found == right, f"the output of {rows} rows has another shape or type", got=found, allowed=right)
        require(bool(features.isfinite().all()), f"the output of {rows} rows is not finite")


def rows_are_independent(make: MakeNetwork, inputs: MakeInputs) -> None:
    """Check that the features of a row depend on this row alone, and are equal at every call; raises ConformanceFailure."""
    network, require = _made(make, "rows are independent")
    rows = inputs(7)
    together = network(rows)
    alone = torch.cat([network(_row(rows, row)) for row in range(7)])
    fix = "no dropout, and no normalisation over the batch: learners act in training mode"
    require(_close(network(rows), together), "the same rows give other features", allowed=fix)
    require(_close(alone, together), "features depend on the other rows", allowed=fix)


def inputs_are_kept(make: MakeNetwork, inputs: MakeInputs) -> None:
    """Check that a forward pass leaves its inputs unchanged; raises ConformanceFailure."""
    network, require = _made(make, "inputs are kept")
    rows = inputs(7)
    kept = copy.deepcopy(_named(rows))
    network(rows)
    found = _named(rows)
    require(found.keys() == kept.keys(), "entries of the inputs are added or removed", got=[*found], allowed=[*kept])
    changed = [name for name, value in kept.items() if not torch.equal(found[name], value)]
    require(not changed, "the inputs are changed", got=changed)


def gradients_reach_all_parameters(make: MakeNetwork, inputs: MakeInputs) -> None:
    """Check that each trained parameter has a finite gradient and that a forward pass changes no buffer.

    Target networks follow the parameters alone, so a buffer that changes would differ in them. Raises ConformanceFailure.
    """
    network, require = _made(make, "gradients reach all parameters")
    buffers = {name: value.clone() for name, value in network.named_buffers()}
    trained = {name: value for name, value in network.named_parameters() if value.requires_grad}
    loss = network(inputs(7)).square().sum()
    if trained:
        found = torch.autograd.grad(loss, [*trained.values()], allow_unused=True)
        missing = [name for name, gradient in zip(trained, found, strict=True) if gradient is None]
        require(not missing, "the output does not depend on parameters", got=missing, allowed="remove or freeze them")
        bad = [name for name, gradient in zip(trained, found, strict=True) if not bool(gradient.isfinite().all())]
        require(not bad, "gradients are not finite", got=bad)
    changed = [name for name, value in network.named_buffers() if not torch.equal(value, buffers[name])]
    require(not changed, "a forward pass changes buffers, which target copies do not follow", got=changed)


def copies_are_equal(make: MakeNetwork, inputs: MakeInputs) -> None:
    """Check that copies give the same features; raises ConformanceFailure.

    Copies are a deep copy, which must not share parameters with the original, and a new instance with its state_dict.
    """
    network, require = _made(make, "copies are equal")
    rows = inputs(7)
    features = network(rows).detach()
    other = make()
    other.load_state_dict(network.state_dict())
    require(torch.equal(other(rows), features), "the state_dict does not hold all that the features depend on")
    twin = copy.deepcopy(network)
    require(torch.equal(twin(rows), features), "a deep copy gives other features")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    require(torch.equal(twin(rows), features), "a deep copy shares parameters")


def seed_determines_parameters(make: MakeNetwork, inputs: MakeInputs) -> None:
    """Check that PyTorch's global seed determines the initial parameters and a forward pass draws no random number.

    Raises ConformanceFailure.
    """
    _, require = _made(make, "seed determines parameters")
    with torch.random.fork_rng(devices=[]):
        networks = []
        for _ in range(2):
            torch.manual_seed(3)
            networks.append(make())
        before = torch.random.get_rng_state()
        networks[0](inputs(7))
        require(torch.equal(torch.random.get_rng_state(), before), "a forward pass draws from the global generator")
    pairs = zip(networks[0].state_dict().items(), networks[1].state_dict().values(), strict=True)
    different = [name for (name, one), other in pairs if not torch.equal(one, other)]
    require(not different, "the seed does not determine the first parameters", got=different)


def network_moves_with_to(make: MakeNetwork, inputs: MakeInputs) -> None:
    """Check that `network.to(device)` moves every tensor that the features depend on; raises ConformanceFailure.

    The device is PyTorch's meta device, which has no data, so that the check needs no GPU.
    """
    network, require = _made(make, "network moves with to")
    rows = inputs(7)
    try:
        features = network.to("meta")(_each(rows, lambda value: value.to("meta")))
    except (RuntimeError, NotImplementedError) as error:
        require(False, "it does not compute on another device: a tensor is no parameter or buffer, or is read", got=error)
    else:
        require(features.device.type == "meta", "its features stay on the CPU", got=features.device)


NETWORK_CHECKS: tuple[NetworkCheck, ...] = (
    features_have_the_size,
    inputs_are_kept,
    rows_are_independent,
    gradients_reach_all_parameters,
    copies_are_equal,
    seed_determines_parameters,
    network_moves_with_to,
)


def _check(make: MakeNetwork, inputs: MakeInputs) -> None:
    for check in NETWORK_CHECKS:
        check(make, inputs)


def _made(make: MakeNetwork, rule: str) -> tuple[nn.Module, Rule]:
    network = make()
    require = Rule(type(network).__name__, rule)
    require(isinstance(network, nn.Module), "it is no nn.Module")
    return network, require


def _each(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    return change(inputs) if isinstance(inputs, Tensor) else {name: change(value) for name, value in inputs.items()}


def _row(inputs: Inputs, row: int) -> Inputs:
    return _each(inputs, lambda value: value[row : row + 1])


def _named(inputs: Inputs) -> dict[str, Tensor]:
    return {"features": inputs} if isinstance(inputs, Tensor) else dict(inputs)


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5)  # products of other sizes are summed in another order
