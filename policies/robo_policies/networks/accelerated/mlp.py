"""Ensembles of MLPs as one node of autograd, its derivatives written out, over memory that is allocated once.

At 256 rows and 256 units a matrix product takes 0.3 ms on one core, and what seems free beside it is not: recording and
replaying a graph, cold memory, an optimiser call for each array. Therefore
- the parameters of all members are one vector, and so are their gradients: Adam, targets and checks are one call each;
- members are evaluated in blocks: one product serves all members of a block and keeps every thread busy, while their
  activations still fit into the caches, where the next layer finds them;
- every array is allocated once for a number of rows, and every view of it made once. A graph keeps what its derivative needs
  until it is freed; an evaluation in the meantime takes other memory.

N members, n of them in a block, B rows; parameters are laid out [N, in, out].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from robo_policies.networks.accelerated.layer_norm import LayerNormReLU

Floats = npt.NDArray[np.float32]

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
    """None if the layer is not normalised."""
    shift: Tensor | None = None

    def of(self, members: slice) -> Layer:
        """Return the same layer of some of the members."""
        normalized = () if self.scale is None or self.shift is None else (self.scale[members], self.shift[members])
        return Layer(self.weight[members], self.bias[members], *normalized)

    def single(self) -> Layer:
        """Return the layer of the only member, as matrices (in, out) and (1, out)."""
        normalized = () if self.scale is None or self.shift is None else (self.scale[0], self.shift[0])
        return Layer(self.weight[0], self.bias[0], *normalized)


class Reference(Protocol):
    """MLPEnsemble of networks/actor_critic.py: modules `linears` and `norms` with `weight` and `bias` (N, ...)."""

    members: int

    def state_dict(self) -> dict[str, Any]:
        """Return every array by its name."""


class AcceleratedMLP(nn.Module):
    """The same networks with the same names in `state_dict`; their only parameter is the vector of all arrays."""

    def __init__(self, reference: Reference) -> None:
        super().__init__()
        self.members = reference.members
        arrays = reference.state_dict()
        self._shapes = {name: array.shape for name, array in arrays.items()}
        self.vector = nn.Parameter(torch.cat([array.flatten() for array in arrays.values()]))
        self._bind()

    def _bind(self) -> None:
        self._arrays = self._views(self.vector.detach())
        self.layers = _layers(self._arrays)
        step = max(BLOCK, torch.get_num_threads())
        self._blocks = [slice(start, min(start + step, self.members)) for start in range(0, self.members, step)]
        self._scratch: dict[int, Evaluation] = {}
        self._single: dict[tuple[int, int], Pass] = {}
        self._free: dict[int, list[Evaluation]] = {}
        self._shared = Memory()

    def _views(self, vector: Tensor) -> dict[str, Tensor]:
        parts = vector.split([math.prod(shape) for shape in self._shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}

    def forward(self, *inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return (N, B, out) of some members for inputs (B, in), given in parts side by side."""
        if torch.is_grad_enabled() and (self.vector.requires_grad or any(part.requires_grad for part in inputs)):
            outputs: Tensor = _Node.apply(self.vector.view_as(self.vector), self, *inputs)  # type: ignore[no-untyped-call]
            return outputs[members] if members != slice(None) else outputs
        rows, arrays = len(inputs[0]), [part.detach().numpy() for part in inputs]
        if not isinstance(members, slice):
            return torch.from_numpy(np.concatenate([self._of_member(rows, member, arrays) for member in members]))
        if rows not in self._scratch:
            self._scratch[rows] = self._evaluation(rows, kept=self._shared)
        return torch.from_numpy(self._scratch[rows].forward(arrays)[members])

    def lease(self, rows: int) -> Lease:
        """Return memory for an evaluation of `rows` rows that no other evaluation uses."""
        free = self._free.setdefault(rows, [])
        while free:
            evaluation = free.pop()
            if evaluation.references() == evaluation.own_references:
                return Lease(evaluation, free)
        evaluation = self._evaluation(rows, kept=None)
        evaluation.own_references = evaluation.references()
        return Lease(evaluation, free)

    def _of_member(self, rows: int, member: int, inputs: Sequence[Floats]) -> Floats:
        if (rows, member) not in self._single:
            part = slice(member, member + 1)
            layers = [layer.of(part) for layer in self.layers]
            inputs_of_all = self._shared("inputs", (rows, self.layers[0].weight.shape[1]))
            self._single[rows, member] = Pass(layers, layers, inputs_of_all, self._shared, self._shared)
        one = self._single[rows, member]
        np.concatenate(inputs, axis=1, out=one.inputs)
        return one.forward()

    def _evaluation(self, rows: int, kept: Memory | None) -> Evaluation:
        gradient = torch.zeros_like(self.vector, requires_grad=False) if kept is None else self.vector.detach()
        gradients = _layers(self._views(gradient))
        inputs = (kept or Memory())("inputs", (rows, self.layers[0].weight.shape[1]))
        passes = []
        for part in self._blocks:
            layers, derivatives = ([layer.of(part) for layer in each] for each in (self.layers, gradients))
            passes.append(Pass(layers, derivatives, inputs, kept or Memory(), self._shared))
        return Evaluation(passes, self._blocks, gradient)

    def __deepcopy__(self, memo: dict[int, Any]) -> AcceleratedMLP:
        copied = AcceleratedMLP(self)
        copied.vector.requires_grad_(self.vector.requires_grad)
        memo[id(self)] = copied
        return copied

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._bind()  # the vector may lie elsewhere
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination.update({prefix + name: array for name, array in self._arrays.items()})

    def _load_from_state_dict(
        self, state: Any, prefix: str, metadata: Any, strict: bool, missing: list[str], unexpected: list[str], errors: list[str]
    ) -> None:
        for name, array in self._arrays.items():
            if (value := state.get(prefix + name)) is None:
                missing.append(prefix + name)
            elif value.shape != array.shape:
                errors.append(f"{prefix}{name} has the shape {[*value.shape]}, not {[*array.shape]}")
            else:
                array.copy_(value)
        unexpected += [name for name in state if name.startswith(prefix) and name[len(prefix) :] not in self._arrays]


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vector: Tensor, network: AcceleratedMLP, *inputs: Tensor) -> Tensor:
        ctx.lease = network.lease(len(inputs[0]))
        ctx.save_for_backward(vector)  # so that a step that changes the parameters in the meantime is an error
        stops = accumulate(part.shape[1] for part in inputs)
        ctx.columns = [slice(stop - part.shape[1], stop) for stop, part in zip(stops, inputs, strict=True)]
        return torch.from_numpy(ctx.lease.evaluation.forward([part.detach().numpy() for part in inputs]))

    @staticmethod
    def backward(ctx: Any, by_outputs: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        wanted = [part for part, is_needed in zip(ctx.columns, needed, strict=True) if is_needed]
        is_trained = _is_needed(ctx.next_functions[0][0])
        evaluation = ctx.lease.evaluation
        found = iter(evaluation.backward(by_outputs.numpy(), is_trained, wanted))
        gradient = evaluation.gradient if is_trained else None
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.lease = None  # although outputs may be referenced: memory that is used again at once is still in the caches
        return gradient, None, *(next(found) if is_needed else None for is_needed in needed)


def _is_needed(node: Any) -> bool:
    """Return True if the gradient of an input of a node is asked for, as a node in C++ knows; saves half of the products."""
    return node is not None and bool(torch._C._will_engine_execute_node(node))


class Memory:
    """Arrays by name: what asks for the same name uses the same memory, which is then still in the caches."""

    def __init__(self) -> None:
        self._arrays: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return the array of that name, in that shape."""
        size = math.prod(shape)
        if name not in self._arrays or len(self._arrays[name]) < size:
            self._arrays[name] = torch.zeros(size)
        return self._arrays[name][:size].view(*shape)


class Evaluation:
    """The evaluation of all members at a number of rows, and its derivative."""

    def __init__(self, passes: list[Pass], blocks: list[slice], gradient: Tensor) -> None:
        self._passes, self._blocks, self.gradient = passes, blocks, gradient
        self.own_references = 0
        """Memory of `gradient` while it is not referenced elsewhere: a referenced one is not overwritten."""

    def references(self) -> int:
        """Return the number of tensors that use the memory of `gradient`."""
        count: int = torch._C._storage_Use_Count(self.gradient.untyped_storage()._cdata)
        return count

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused with a better message
    def forward(self, inputs: Sequence[Floats]) -> Floats:
        """Return outputs (N, B, out) in memory of their own."""
        np.concatenate(inputs, axis=1, out=self._passes[0].inputs)
        return np.concatenate([one.forward() for one in self._passes])

    @np.errstate(over="ignore", invalid="ignore")
    def backward(self, by_outputs: Floats, is_trained: bool, wanted: Sequence[slice]) -> list[Tensor]:
        """Return the derivatives (B, columns) by some columns of the inputs; writes `gradient` if it is trained."""
        totals: list[Tensor] = []
        for members, one in zip(reversed(self._blocks), reversed(self._passes), strict=True):  # the last is in the caches
            by_sums = one.backward(by_outputs[members], trained=is_trained)
            found = [one.by_inputs(by_sums, columns) for columns in wanted]
            totals = [total.add_(part) for total, part in zip(totals, found, strict=True)] if totals else found
        return totals


@dataclass
class Lease:
    """Memory in use by a graph; returned to those that are free with it."""

    evaluation: Evaluation
    free: list[Evaluation]

    def __del__(self) -> None:
        self.free.append(self.evaluation)


class Pass:
    """The evaluation of a block of members at a number of rows, and its derivative.

    A single member is computed with plain matrices. All blocks read the same inputs.
    """

    def __init__(self, layers: list[Layer], gradients: list[Layer], inputs: Tensor, kept: Memory, shared: Memory) -> None:
        members, (rows, width) = len(layers[0].weight), inputs.shape
        self.inputs: Floats = inputs.numpy()
        batch: tuple[int, ...] = () if members == 1 else (members,)
        if members == 1:
            layers, gradients = [x.single() for x in layers], [x.single() for x in gradients]
        else:
            inputs = inputs.expand(members, rows, width)
        self._hidden: list[HiddenPass] = []
        for index, (layer, gradient) in enumerate(zip(layers[:-1], gradients[:-1], strict=True)):
            shape = (*batch, rows, layer.weight.shape[-1])
            sums = kept(f"sums {index}", shape)
            after = sums if layer.scale is None else kept(f"activations {index}", shape)
            self._hidden.append(HiddenPass(layer, gradient, inputs, sums, after, shared(f"derivative {index}", shape)))
            inputs = after
        outputs = torch.zeros(*batch, rows, layers[-1].weight.shape[-1])
        self._last = OutputPass(layers[-1], gradients[-1], inputs, outputs)
        self.outputs: Floats = outputs.numpy().reshape(members, rows, -1)
        self._first = layers[0].weight

    def forward(self) -> Floats:
        """Return the outputs (n, B, out) for what is in `inputs`."""
        for layer in self._hidden:
            layer.forward()
        self._last.forward()
        return self.outputs

    def backward(self, by_outputs: Floats, *, trained: bool) -> Tensor:
        """Return the derivative by the first layer's sums, from that (n, B, out) by the outputs.

        Writes that by the parameters if they are trained.
        """
        self._last.backward(by_outputs, self._hidden[-1].derivative, trained)
        for index in reversed(range(len(self._hidden))):
            by_sums = self._hidden[index].backward(trained)
            if index:
                multiply(by_sums, self._hidden[index].weight_transposed, out=self._hidden[index - 1].derivative)
        return by_sums

    def by_inputs(self, by_sums: Tensor, columns: slice) -> Tensor:
        """Return the derivative (B, columns) by some columns of the inputs, summed over the members."""
        first = self._first[..., columns, :].mT
        found = torch.empty(*by_sums.shape[:-1], first.shape[-1])
        multiply(by_sums, first, out=found)
        return found if found.ndim == 2 else found.sum(0)


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

    def forward(self) -> None:
        """Computes ReLU(inputs weight + bias), normalised before the ReLU if asked for."""
        multiply(self._before, self._layer.weight, out=self._sums)
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
            multiply(self._before_transposed, by_sums, out=self._gradient.weight)
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
            multiply(self._before, self._layer.weight, out=self._outputs)
        self._array += self._bias

    def backward(self, by_outputs: Floats, derivative: Tensor, trained: bool) -> None:
        """Writes into `derivative` that by the inputs, and that by the parameters if they are trained."""
        self._derivative_array[...] = by_outputs.reshape(self._derivative_array.shape)
        if trained:
            np.add.reduce(self._derivative_array, axis=-2, keepdims=True, out=self._bias_gradient)
            self._train()
        if self._is_vector:
            torch.mul(self._derivative, self._weight_transposed, out=derivative)
        else:
            multiply(self._derivative, self._weight_transposed, out=derivative)

    def _train(self) -> None:
        if not self._is_vector:
            multiply(self._before.mT, self._derivative, out=self._gradient.weight)
            return
        for before, derivative, weight in self._backward:
            torch.mv(before, derivative, out=weight)


def multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Write the product of matrices, or of N pairs of them, into `out`; NumPy's OpenBLAS is faster here than PyTorch's MKL."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused with a better message
        np.matmul(left.numpy(), right.numpy(), out=out.numpy())


def _layers(arrays: dict[str, Tensor]) -> list[Layer]:
    count = sum(name.startswith("linears.") for name in arrays) // 2
    names = ("linears.{}.weight", "linears.{}.bias", "norms.{}.weight", "norms.{}.bias")
    return [Layer(*(arrays[key] for name in names if (key := name.format(index)) in arrays)) for index in range(count)]


def _norms(layer: Layer, gradient: Layer, *activations: Tensor) -> list[LayerNormReLU]:
    """Returns the norm of each member, or none; arguments are (n, ..., units), or without n for a single member."""
    parameters = [x for x in (layer.scale, layer.shift, gradient.scale, gradient.shift) if x is not None]
    if not parameters:
        return []
    vectors = [x.view(-1, x.shape[-1]).unbind() for x in parameters]
    matrices = [x.view(-1, *x.shape[-2:]).unbind() for x in activations]
    return [LayerNormReLU(*of_member) for of_member in zip(*vectors, *matrices, strict=True)]
