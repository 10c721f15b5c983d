"""LayerNorm with ReLU, of one member of an ensemble, and its derivative: PyTorch's kernels without a graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

EPSILON = 1e-5  # PyTorch's default
# the overloads by name: finding them takes longer than computing them
_normalize = torch.ops.aten.native_layer_norm.default  # the overload that takes results to fill copies them there
_derive = torch.ops.aten.native_layer_norm_backward.default


class LayerNormReLU:
    """LayerNorm (Ba et al. 2016, arXiv:1607.06450) and ReLU of B rows.

    One member at a time, because the kernels take one scale and shift. For several at a time these would be applied, and their
    derivatives summed, in passes of their own over every number, which takes twice as long.
    """

    def __init__(
        self,
        scale: Tensor,
        shift: Tensor,
        by_scale: Tensor,
        by_shift: Tensor,
        sums: Tensor,
        activations: Tensor,
        derivative: Tensor,
    ) -> None:
        self._parameters, self._gradients = (scale, shift), (by_scale, by_shift)  # (units,) each
        self._sums, self._activations, self._derivative = sums, activations, derivative  # (B, units) each
        self._shape = sums.shape[-1:]
        self._statistics: Sequence[Tensor] = ()  # mean and inverse deviation of each row

    def forward(self) -> None:
        """Fills `activations` from `sums`."""
        normalized, *statistics = _normalize(self._sums, self._shape, *self._parameters, EPSILON)
        torch.clamp_min(normalized, 0, out=self._activations)
        self._statistics = statistics

    def backward(self, trained: bool) -> None:
        """Turns `derivative`, by the normalised sums, into that by `sums`; writes those by scale and shift if trained."""
        wanted = [True, trained, trained]
        results = _derive(self._derivative, self._sums, self._shape, *self._statistics, *self._parameters, wanted)
        for array, result in zip((self._derivative, *self._gradients), results, strict=True):
            if result is not None:
                array.copy_(result)
