"""Gymnasium's vector format of `infos`: each key holds an array over environments, and `_key` says for which it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Infos = dict[str, Any]


def tell(infos: Infos, facts: Mapping[str, Any], mask: Mask) -> None:
    """Adds facts that are the same in all environments of the mask, beside what other environments tell."""
    for name, value in facts.items():
        kind = object if isinstance(value, str) else type(value)
        before = infos.get(name, np.zeros(len(mask), kind) if kind is not object else np.full(len(mask), None, object))
        infos[name] = np.where(mask, np.asarray(value, kind), before)
        infos[f"_{name}"] = mask | infos.get(f"_{name}", np.zeros_like(mask))


def only(infos: Infos, mask: Mask) -> Infos:
    """Returns what the environments of the mask tell; other entries are zero, or None."""
    kept = {}
    for name, value in infos.items():
        told = infos.get(f"_{name}")
        if told is None or not (told & mask).any():
            continue
        kept[name] = only(value, mask) if isinstance(value, dict) else _zero_outside(value, mask)
        kept[f"_{name}"] = told & mask
    return kept


def _zero_outside(values: npt.NDArray[Any], mask: Mask) -> npt.NDArray[Any]:
    return np.where(mask, values, np.full((), None if values.dtype == object else 0, values.dtype))
