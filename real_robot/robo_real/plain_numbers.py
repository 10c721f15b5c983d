"""Numbers of a request as they are: no text, no truth value, no digits of another script counts as one."""

from __future__ import annotations

import numbers

import numpy as np
import numpy.typing as npt

from robo_real.arm import Array


def plain_numbers(values: npt.ArrayLike) -> Array:
    """Return values as numbers; raises TypeError for texts, truth values and anything else, ValueError for a ragged list."""
    if not (isinstance(values, np.ndarray) and values.dtype.kind in "iuf"):
        for value in np.ravel(np.asarray(values, object)):
            if isinstance(value, bool | np.bool_) or not (value is None or isinstance(value, numbers.Real | list | tuple)):
                raise TypeError(f"{value!r} is no number")
    return np.asarray(values, np.float64)
