"""Encoder of objects that come as sets: Zaheer et al. 2017, "Deep Sets" (arXiv:1703.06114), with a maximum as the pool.

B batch, N rows of a set, F numbers of a row, D numbers of all other vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from robo_rl.spec.environment import ArraySpec, EnvironmentSpec

UNITS = 64
"""Number of features that describe a set."""
UNIT = 10.0
"""Divisor of the numbers, in their units: a number of this size, such as a distance of 10 m between cars, becomes 1."""


class SetEncoder(nn.Module):
    """Encoder of all vectors of an observation, for which the order of a set's rows, and rows of padding, do not matter.

    An entry of role "object" and shape (N, F) is a set. Each of its rows begins with 1, or with 0 if it is padding. All rows of
    a set go through one small network, which reads the other vectors too, and the largest value of each feature is kept.

    Numbers are read in their units, without standardisation: one that is standardised apart from the others is no coordinate
    any more. Each number x enters twice, as x / `UNIT` and as sign(x) log(1 + |x|), which tells small ones apart.

    Differs from Deep Sets: the network of the rows reads the other vectors, because a car matters or not by one's own speed.
    """

    is_in_units: ClassVar[bool] = True
    pictures: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: EnvironmentSpec) -> None:
        super().__init__()
        arrays = spec.observation.vectors.arrays
        self.sets = tuple(array.name for array in arrays if is_set(array))
        self.others = tuple(array.name for array in arrays if not is_set(array))
        context = 2 * sum(array.size for array in arrays if not is_set(array))
        self.size = context + UNITS * len(self.sets)
        widths = {array.name: 2 * array.shape[1] for array in arrays if is_set(array)}
        self.rows = nn.ModuleDict({name: nn.Linear(width, UNITS) for name, width in widths.items()})
        self.context = nn.ModuleDict({name: nn.Linear(context, UNITS, bias=False) for name in widths if context})
        self.features = nn.ModuleDict({name: nn.Linear(UNITS, UNITS) for name in widths})

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Return features (B, size): the other vectors, then the features of each set, which are 0 for an empty set."""
        found = [scaled(observations[name].flatten(1)) for name in self.others]
        context = torch.cat(found, 1) if found else None
        for name in self.sets:
            found.append(self._pooled(name, observations[name], context))
        return torch.cat(found, 1)

    def _pooled(self, name: str, rows: Tensor, context: Tensor | None) -> Tensor:
        """Return the features (B, `UNITS`) of a set (B, N, F), given the other vectors (B, D)."""
        hidden = self.rows[name](scaled(rows))
        if context is not None:
            hidden = hidden + self.context[name](context).unsqueeze(1)
        features = torch.relu(self.features[name](torch.relu(hidden)))
        is_member = (rows[..., :1] > 0.5).to(features.dtype)
        return (features * is_member).amax(1)


def is_set(array: ArraySpec) -> bool:
    """Return True if an observation entry is a set of objects: one row of numbers for each object."""
    return array.role == "object" and len(array.shape) == 2


def scaled(values: Tensor) -> Tensor:
    """Scale numbers (..., F) in their units to (..., 2 F): first x / `UNIT`, then sign(x) log(1 + |x|)."""
    return torch.cat((values / UNIT, torch.sign(values) * torch.log1p(values.abs())), -1)
