"""Perceptrons: values and hand-written derivatives equal those of plain torch modules and autograd."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from robo_policies.networks.perceptrons import Perceptrons

SIZES = {"values": (5, 32, 16, 1), "several outputs": (5, 16, 24, 3), "one hidden layer": (5, 8, 1)}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=seeded(seed))


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    """The number of threads decides how many members are evaluated together."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def network(members: int, sizes: tuple[int, ...], layer_norm: bool) -> Perceptrons:
    made = Perceptrons(members, sizes, layer_norm, seeded())
    made.vector.uniform_(-0.5, 0.5, generator=seeded(1))  # norms too: as the identity they could be mixed up unseen
    return made


def plain(made: Perceptrons, inputs: torch.Tensor, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns outputs (N, B, out) by torch's own functions, hidden layers in `dtype`, and the vector that they come from."""
    vector = made.vector.clone().requires_grad_()
    outputs, start = [], 0
    arrays = []
    for layer in made.layers:
        for array in (layer.weight, layer.bias, layer.scale, layer.shift):
            arrays.append(None if array is None else vector[start : start + array.numel()].view(array.shape))
            start += 0 if array is None else array.numel()
    layers = [arrays[index : index + 4] for index in range(0, len(arrays), 4)]
    for member in range(made.members):
        hidden = inputs
        for index, layer in enumerate(layers):
            kind = dtype if index < len(layers) - 1 else torch.float32
            hidden = hidden.to(kind)
            weight, bias, scale, shift = (None if array is None else array.to(kind) for array in layer)
            hidden = torch.nn.functional.linear(hidden, weight[member].T, bias[member, 0])
            if scale is not None:
                hidden = torch.nn.functional.layer_norm(hidden, hidden.shape[-1:], scale[member, 0], shift[member, 0])
            hidden = torch.relu(hidden) if index < len(layers) - 1 else hidden
        outputs.append(hidden)
    return torch.stack(outputs), vector


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_values_and_derivatives_equal_those_of_torch(members, layer_norm, sizes, threads):
    made = network(members, sizes, layer_norm)
    for rows, seed in ((20, 2), (7, 3), (20, 4)):  # memory is used again for as many rows
        inputs, by_outputs = random(rows, 5, seed=seed), random(members, rows, sizes[-1], seed=seed + 10)
        values = made.forward(inputs[:, :3].numpy(), inputs[:, 3:].numpy(), keep=True)
        made.forward(random(rows, 5, seed=9).numpy())  # an evaluation that is not kept must not disturb
        inputs.requires_grad_()
        expected, vector = plain(made, inputs)
        by_vector, by_inputs = torch.autograd.grad((expected * by_outputs).sum(), (vector, inputs))
        torch.testing.assert_close(torch.from_numpy(values), expected, rtol=1e-4, atol=1e-5)
        by_columns = made.input_gradient(by_outputs.numpy(), slice(3, 5))
        torch.testing.assert_close(torch.from_numpy(by_columns), by_inputs[:, 3:], rtol=1e-3, atol=1e-4)
        made.backward(by_outputs.numpy())
        torch.testing.assert_close(made.gradient, by_vector, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("layer_norm", [True, False])
def test_some_members_give_what_all_give(layer_norm, threads):
    made, inputs = network(4, (5, 16, 1), layer_norm), random(9, 5, seed=2).numpy()
    np.testing.assert_allclose(made.forward_some([3, 1], inputs), made.forward(inputs)[[3, 1]], rtol=1e-5, atol=1e-6)


def test_layers_start_as_torch_starts_them():
    made = Perceptrons(10, (100, 50, 1), False, seeded())
    with torch.random.fork_rng():
        reference = torch.nn.Linear(100, 5000)
    for ours, theirs in ((made.layers[0].weight, reference.weight), (made.layers[0].bias, reference.bias)):
        assert ours.abs().max() <= 0.1
        assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.1)


def test_norms_start_as_the_identity():
    made = Perceptrons(2, (3, 4, 4, 1), True, seeded())
    for layer in made.layers[:-1]:
        assert layer.scale.eq(1).all() and layer.shift.eq(0).all()
    assert made.layers[-1].scale is None


def test_all_parameters_lie_in_one_vector_in_the_order_of_the_layers():
    sizes = (3, 4, 1)
    made = Perceptrons(2, sizes, False, seeded())
    assert len(made.vector) == 2 * sum(a * b + b for a, b in pairwise(sizes))
    made.vector.copy_(torch.arange(len(made.vector)))
    assert made.layers[0].weight[0].flatten().tolist() == [*range(12)]
    assert made.state_dict()["1.bias"].flatten().tolist() == made.vector[-2:].tolist()


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("layer_norm", [True, False])
def test_bfloat16_errs_about_as_much_as_torch_does_and_keeps_the_last_layer_exact(layer_norm, sizes, threads):
    made = Perceptrons(3, sizes, layer_norm, seeded(), torch.bfloat16)
    made.vector.uniform_(-0.5, 0.5, generator=seeded(1))
    made.refresh()
    inputs, by_outputs = random(256, 5, seed=2), random(3, 256, sizes[-1], seed=3)
    values = made.forward(inputs.numpy(), keep=True)
    made.backward(by_outputs.numpy())
    by_columns = made.input_gradient(by_outputs.numpy(), slice(3, 5))
    assert made.vector.dtype == made.gradient.dtype == torch.float32

    def by_torch(dtype):
        outputs, vector = plain(made, inputs.requires_grad_(), dtype)
        by_vector, by_inputs = torch.autograd.grad((outputs * by_outputs).sum(), (vector, inputs))
        return outputs.detach(), by_vector, by_inputs[:, 3:]

    ours = (torch.from_numpy(values), made.gradient, torch.from_numpy(by_columns))
    for got, theirs, exact in zip(ours, by_torch(torch.bfloat16), by_torch(torch.float32), strict=True):
        allowed = 3.0 if layer_norm else 1.5  # torch normalises, scales and shifts in one step, and rounds once
        assert 0 < (got - exact).norm() < allowed * (theirs - exact).norm()

    made.layers[-1].bias.add_(1e-3)  # would be lost in three digits
    np.testing.assert_allclose(made.forward(inputs.detach().numpy()), values + np.float32(1e-3), rtol=1e-6, atol=1e-6)
