"""Curves of OpenDRIVE roads, spirals and cubic polynomials, with the start of each curve as origin and its direction as x."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
FINE = 512
"""Number of intervals in the table of arc lengths along a polynomial curve; values in between are interpolated."""


@dataclass(frozen=True)
class Spiral:
    """A curve whose curvature [1/m] changes evenly along its length [m]."""

    start: float
    end: float
    length: float

    def at(self, s: Floats) -> tuple[Floats, Floats, Floats]:
        """Return x, y [m] and heading [rad] at distances `s` [m] from the start of the curve."""
        inner = 0.5 * s[:, None] * (NODES + 1.0)
        turned = self._turned(inner)
        half = 0.5 * s
        return half * (np.cos(turned) @ WEIGHTS), half * (np.sin(turned) @ WEIGHTS), self._turned(s)

    def _turned(self, s: Floats) -> Floats:
        return self.start * s + 0.5 * (self.end - self.start) / self.length * s * s

    @property
    def bends(self) -> tuple[float, float]:
        """Least and greatest curvature [1/m]."""
        return min(self.start, self.end), max(self.start, self.end)


@dataclass(frozen=True)
class Cubic:
    """A pair of cubic polynomials u(p), v(p) from p = 0 to `last`; distances are measured along the curve."""

    u: tuple[float, float, float, float]
    v: tuple[float, float, float, float]
    last: float
    length: float
    """[m] that the map states, which ends the curve."""
    tag: str = "paramPoly3"
    """OpenDRIVE's element for the curve, "paramPoly3" or "poly3".

    The next field, `scale`, is the range of the parameter of a "paramPoly3": "normalized" or "arcLength".
    """
    scale: str = "normalized"

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        """Parameters p from 0 to `last`, and the distance [m] along the curve at each."""
        p = np.linspace(0.0, self.last, FINE + 1)
        du, dv = self._slopes(p)
        speed = np.hypot(du, dv)
        return p, np.concatenate([[0.0], np.cumsum(0.5 * (speed[1:] + speed[:-1]) * np.diff(p))])

    @property
    def reach(self) -> float:
        """Arc length [m] of the whole curve."""
        return float(self._table[1][-1])

    def _slopes(self, p: Floats) -> tuple[Floats, Floats]:
        du, dv = (c[1] + p * (2 * c[2] + 3 * c[3] * p) for c in (self.u, self.v))
        return du, dv

    def at(self, s: Floats) -> tuple[Floats, Floats, Floats]:
        """Return x, y [m] and heading [rad] at distances [m] from the beginning."""
        p = np.interp(s, self._table[1], self._table[0])
        x, y = (c[0] + p * (c[1] + p * (c[2] + p * c[3])) for c in (self.u, self.v))
        du, dv = self._slopes(p)
        return x, y, np.unwrap(np.arctan2(dv, du))

    @property
    def bends(self) -> tuple[float, float]:
        """Least and greatest curvature [1/m]."""
        p = self._table[0]
        du, dv = self._slopes(p)
        second = [2 * c[2] + 6 * c[3] * p for c in (self.u, self.v)]
        curvature = (du * second[1] - dv * second[0]) / np.maximum(np.hypot(du, dv), 1e-9) ** 3
        return float(curvature.min()), float(curvature.max())
