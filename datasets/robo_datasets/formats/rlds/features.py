"""Features of a dataset of TensorFlow Datasets, as features.json describes them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from robo_datasets.formats.encoded_picture import decoded
from robo_datasets.formats.recording import Array
from robo_datasets.formats.rlds.shards import Values
from robo_rl.errors import DatasetError, printable

STEPS = "steps"
DEEPEST = 20
MOST_NUMBERS = 1 << 24
"""Largest number of elements in one tensor of one step."""


@dataclass(frozen=True)
class Feature:
    """One named part of each step of an RLDS dataset: its kind, shape and encoding."""

    path: str
    """Path of the part in a step, such as observation/state."""
    kind: Literal["picture", "numbers", "text"]
    shape: tuple[int, ...] = ()
    dtype: str = ""
    encoding: str = "none"
    """compression of tensors: none, bytes or zlib"""

    def values(self, example: Mapping[str, Values]) -> Any:
        """Return the values of all steps: numbers (N, *shape), pictures (N, H, W, C), or a list of texts.

        Raises DatasetError if the example lacks them, or they contradict the description.
        """
        stored = example.get(f"{STEPS}/{self.path}")
        if stored is None:
            raise DatasetError(f"An episode lacks {self.path}.", allowed="all that features.json names")
        if self.kind == "numbers":
            return self._numbers(stored)
        if not isinstance(stored, list):
            raise DatasetError(f"{self.path} holds numbers.", allowed="bytes, as features.json says")
        if self.kind == "text":
            return [content.decode(errors="replace") for content in stored]
        pictures = [decoded(content, self.shape[2]) for content in stored]
        shapes = {picture.shape for picture in pictures}
        wanted = (*self.shape[:2], self.shape[2])
        if len(shapes) > 1 or (min(wanted) > 0 and shapes != {wanted}):
            raise DatasetError(f"Pictures of {self.path} have another size.", got=sorted(shapes), allowed=wanted)
        return np.stack(pictures)

    def _numbers(self, stored: Values) -> Array:
        dtype, size = np.dtype(self.dtype), math.prod(self.shape)
        if isinstance(stored, list):
            try:
                contents = [
                    _unpacked(content, size * dtype.itemsize) if self.encoding == "zlib" else content for content in stored
                ]
                return np.stack([np.frombuffer(content, dtype).reshape(self.shape) for content in contents])
            except (ValueError, zlib.error) as error:
                got = printable(str(error), 100)
                raise DatasetError(f"{self.path} has not the bytes of its shape.", got=got, allowed=self.shape) from None
        if len(stored) % size:
            raise DatasetError(f"{self.path} has not the numbers of its shape.", got=len(stored), allowed=self.shape)
        return stored.reshape(-1, *self.shape).astype(dtype)


def features_of(described: Any) -> tuple[dict[str, Feature], list[str]]:
    """Return the features of the steps by path, and the paths of those that are not read.

    Raises DatasetError if it describes no episodes of steps.
    """
    left_out: list[str] = []
    top = _parts(described)
    sequence = top.get(STEPS, {}).get("sequence") if isinstance(top.get(STEPS), dict) else None
    if not isinstance(sequence, dict) or not isinstance(sequence.get("feature"), dict):
        got, fix = ", ".join(map(str, top)) or "nothing", "name the folder of a dataset in RLDS"
        raise DatasetError("features.json describes no episodes.", got=got, allowed="a dataset `steps`", fix=fix)
    found = {feature.path: feature for feature in _walk(sequence["feature"], "", left_out, 0)}
    return found, left_out


def _parts(described: Any) -> Mapping[str, Any]:
    inner = described.get("featuresDict") if isinstance(described, dict) else None
    parts = inner.get("features") if isinstance(inner, dict) else None
    return parts if isinstance(parts, dict) else {}


def _walk(described: Any, path: str, left_out: list[str], depth: int) -> Iterator[Feature]:
    if depth > DEEPEST:
        raise DatasetError("features.json is nested too deeply.", allowed=f"{DEEPEST} levels")
    if parts := _parts(described):
        for name, part in parts.items():
            yield from _walk(part, f"{path}/{name}".strip("/"), left_out, depth + 1)
        return
    feature = _feature(described, path)
    if feature is None:
        left_out.append(path)
    else:
        yield feature


def _feature(described: Any, path: str) -> Feature | None:
    """Return a feature, None if it is of a kind that is not read."""
    if not isinstance(described, dict):
        return None
    if isinstance(described.get("text"), dict):
        return Feature(path, "text")
    about = described.get("image") or described.get("tensor")
    if not isinstance(about, dict):
        return None
    try:
        shape = tuple(int(size) for size in about.get("shape", {}).get("dimensions", ()))
        dtype = np.dtype(str(about["dtype"]))
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    if "image" in described:
        is_read = dtype == np.uint8 and len(shape) == 3 and shape[2] in (1, 3, 4)
        return Feature(path, "picture", shape, dtype.name) if is_read else None
    encoding = str(about.get("encoding", "none"))
    is_read = dtype.kind in "biuf" and all(size > 0 for size in shape) and math.prod(shape) <= MOST_NUMBERS
    return Feature(path, "numbers", shape, dtype.name, encoding) if is_read and encoding in ("none", "bytes", "zlib") else None


def _unpacked(content: bytes, size: int) -> bytes:
    """Return zlib data decompressed; raises ValueError if that is more than `size` bytes."""
    packed = zlib.decompressobj()
    found = packed.decompress(content, size + 1)
    if len(found) > size:
        raise ValueError(f"more than {size} bytes")
    return found
