"""Arrays over all environments at once, for code that was written for one.

A `BatchedArray` has the environments as its last axis and behaves as if that axis were not there: code that takes `qpos[1:]`,
`matrix.reshape(3, 3)` or `np.linalg.norm(vector)` of one environment does the same to N of them, as under `jax.vmap`. Every
number is the one that the code computes for one environment, to the bit: sums run over contiguous rows, products take the
same BLAS calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class BatchedArray(np.ndarray[Any, np.dtype[Any]]):
    """(*shape, N), where one environment has (*shape); `shape` and `ndim` still count the last axis.

    Elementwise operations and indexing are numpy's own. A function of numpy that is not defined here raises TypeError
    instead of mixing environments.
    """

    # Signatures are narrower than numpy's, hence the ignores: they allow what tasks of the suite call.

    def reshape(self, *shape: Any, **_: Any) -> BatchedArray:
        """Returns another shape of each environment's array."""
        sizes = shape[0] if isinstance(shape[0], tuple) else shape
        return super().reshape(*sizes, self.shape[-1]).view(BatchedArray)

    def ravel(self, *_: Any) -> BatchedArray:
        """Returns each environment's array as a vector."""
        return self.reshape(-1)

    flatten = ravel  # type: ignore[assignment]

    @property
    def T(self) -> BatchedArray:
        """Each environment's array with its axes in reverse order."""
        return self.transpose(*reversed(range(self.ndim - 1)), self.ndim - 1)

    def dot(self, matrix: BatchedArray) -> BatchedArray:  # type: ignore[override]
        """Returns each environment's vector or matrix times its matrix."""
        one, other = rows(self), rows(matrix)
        return _batched((one[:, None] @ other)[:, 0] if self.ndim == 2 else one @ other)

    def sum(self) -> BatchedArray:  # type: ignore[override]
        """Returns the sum of each environment's elements."""
        return _batched(_vectors(self).sum(axis=1))

    def mean(self) -> BatchedArray:  # type: ignore[override]
        """Returns the mean of each environment's elements."""
        return _batched(_vectors(self).mean(axis=1))

    def min(self) -> BatchedArray:  # type: ignore[override]
        """Returns the least of each environment's elements."""
        return _batched(_vectors(self).min(axis=1))

    def prod(self) -> BatchedArray:  # type: ignore[override]
        """Returns the product of each environment's elements."""
        return _batched(_vectors(self).prod(axis=1))

    def __pow__(self, exponent: float) -> BatchedArray:  # type: ignore[override]
        """Returns powers. numpy takes those of a lone number from the C library, whose last bit may differ from an array's."""
        if self.ndim > 1:
            return super().__pow__(exponent).view(BatchedArray)
        return np.float_power(self, exponent).view(BatchedArray)

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        """Does what numpy's function would do to each environment's arrays."""
        if function in _FUNCTIONS:
            return _FUNCTIONS[function](*arguments)
        if function in _ALIKE:  # numpy's own result is right; np.where forgets what it is made of
            return super().__array_function__(function, types, arguments, keywords).view(BatchedArray)
        return NotImplemented


def batched(values: Array) -> BatchedArray:
    """Returns a view (*shape, N) of one row (N, *shape) for each environment."""
    return _batched(values)


def rows(array: Array) -> Array:
    """Returns (N, *shape), contiguous: one row for each environment."""
    last = array.ndim - 1
    return np.ascontiguousarray(array.view(np.ndarray).transpose(last, *range(last)))


def _batched(values: Array) -> BatchedArray:
    return values.transpose(*range(1, values.ndim), 0).view(BatchedArray)


def _vectors(array: Array) -> Array:
    """Returns (N, elements), contiguous."""
    each = rows(array)
    return each.reshape(len(each), -1)


def _hstack(arrays: Sequence[Array]) -> Any:
    vectors = [array[np.newaxis] if array.ndim == 1 else array for array in arrays]
    return np.concatenate(vectors, axis=0 if vectors[0].ndim == 2 else 1)


def _vstack(arrays: Sequence[Array]) -> Any:
    return np.concatenate([array[np.newaxis] for array in arrays])


def _norm(array: Array) -> BatchedArray:
    vectors = _vectors(array)
    return _batched(np.sqrt((vectors[:, None] @ vectors[:, :, None])[:, 0, 0]))


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.hstack: _hstack,
    np.vstack: _vstack,
    np.linalg.norm: _norm,
    np.prod: lambda array: array.prod(),
}
_ALIKE = {np.where, np.concatenate, np.diff}
