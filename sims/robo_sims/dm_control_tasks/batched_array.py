"""Arrays of N environments that code written for one environment can use.

A `BatchedArray` has the environments as its last axis and hides that axis: code with `qpos[1:]`, `matrix.reshape(3, 3)` or
`np.linalg.norm(vector)` for one environment works for N of them, as under `jax.vmap`. Results are bit-identical to those of
one environment: sums run over contiguous rows, products use the same BLAS calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class BatchedArray(np.ndarray[Any, np.dtype[Any]]):
    """Array (*shape, N) of N environments that behaves like the array (*shape) of one environment.

    `shape` and `ndim` include the axis of environments, the last one. Elementwise operations and indexing are numpy's own.
    Other numpy functions raise TypeError unless they are defined here, so that environments are never mixed.
    """

    # Signatures are narrower than numpy's, hence the ignores: they cover the calls of suite tasks.

    def reshape(self, *shape: Any, **_: Any) -> BatchedArray:
        """Reshape each environment's array."""
        sizes = shape[0] if isinstance(shape[0], tuple) else shape
        return super().reshape(*sizes, self.shape[-1]).view(BatchedArray)

    def ravel(self, *_: Any) -> BatchedArray:
        """Return each environment's array as a vector."""
        return self.reshape(-1)

    flatten = ravel  # type: ignore[assignment]

    @property
    def T(self) -> BatchedArray:
        """Transpose of each environment's array."""
        return self.transpose(*reversed(range(self.ndim - 1)), self.ndim - 1)

    def dot(self, matrix: BatchedArray) -> BatchedArray:  # type: ignore[override]
        """Return each environment's vector or matrix times its matrix."""
        one, other = rows(self), rows(matrix)
        return _batched((one[:, None] @ other)[:, 0] if self.ndim == 2 else one @ other)

    def sum(self) -> BatchedArray:  # type: ignore[override]
        """Return the sum of each environment's elements."""
        return _batched(_vectors(self).sum(axis=1))

    def mean(self) -> BatchedArray:  # type: ignore[override]
        """Return the mean of each environment's elements."""
        return _batched(_vectors(self).mean(axis=1))

    def min(self) -> BatchedArray:  # type: ignore[override]
        """Return the minimum of each environment's elements."""
        return _batched(_vectors(self).min(axis=1))

    def prod(self) -> BatchedArray:  # type: ignore[override]
        """Return the product of each environment's elements."""
        return _batched(_vectors(self).prod(axis=1))

    def __pow__(self, exponent: float) -> BatchedArray:  # type: ignore[override]
        """Return powers as numpy computes them for one environment: the last bit differs between scalars and arrays."""
        if self.ndim > 1:
            return super().__pow__(exponent).view(BatchedArray)
        return np.float_power(self, exponent).view(BatchedArray)

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        """Apply a numpy function to each environment's arrays."""
        if function in _FUNCTIONS:
            return _FUNCTIONS[function](*arguments)
        if function in _ALIKE:  # numpy's own result is correct; np.where loses the subclass
            return super().__array_function__(function, types, arguments, keywords).view(BatchedArray)
        return NotImplemented


def batched(values: Array) -> BatchedArray:
    """Return rows (N, *shape) as a BatchedArray (*shape, N), a view."""
    return _batched(values)


def rows(array: Array) -> Array:
    """Return an array (*shape, N) as contiguous rows (N, *shape)."""
    last = array.ndim - 1
    return np.ascontiguousarray(array.view(np.ndarray).transpose(last, *range(last)))


def _batched(values: Array) -> BatchedArray:
    return values.transpose(*range(1, values.ndim), 0).view(BatchedArray)


def _vectors(array: Array) -> Array:
    """Return an array (*shape, N) as contiguous vectors (N, elements)."""
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
