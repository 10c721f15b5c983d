"""Ensembles of MLPs as one node of autograd, with derivatives written out.

At 256 rows and 256 units a matrix product takes 0.14 ms on one core of an AMD EPYC by oneDNN with AVX-512 (0.25 ms by NumPy,
0.29 ms by torch.mm, which choose AVX2 there; PyTorch computes float32 by oneDNN only in an operator without a derivative), and
seemingly free work costs as much: recording and replaying a graph, an optimiser call for each array. Therefore the parameters
of all members are one vector, and so are their gradients: Adam, targets and checks are one call each. Members are computed one
after the other: their activations fit into a core's cache for the next layer.

N members, B rows; parameters are laid out [N, in, out].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

HAS_ONEDNN = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
SMALL = 1 << 12
"""Elements of a matrix below which NumPy's products are faster, such as one row or a layer of few outputs."""
_onednn: Any = torch.ops.mkldnn._linear_pointwise.default if HAS_ONEDNN else None
EPSILON = 1e-5  # PyTorch's default of LayerNorm
# overloads by their names: finding them takes longer than computing them
_normalize = torch.ops.aten.native_layer_norm.default
_through_normalization = torch.ops.aten.native_layer_norm_backward.default
_through_relu = torch.ops.aten.threshold_backward.grad_input


class Reference(Protocol):
    """Interface of the network that `AcceleratedMLP` replaces: `MLPEnsemble` of networks/actor_critic.py.

    Its lists of modules `linears` and `norms` have `weight` and `bias` with the members as first axis (N, ...).
    """

    members: int

    def state_dict(self) -> dict[str, Any]:
        """Return the parameters by name, each with the members as first axis (N, ...)."""


class AcceleratedMLP(nn.Module):
    """Replaces an MLPEnsemble without dropout on the CPU: same results up to rounding, same `state_dict`, less time.

    Its only parameter is `vector`, which holds all weights and biases.
    """

    def __init__(self, reference: Reference) -> None:
        super().__init__()
        self.members = reference.members
        arrays = reference.state_dict()
        self._shapes = {name: array.shape for name, array in arrays.items()}
        self.vector = nn.Parameter(torch.cat([array.flatten() for array in arrays.values()]))
        self._bind()

    def _bind(self) -> None:
        parts = self.vector.detach().split([math.prod(shape) for shape in self._shapes.values()])
        self._arrays = {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}
        count = sum(name.startswith("linears.") for name in self._arrays) // 2
        self._layers = [[Layer(self._arrays, index, member) for index in range(count)] for member in range(self.members)]

    def forward(self, *inputs: Tensor, members: Sequence[int] | slice = slice(None)) -> Tensor:
        """Return the outputs (M, B, out) of the M chosen members for inputs (B, in), given whole or in parts to concatenate."""
        if torch.is_grad_enabled() and (self.vector.requires_grad or any(part.requires_grad for part in inputs)):
            outputs: Tensor = _Node.apply(self.vector.view_as(self.vector), self, *inputs)  # type: ignore[no-untyped-call]
            return outputs[members] if members != slice(None) else outputs
        picked = self._layers[members] if isinstance(members, slice) else [self._layers[index] for index in members]
        joined = _joined(inputs)
        return torch.stack([ForwardPass(layers, joined).outputs for layers in picked])

    def forward_passes(self, inputs: Tensor) -> list[ForwardPass]:
        """Compute the ensemble for inputs (B, in).

        Returns for each of the N members an object that can compute its gradients.
        """
        return [ForwardPass(layers, inputs) for layers in self._layers]

    def gradient(self, of_members: Sequence[dict[str, Tensor]]) -> Tensor:
        """Join the gradients of the members' arrays into one gradient of the parameter `vector`.

        of_members: for each member, name of an array -> its gradient.
        """
        return torch.cat([arrays[name].flatten() for name in self._shapes for arrays in of_members])

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
        ctx.network, ctx.forward_passes = network, network.forward_passes(_joined(inputs))
        ctx.save_for_backward(vector)  # so that a step that changes the parameters in the meantime is an error
        stops = accumulate(part.shape[1] for part in inputs)
        ctx.columns = [slice(stop - part.shape[1], stop) for stop, part in zip(stops, inputs, strict=True)]
        return torch.stack([evaluation.outputs for evaluation in ctx.forward_passes])

    @staticmethod
    def backward(ctx: Any, by_outputs: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        wanted = [columns for columns, is_needed in zip(ctx.columns, needed, strict=True) if is_needed]
        is_trained = _is_needed(ctx.next_functions[0][0])
        pairs = zip(reversed(ctx.forward_passes), reversed(by_outputs.unbind()), strict=True)  # the last is in the caches
        found = [each.backward(part, is_trained, wanted) for each, part in pairs][::-1]
        gradient = ctx.network.gradient([arrays for arrays, _ in found]) if is_trained else None
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.forward_passes = None  # although outputs may be referenced
        by_inputs = (sum(parts) for parts in zip(*(parts for _, parts in found), strict=True))
        return gradient, None, *(next(by_inputs) if is_needed else None for is_needed in needed)


def _is_needed(node: Any) -> bool:
    """Return True if autograd needs the gradient that flows into `node`; skipping others saves half of the products."""
    return node is not None and bool(torch._C._will_engine_execute_node(node))


def _joined(inputs: tuple[Tensor, ...]) -> Tensor:
    joined = torch.cat(inputs, 1) if len(inputs) > 1 else inputs[0]
    return joined.detach().contiguous()


class Layer:
    """One linear layer of one member of an ensemble, with LayerNorm if the ensemble has it.

    Its arrays are views of the ensemble's vector of parameters.
    """

    def __init__(self, arrays: dict[str, Tensor], index: int, member: int) -> None:
        self._names = [name for kind in ("linears", "norms") for name in arrays if name.startswith(f"{kind}.{index}.")]
        self.weight, *vectors = (arrays[name][member] for name in self._names)
        """Weight (in, out)."""
        self.weight_transposed = self.weight.mT
        self.bias, *self.norm = (vector[0] for vector in vectors)
        """Bias (out,); `norm` holds scale and shift (out,) of LayerNorm, or nothing without LayerNorm."""
        self.is_vector = len(self.bias) == 1
        self.vector = self.weight[:, 0]

    def named(self, *derivatives: Tensor) -> dict[str, Tensor]:
        """Label gradients with the names of the layer's arrays.

        derivatives: gradients of weight, bias and, with LayerNorm, scale and shift, in this order.
        """
        return dict(zip(self._names, derivatives, strict=True))

    def output(self, before: Tensor) -> Tensor:
        """Return the outputs before @ weight + bias (B, out) of inputs `before` (B, in)."""
        if self.is_vector:
            return torch.addmv(self.bias, before, self.vector)[:, None]
        return linear(before, self.weight_transposed, self.bias)

    def hidden(self, before: Tensor) -> Activation:
        """Return ReLU(before @ weight + bias) of inputs `before` (B, in), after LayerNorm if the layer has it."""
        if not self.norm:
            return Activation(before, linear(before, self.weight_transposed, self.bias, relu=True))
        sums = linear(before, self.weight_transposed, self.bias)
        normalized, *statistics = _normalize(sums, sums.shape[-1:], *self.norm, EPSILON)
        return Activation(before, normalized.relu_(), (sums, *statistics))

    def by_before(self, by_sums: Tensor) -> Tensor:
        """Return the gradient (B, in) of the layer's input, given that of before @ weight + bias (B, out)."""
        return by_sums * self.vector if self.is_vector else linear(by_sums, self.weight)

    def by_parameters(self, before: Tensor, by_sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of weight and bias, given inputs (B, in) and the gradient of before @ weight + bias (B, out)."""
        if self.is_vector:
            return torch.mv(before.mT, by_sums[:, 0]), by_sums.sum(0)
        return linear(before.mT, by_sums.mT), by_sums.sum(0)

    def by_sums(self, activation: Activation, by_after: Tensor, is_trained: bool) -> tuple[Tensor, ...]:
        """Return the gradient of before @ weight + bias (B, out), and those of scale and shift with LayerNorm.

        Args:
            activation: Values of the forward pass.
            by_after: Gradient of the layer's output (B, out); it is overwritten.
            is_trained: True if the gradients of scale and shift are needed.
        """
        by_sums = _through_relu(by_after, activation.after, 0.0, grad_input=by_after)
        if not self.norm:
            return (by_sums,)
        sums, *statistics = activation.normalized
        found: tuple[Tensor, ...] = _through_normalization(
            by_sums, sums, sums.shape[-1:], *statistics, *self.norm, [True, is_trained, is_trained]
        )
        return found


class Activation(NamedTuple):
    """Values of a hidden layer's forward pass that its derivative needs."""

    before: Tensor
    """Inputs (B, in) of the layer."""
    after: Tensor
    """Outputs (B, out) after the ReLU."""
    normalized: tuple[Tensor, ...] = ()
    """With LayerNorm: before @ weight + bias (B, out), and its means and inverse deviations (B, 1)."""


class ForwardPass:
    """Forward pass of one member for inputs (B, in); `backward` computes its gradients."""

    def __init__(self, layers: Sequence[Layer], inputs: Tensor) -> None:
        self._layers, self._activations = layers, list[Activation]()
        for layer in layers[:-1]:
            activation = layer.hidden(inputs)
            self._activations.append(activation)
            inputs = activation.after
        self._last = inputs
        self.outputs = layers[-1].output(inputs)
        """Outputs (B, out)."""

    def backward(self, by_outputs: Tensor, is_trained: bool, wanted: Sequence[slice]) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return the gradients of the parameters and of some inputs.

        Args:
            by_outputs: Gradient of the outputs (B, out).
            is_trained: True if the gradients of the parameters are needed; they are empty otherwise.
            wanted: Ranges of input columns whose gradients are needed.

        Returns:
            Array name -> gradient, and a gradient (B, columns) for each range.
        """
        layer, by_sums = self._layers[-1], by_outputs
        gradients = layer.named(*layer.by_parameters(self._last, by_outputs)) if is_trained else {}
        for before, activation in zip(reversed(self._layers[:-1]), reversed(self._activations), strict=True):
            by_sums, *by_norm = before.by_sums(activation, layer.by_before(by_sums), is_trained)
            layer = before
            if is_trained:
                gradients |= layer.named(*layer.by_parameters(activation.before, by_sums), *by_norm)
        return gradients, [linear(by_sums, layer.weight[columns]) for columns in wanted]


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """Return inputs (B, in) @ weight.T + bias, for weight (out, in) and bias (out,); with `relu` its ReLU."""
    if HAS_ONEDNN and inputs.numel() >= SMALL and weight.numel() >= SMALL:
        found: Tensor = _onednn(inputs, weight, bias, "relu" if relu else "none", [], "")
        return found
    with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite are rejected with a better message
        product = np.matmul(inputs.numpy(), weight.numpy().T)
        if bias is not None:
            product += bias.numpy()
        if relu:
            np.maximum(product, 0.0, out=product)
    return torch.from_numpy(product)
