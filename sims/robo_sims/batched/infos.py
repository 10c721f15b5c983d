"""Gymnasium's vector format of `infos`: each key has an array over environments, `_key` the mask of valid entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Infos = dict[str, Any]


def add_info(infos: Infos, facts: Mapping[str, Any], mask: Mask) -> None:
    """Add entries to `infos` for the environments of a mask.

    facts: name -> value for all of them, or array (N,). mask: (N,).
    """
    for name, fact in facts.items():
        values = np.asarray(fact, object if isinstance(fact, str) else None)
        infos[name] = np.where(mask, values, infos.get(name, _nothing(values)))
        infos[f"_{name}"] = mask | infos.get(f"_{name}", np.zeros_like(mask))


def select_info(infos: Infos, mask: Mask) -> Infos:
    """Return the infos of the environments of a mask (N,); the entries of others become 0 or None and are marked as invalid."""
    kept = {}
    for name, value in infos.items():
        valid = infos.get(f"_{name}")
        if valid is None or not (valid & mask).any():
            continue
        kept[name] = select_info(value, mask) if isinstance(value, dict) else np.where(mask, value, _nothing(value))
        kept[f"_{name}"] = valid & mask
    return kept


def _nothing(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.full((), None if values.dtype == object else 0, values.dtype)
