"""Several networks of one shape, evaluated together; inputs are standardised.

Shapes: K members, B rows, D inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    """K fully connected networks of one shape with different initial weights, evaluated together.

    One seed determines all initial weights.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, sizes: Sequence[int], members: int, seed: int) -> None:
        """Draw the initial weights.

        Args:
            sizes: Numbers of units: D inputs, the hidden layers, O outputs.
            members: Number K of networks.
            seed: Seed of the weights.
        """
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            bound = inputs**-0.5
            for list_, shape in ((self.weights, (members, inputs, outputs)), (self.biases, (members, 1, outputs))):
                list_.append(nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator)))
        self.register_buffer("mean", torch.zeros(sizes[0]))
        self.register_buffer("deviation", torch.ones(sizes[0]))

    def outputs(self, rows: Tensor) -> Tensor:
        """Return outputs (K, B, O) for rows (B, D) that all members share, or (K, B, D) that differ between members."""
        layer = ((rows - self.mean) / self.deviation).expand(len(self.weights[0]), *rows.shape[-2:])
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            layer = torch.baddbmm(bias, layer, weight).relu()
        return torch.baddbmm(self.biases[-1], layer, self.weights[-1])
