"""Multi-layer perceptrons with hand-written derivatives: the hot path of SAC and RLPD.

At 256 rows and 256 units a matrix product takes 0.3 ms on one core, and what seems free beside it is not: recording and
replaying a graph, cold memory, an optimiser call for each array. Therefore
- the parameters of all members are one vector, and so are their gradients: Adam, targets and checks are one call each;
- members are evaluated in blocks: one product serves all members of a block and keeps every thread busy, while their
  activations still fit into the caches, where the next layer finds them;
- every array is allocated once for a number of rows, and every view of it made once.

Products may be computed in bfloat16, which processors made for it do several times as fast: parameters are then rounded for the
hidden layers, while the last layer, the parameters that Adam changes and all gradients it is given stay float32.

Numbers go in and out as numpy arrays: a small operation takes a fifth of the time there that it takes in torch.
N members, n of them in a block, B rows; parameters are laid out [N, in, out].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robo_policies.networks.layer_norm import LayerNormReLU
from robo_rl.types import StateDict

Floats = npt.NDArray[np.float32]
Precision = Literal["float32", "bfloat16"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_through_relu = torch.ops.aten.threshold_backward.grad_input  # by its name: finding it takes longer than computing it

BLOCK = 2  # members of a block, or as many as there are threads: the activations of more do not fit into a core's cache


@dataclass(frozen=True)
class Layer:
    """One layer of some members, as views of a vector."""

    weight: Tensor
    """(n, in, out)"""
    bias: Tensor
    """(n, 1, out), and so are scale and shift"""
    scale: Tensor | None = None
    """None where the layer is not normalised."""
    shift: Tensor | None = None

    def of(self, members: slice) -> Layer:
        """Returns the same layer of some of the members."""
        normalized = () if self.scale is None or self.shift is None else (self.scale[members], self.shift[members])
        return Layer(self.weight[members], self.bias[members], *normalized)

    def single(self) -> Layer:
        """Returns the layer of the only member, as matrices (in, out) and (1, out)."""
        normalized = () if self.scale is None or self.shift is None else (self.scale[0], self.shift[0])
        return Layer(self.weight[0], self.bias[0], *normalized)


class Perceptrons:
    """N perceptrons of one shape: linear layers with ReLU, and LayerNorm if asked for, between them."""

    def __init__(
        self,
        members: int,
        sizes: Sequence[int],
        layer_norm: bool,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.members = members
        shapes = _shapes(members, sizes, layer_norm)
        length = sum(math.prod(shape) for shape in shapes.values())
        self.vector, self.gradient = torch.zeros(length), torch.zeros(length)
        """All parameters, one after the other, and the derivative that `backward` writes."""
        self._arrays = _views(self.vector, shapes)
        self.layers, self._gradients = _layers(self._arrays), _layers(_views(self.gradient, shapes))
        _initialize(self.layers, generator)
        self._rounded = None if dtype == torch.float32 else Rounded(self.vector, self.gradient, shapes, dtype)
        self.refresh()
        step = max(BLOCK, torch.get_num_threads())
        self._blocks = [slice(start, min(start + step, members)) for start in range(0, members, step)]
        self._passes: dict[tuple[int, bool], list[Pass]] = {}
        self._single: dict[tuple[int, int], Pass] = {}
        self._kept: list[Pass] = []

    def refresh(self) -> None:
        """Takes note that `vector` has changed."""
        if self._rounded is not None:
            self._rounded.vector.copy_(self.vector)

    def forward(self, *inputs: Floats, keep: bool = False) -> Floats:
        """Returns outputs (N, B, out) for inputs (B, in), given in parts side by side, that all members share.

        With `keep` the activations are kept for `backward` and `input_gradient`, until the next call with `keep`.
        """
        passes = self._of_rows(len(inputs[0]), keep)
        np.concatenate(inputs, axis=1, out=passes[0].inputs)
        for one in passes:
            one.forward()
        if keep:
            self._kept = passes
        return np.concatenate([one.outputs for one in passes])

    def forward_some(self, members: Sequence[int], *inputs: Floats) -> Floats:
        """Returns the outputs (M, B, out) of some members only."""
        rows = len(inputs[0])
        outputs = []
        for member in members:
            if (rows, member) not in self._single:
                self._single[rows, member] = self._pass(slice(member, member + 1), rows, Memory(), Memory())
            one = self._single[rows, member]
            np.concatenate(inputs, axis=1, out=one.inputs)
            outputs.append(one.forward())
        return np.concatenate(outputs)

    def backward(self, by_outputs: Floats) -> None:
        """Writes into `gradient` the derivative of something by the parameters, given that by the kept outputs (N, B, out)."""
        for members, one in zip(reversed(self._blocks), reversed(self._kept), strict=True):  # the last is still in the caches
            one.backward(by_outputs[members], trained=True)
        if self._rounded is not None:
            last = self._rounded.last
            self.gradient[:last] = self._rounded.gradient[:last]

    def input_gradient(self, by_outputs: Floats, columns: slice) -> Floats:
        """Returns the derivative (B, columns) by some columns of the inputs, given that by the kept outputs."""
        total = np.zeros((by_outputs.shape[1], columns.stop - columns.start), np.float32)
        for members, one in zip(reversed(self._blocks), reversed(self._kept), strict=True):
            by_sums = one.backward(by_outputs[members], trained=False)
            total += one.by_inputs(by_sums, columns).sum(0)
        return total

    def state_dict(self) -> StateDict:
        """Returns a copy of every array by its name."""
        return {name: array.clone() for name, array in self._arrays.items()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        for name, array in self._arrays.items():
            array.copy_(torch.as_tensor(state[name]))
        self.refresh()

    def _of_rows(self, rows: int, keep: bool) -> list[Pass]:
        if (rows, keep) not in self._passes:
            shared = Memory()
            blocks = [self._pass(part, rows, Memory() if keep else shared, shared) for part in self._blocks]
            self._passes[rows, keep] = blocks
        return self._passes[rows, keep]

    def _pass(self, members: slice, rows: int, kept: Memory, shared: Memory) -> Pass:
        computed = (self.layers, self._gradients)
        if self._rounded is not None:  # all layers but the last
            computed = ([*self._rounded.layers, self.layers[-1]], [*self._rounded.gradients, self._gradients[-1]])
        parts = ([layer.of(members) for layer in layers] for layers in computed)
        return Pass(*parts, rows, kept, shared)


class Rounded:
    """The parameters of the hidden layers in a shorter type, and the derivatives that are computed in it."""

    def __init__(self, vector: Tensor, gradient: Tensor, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> None:
        self.vector, self.gradient = vector.to(dtype), gradient.to(dtype)
        self.layers, self.gradients = (_layers(_views(rounded, shapes))[:-1] for rounded in (self.vector, self.gradient))
        self.last = len(vector) - sum(math.prod(shape) for shape in [*shapes.values()][-2:])
        """Where the last layer's weight and bias begin, which stay as they are."""


class Memory:
    """Arrays by name: what asks for the same name uses the same memory, which is then still in the caches."""

    def __init__(self) -> None:
        self._arrays: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Returns the array of that name, and of that shape and type."""
        if name not in self._arrays:
            self._arrays[name] = torch.zeros(math.prod(shape), dtype=dtype)
        return self._arrays[name][: math.prod(shape)].view(*shape)


class Pass:
    """The evaluation of a block of members at a number of rows, and its derivative.

    A single member is computed with plain matrices, because products of batches of one take longer to begin.
    """

    def __init__(self, layers: list[Layer], gradients: list[Layer], rows: int, kept: Memory, shared: Memory) -> None:
        members, width, _ = layers[0].weight.shape
        dtype = layers[0].weight.dtype
        self._given = shared("given", (rows, width), torch.float32)
        self.inputs: Floats = self._given.numpy()
        self._inputs = inputs = self._given if dtype == torch.float32 else shared("inputs", (rows, width), dtype)
        if members == 1:
            layers, gradients, batch = [x.single() for x in layers], [x.single() for x in gradients], ()
        else:
            inputs, batch = inputs.expand(members, rows, width), (members,)
        self._hidden: list[HiddenPass] = []
        for index, (layer, gradient) in enumerate(zip(layers[:-1], gradients[:-1], strict=True)):
            shape = (*batch, rows, layer.weight.shape[-1])
            sums = kept(f"sums {index}", shape, dtype)
            after = sums if layer.scale is None else kept(f"activations {index}", shape, dtype)
            derivative = shared(f"derivative {index}", shape, dtype)
            self._hidden.append(HiddenPass(layer, gradient, inputs, sums, after, derivative))
            inputs = after
        outputs = torch.zeros(*batch, rows, layers[-1].weight.shape[-1])
        exact = inputs if dtype == torch.float32 else kept("exact", inputs.shape, torch.float32)
        self._activations, self._exact = inputs, exact
        self._last = OutputPass(layers[-1], gradients[-1], exact, outputs)
        self.outputs: Floats = outputs.numpy().reshape(members, rows, -1)
        self._first = layers[0].weight
        self._product = torch.mm if members == 1 else torch.bmm

    def forward(self) -> Floats:
        """Returns the outputs (n, B, out) for what is in `inputs`."""
        if self._inputs is not self._given:
            self._inputs.copy_(self._given)
        for layer in self._hidden:
            layer.forward()
        if self._exact is not self._activations:
            self._exact.copy_(self._activations)
        self._last.forward()
        return self.outputs

    def backward(self, by_outputs: Floats, *, trained: bool) -> Tensor:
        """Returns the derivative by the first layer's sums, from that (n, B, out) by the outputs.

        Writes that by the parameters, where they are trained.
        """
        self._last.backward(by_outputs, self._hidden[-1].derivative, trained)
        for index in reversed(range(len(self._hidden))):
            by_sums = self._hidden[index].backward(trained)
            if index:
                self._product(by_sums, self._hidden[index].weight_transposed, out=self._hidden[index - 1].derivative)
        return by_sums

    def by_inputs(self, by_sums: Tensor, columns: slice) -> Floats:
        """Returns the derivative (n, B, columns) by some columns of the inputs."""
        array: Floats = self._product(by_sums, self._first[..., columns, :].mT).float().numpy()
        return array.reshape(*self.outputs.shape[:2], -1)


class HiddenPass:
    """A hidden layer in a pass."""

    def __init__(self, layer: Layer, gradient: Layer, before: Tensor, sums: Tensor, after: Tensor, derivative: Tensor) -> None:
        self.derivative = derivative
        """By what the layer passes on; filled by the layer after it, and turned into that by the sums."""
        self.weight_transposed = layer.weight.mT
        self._layer, self._gradient = layer, gradient
        self._before, self._before_transposed = before, before.mT
        self._sums, self._after = sums, after
        self._norms = _norms(layer, gradient, sums, after, derivative)
        self._product = torch.mm if sums.ndim == 2 else torch.bmm

    def forward(self) -> None:
        """Computes ReLU(inputs weight + bias), normalised before the ReLU if asked for."""
        self._product(self._before, self._layer.weight, out=self._sums)
        self._sums += self._layer.bias  # faster than addmm and baddbmm, which first fill the result with the bias
        for norm in self._norms:
            norm.forward()
        if not self._norms:
            self._after.relu_()

    def backward(self, trained: bool) -> Tensor:
        """Returns the derivative by the sums; writes that by the parameters if they are trained."""
        by_sums: Tensor = _through_relu(self.derivative, self._after, 0.0, grad_input=self.derivative)
        for norm in self._norms:
            norm.backward(trained)
        if trained:
            self._product(self._before_transposed, by_sums, out=self._gradient.weight)
            torch.sum(by_sums, -2, keepdim=True, out=self._gradient.bias)
        return by_sums


class OutputPass:
    """The last layer in a pass. A single output is a product with a vector, for which bmm takes three times as long as mv."""

    def __init__(self, layer: Layer, gradient: Layer, before: Tensor, outputs: Tensor) -> None:
        self._layer, self._gradient, self._before, self._outputs = layer, gradient, before, outputs
        self._weight_transposed = layer.weight.mT
        self._derivative = torch.zeros_like(outputs)
        self._derivative_array: Floats = self._derivative.numpy()
        self._is_vector = layer.weight.shape[-1] == 1
        self._array: Floats = outputs.numpy()
        self._bias: Floats = layer.bias.numpy()
        self._bias_gradient: Floats = gradient.bias.numpy()
        self._product = torch.mm if outputs.ndim == 2 else torch.bmm
        if self._is_vector:
            arrays = (before, layer.weight, outputs, self._derivative, gradient.weight)
            members = [*zip(*(x.view(-1, *x.shape[-2:]).unbind() for x in arrays), strict=True)]
            self._forward = [(before, weight[:, 0], out[:, 0]) for before, weight, out, _, _ in members]
            self._backward = [(before.T, d[:, 0], weight[:, 0]) for before, _, _, d, weight in members]

    def forward(self) -> None:
        """Computes inputs weight + bias."""
        if self._is_vector:
            for before, weight, outputs in self._forward:
                torch.mv(before, weight, out=outputs)
        else:
            self._product(self._before, self._layer.weight, out=self._outputs)
        self._array += self._bias

    def backward(self, by_outputs: Floats, derivative: Tensor, trained: bool) -> None:
        """Writes into `derivative` that by the inputs, and that by the parameters if they are trained."""
        self._derivative_array[...] = by_outputs.reshape(self._derivative_array.shape)
        if trained:
            np.add.reduce(self._derivative_array, axis=-2, keepdims=True, out=self._bias_gradient)
            self._train()
        if self._is_vector:
            torch.mul(self._derivative, self._weight_transposed, out=derivative)
        elif derivative.dtype == self._derivative.dtype:
            self._product(self._derivative, self._weight_transposed, out=derivative)
        else:
            derivative.copy_(self._product(self._derivative, self._weight_transposed))

    def _train(self) -> None:
        if not self._is_vector:
            self._product(self._before.mT, self._derivative, out=self._gradient.weight)
            return
        for before, derivative, weight in self._backward:
            torch.mv(before, derivative, out=weight)


def has_fast_bfloat16() -> bool:
    """Returns whether this processor computes products in bfloat16 itself."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


def _shapes(members: int, sizes: Sequence[int], layer_norm: bool) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every array by its name, in the order of the layers."""
    shapes: dict[str, tuple[int, ...]] = {}
    for index, (inputs, units) in enumerate(pairwise(sizes)):
        shapes[f"{index}.weight"] = (members, inputs, units)
        shapes[f"{index}.bias"] = (members, 1, units)
        if layer_norm and index < len(sizes) - 2:
            shapes[f"{index}.scale"] = shapes[f"{index}.shift"] = (members, 1, units)
    return shapes


def _views(vector: Tensor, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    parts = vector.split([math.prod(shape) for shape in shapes.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def _layers(arrays: dict[str, Tensor]) -> list[Layer]:
    count = 1 + max(int(name.split(".")[0]) for name in arrays)
    names = ("weight", "bias", "scale", "shift")
    return [Layer(*(arrays[key] for name in names if (key := f"{index}.{name}") in arrays)) for index in range(count)]


def _norms(layer: Layer, gradient: Layer, *activations: Tensor) -> list[LayerNormReLU]:
    """Returns the norm of each member, or none; arguments are (n, ..., units), or without n for a single member."""
    parameters = [x for x in (layer.scale, layer.shift, gradient.scale, gradient.shift) if x is not None]
    if not parameters:
        return []
    vectors = [x.view(-1, x.shape[-1]).unbind() for x in parameters]
    matrices = [x.view(-1, *x.shape[-2:]).unbind() for x in activations]
    return [LayerNormReLU(*of_member) for of_member in zip(*vectors, *matrices, strict=True)]


def _initialize(layers: Sequence[Layer], generator: torch.Generator) -> None:
    """Draws weights and biases as torch.nn.Linear does, uniformly in +-1 / sqrt(inputs); the norms begin as the identity."""
    bounds = [1.0 / math.sqrt(layer.weight.shape[1]) for layer in layers]
    for layer, bound in zip(layers, bounds, strict=True):
        layer.weight.uniform_(-bound, bound, generator=generator)
    for layer, bound in zip(layers, bounds, strict=True):
        layer.bias.uniform_(-bound, bound, generator=generator)
        if layer.scale is not None:
            layer.scale.fill_(1.0)
