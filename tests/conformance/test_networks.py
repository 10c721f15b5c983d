"""Every encoder and every kind of hidden layers of ours keeps every rule, and each rule can fail."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from factories import axes, make_spec, picture_spec
from robo_policies.networks.accelerated.mlp import AcceleratedMLP
from robo_policies.networks.actor_critic import MLPEnsemble
from robo_policies.networks.conformance import (
    NETWORK_CHECKS,
    check_encoder,
    check_layers,
    features_of,
    network_moves_with_to,
    observations_of,
)
from robo_policies.networks.convolutions import ConvEncoder
from robo_policies.networks.image_encoder import ImageEncoder
from robo_policies.networks.policy_value import TanhMLP
from robo_rl.errors import ConformanceFailure
from robo_rl.spec.environment import ArraySpec

ARM = make_spec(
    "arm",
    ArraySpec("state", (3, 2)),
    ArraySpec("grid", (2,), "uint8", 0, 10),
    picture_spec("front", (9, 8, 3)),
    picture_spec("wrist", (8, 8, 1)),
    ArraySpec("mass", (1,), role="privileged"),
    action=axes("x"),
)
CONVOLUTIONS = SimpleNamespace(convolutions=(4, 5), frozen_convolutions=None)


class One(nn.Module):
    """The only member of an ensemble, as hidden layers."""

    def __init__(self, ensemble: nn.Module, size: int) -> None:
        super().__init__()
        self.ensemble, self.size = ensemble, size

    def forward(self, inputs):
        return self.ensemble(inputs).squeeze(0)


def mlp(*, layer_norm: bool = False) -> MLPEnsemble:
    seed = int(torch.randint(1 << 62, ()))
    return MLPEnsemble(1, (5, 8, 6), layer_norm, torch.Generator().manual_seed(seed))


def tanh_mlp() -> TanhMLP:
    made, random = TanhMLP(5), np.random.default_rng(0)
    for units in (8, 6):
        made.append(units, random)
    return made


OURS = {
    "image-encoder": (lambda: ImageEncoder(ARM, CONVOLUTIONS), observations_of(ARM)),
    "conv-encoder": (lambda: ConvEncoder(ARM, (4, 5)), observations_of(ARM)),
    "ppo-mlp": (tanh_mlp, features_of(5)),
    "mlp": (lambda: One(mlp(), 6), features_of(5)),
    "mlp-layer-norm": (lambda: One(mlp(layer_norm=True), 6), features_of(5)),
    "mlp-accelerated": (lambda: One(AcceleratedMLP(mlp()), 6), features_of(5)),
}
OF_CPU = ("mlp-accelerated", network_moves_with_to.__name__)


@pytest.mark.parametrize("check", NETWORK_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", OURS)
def test_network_keeps_the_rule(name, check):
    if (name, check.__name__) != OF_CPU:  # its kernels are for a CPU, and never chosen for another device
        check(*OURS[name])


class Fine(nn.Module):
    """Keeps every rule; the broken ones below change one thing."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.size = hidden[-1]
        self.layer = nn.Linear(inputs, self.size)
        self.more()

    def more(self):
        """Add what a broken network needs."""

    def forward(self, x):
        return torch.tanh(self.layer(x))


class WrongSize(Fine):
    def more(self):
        self.size += 1


class NoSize(Fine):
    def more(self):
        del self.size


class OneRowSqueezed(Fine):
    def forward(self, x):
        return super().forward(x).squeeze(0)


class Double(Fine):
    def forward(self, x):
        return super().forward(x).double()


class Infinite(Fine):
    def forward(self, x):
        return super().forward(x) / 0.0


class OverTheBatch(Fine):
    def forward(self, x):
        features = super().forward(x)
        return features - features.mean(0)


class Drops(Fine):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5)


class Scales(Fine):
    def forward(self, x):
        return super().forward(x.div_(2.0))


class Unused(Fine):
    def more(self):
        self.head = nn.Linear(2, 2)


class Counts(Fine):
    def more(self):
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class PlainTensor(Fine):
    def more(self):
        self.scale = torch.rand(())

    def forward(self, x):
        return super().forward(x) * self.scale


class OfTheDevice(Fine):
    def more(self):
        self.scale = torch.full((1,), 2.0)

    def forward(self, x):
        return super().forward(x) * self.scale


class Shares(Fine):
    def __deepcopy__(self, memo):
        return self


class OtherGenerator(Fine):
    def more(self):
        self.layer.bias.data.uniform_(generator=OTHER)


OTHER = torch.Generator()


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (WrongSize, "another shape or type"),
        (NoSize, "`size` is no number"),
        (OneRowSqueezed, "the output of 1 rows has another shape"),
        (Double, "another shape or type"),
        (Infinite, "not finite"),
        (OverTheBatch, "depend on the other rows"),
        (Drops, "the same rows give other features"),
        (Scales, "the inputs are changed"),
        (Unused, r"does not depend on parameters(.|\n)*head.weight"),
        (Counts, "buffers, which target copies do not follow"),
        (PlainTensor, "state_dict does not hold"),
        (Shares, "shares parameters"),
        (OtherGenerator, "the seed does not determine"),
        (OfTheDevice, "does not compute on another device"),
    ],
)
def test_broken_network_is_found(broken, words):
    check_layers(Fine, 5, (8,))
    with pytest.raises(ConformanceFailure, match=words):
        check_layers(broken, 5, (8,))


class AddsAnEntry(ImageEncoder):
    def forward(self, observations):
        observations["seen"] = observations["state"]
        return super().forward(observations)


def test_encoder_that_adds_an_entry_is_found():
    with pytest.raises(ConformanceFailure, match="entries of the inputs are added"):
        check_encoder(lambda spec: AddsAnEntry(spec, CONVOLUTIONS), ARM)
