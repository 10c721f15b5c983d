"""Gymnasium's vector format of `infos`: each key holds an array over environments, and `_key` says for which it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Infos = dict[str, Any]


def tell(infos: Infos, facts: Mapping[str, Any], mask: Mask) -> None:
    """Adds facts, one for all or (N,), of the environments of the mask to what other environments tell."""
    for name, fact in facts.items():
        values = np.asarray(fact, object if isinstance(fact, str) else None)
        infos[name] = np.where(mask, values, infos.get(name, _nothing(values)))
        infos[f"_{name}"] = mask | infos.get(f"_{name}", np.zeros_like(mask))


def only(infos: Infos, mask: Mask) -> Infos:
    """Returns what the environments of the mask tell; other entries are zero, or None."""
    kept = {}
    for name, value in infos.items():
        told = infos.get(f"_{name}")
        if told is None or not (told & mask).any():
            continue
        kept[name] = only(value, mask) if isinstance(value, dict) else np.where(mask, value, _nothing(value))
        kept[f"_{name}"] = told & mask
    return kept


def _nothing(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.full((), None if values.dtype == object else 0, values.dtype)
