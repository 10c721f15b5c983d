"""Observation specs: names, shapes, units, frames and limits of arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidObservation, InvalidSetting

Role = Literal["proprioception", "object", "image", "goal", "privileged"]
Observation = Mapping[str, npt.NDArray[Any]]
Channels = Literal["rgb", "bgr"]
Limit = float | tuple[float, ...]
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class ArraySpec:
    """Spec of one named array of an observation: shape, type, unit, frame, limits, role."""

    name: str
    """Name in flat snake_case: Stable-Baselines3 refuses nested dicts and dots, HDF5 and LeRobot reserve "/"."""
    shape: tuple[int, ...]
    dtype: str = "float32"
    low: Limit = -np.inf
    """Lowest value, in `unit`: one number, or one per element of a vector."""
    high: Limit = np.inf
    """Highest value, in `unit`: one number, or one per element of a vector."""
    unit: str = "1"
    """SI unit such as "m", "rad/s", "N"; "1" for numbers without a unit, "mixed" for several units in one array."""
    frame: str | None = None
    """"world", "base", "ego", the name of a body, or None if no frame applies or none is known."""
    role: Role = "proprioception"
    """"proprioception" of the robot, "object" for measurements of objects, "image", "goal", or "privileged". A privileged entry
    may feed a critic or a reward, never a deployed policy."""
    meaning: str = field(default="", compare=False)
    """Meaning of the numbers in words, by element if the elements differ; "" if unknown. It is no part of the contract: it
    changes neither the fingerprint nor equality."""
    channels: Channels = "rgb"
    """Order of the colour channels of a picture; without meaning for other arrays."""
    history: int = 1
    """Number of consecutive observations that are concatenated along the last axis, the newest last; 1 without a history."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting(
                f"Observation name {self.name!r} is not flat snake_case.", got=self.name, allowed=_NAME.pattern
            )
        if self.role not in get_args(Role):
            raise InvalidSetting(f"Unknown role of observation {self.name!r}.", got=self.role, allowed=get_args(Role))
        if self.channels not in get_args(Channels):
            what = f"Unknown order of the colour channels of observation {self.name!r}."
            raise InvalidSetting(what, got=self.channels, allowed=get_args(Channels))
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype).name)
        object.__setattr__(self, "low", _as_limit(self.low))
        object.__setattr__(self, "high", _as_limit(self.high))
        if self.history < 1 or (self.history > 1 and (not self.shape or self.shape[-1] % self.history)):
            what = f"The history of observation {self.name!r} does not divide its last axis."
            raise InvalidSetting(what, got=f"{self.history} in {list(self.shape)}", allowed="a divisor from 1")

    @property
    def space(self) -> gymnasium.spaces.Box:
        """Gymnasium Box with the limits broadcast to the shape."""
        low, high = (np.broadcast_to(np.asarray(v, self.dtype), self.shape) for v in (self.low, self.high))
        return gymnasium.spaces.Box(low, high, self.shape, np.dtype(self.dtype).type)

    @property
    def size(self) -> int:
        """Number of elements of the array."""
        return math.prod(self.shape)

    def with_history(self, count: int) -> ArraySpec:
        """Return the spec of the newest `count` observations, concatenated along the last axis.

        Raises InvalidSetting for a scalar, which has no last axis.
        """
        if count == self.history:
            return self
        if not self.shape:
            raise InvalidSetting(f"Observation {self.name!r} is one number, and has no axis to stack along.", got=self.shape)
        *leading, last = self.shape
        low, high = (
            limit[: len(limit) // self.history] * count if isinstance(limit, tuple) else limit
            for limit in (self.low, self.high)
        )
        return replace(self, shape=(*leading, last // self.history * count), low=low, high=high, history=count)


@dataclass(frozen=True)
class ObservationSpec(Mapping[str, ArraySpec]):
    """Specs of the named arrays of an observation, in order. In flat vectors the arrays are concatenated in this order."""

    arrays: tuple[ArraySpec, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", tuple(self.arrays))
        names = [array.name for array in self.arrays]
        if len(set(names)) != len(names):
            raise InvalidSetting("Two arrays of an observation share a name.", got=names, allowed="unique names")

    @cached_property
    def _named(self) -> dict[str, ArraySpec]:
        return {array.name: array for array in self.arrays}

    def __getitem__(self, name: str) -> ArraySpec:
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def space(self) -> gymnasium.spaces.Dict:
        """Gymnasium Dict with one Box per array."""
        return gymnasium.spaces.Dict({array.name: array.space for array in self.arrays})

    @property
    def size(self) -> int:
        """Number of elements of all arrays together."""
        return sum(array.size for array in self.arrays)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Name of each column that `stack` returns, such as "joint_position[3]"."""
        return tuple(f"{array.name}[{place}]" for array in self.arrays for place in range(array.size))

    def subset(self, *roles: Role) -> ObservationSpec:
        """Return the arrays that have one of the roles, in their order."""
        return ObservationSpec(tuple(array for array in self.arrays if array.role in roles))

    @property
    def vectors(self) -> ObservationSpec:
        """Entries that a policy without pictures may read: all but images and privileged entries."""
        return self.subset("proprioception", "object", "goal")

    @property
    def visible(self) -> ObservationSpec:
        """Entries that a policy may read: all but privileged entries."""
        return ObservationSpec(tuple(array for array in self.arrays if array.role != "privileged"))

    def newest(self, observations: Observation) -> Observation:
        """Return observations (..., *shape) in which each frame stack is reduced to its newest part."""
        last = {array.name: array.shape[-1] // array.history for array in self.arrays if array.history > 1}
        if not last:
            return observations
        return {name: value[..., -last[name] :] if name in last else value for name, value in observations.items()}

    def stack(self, observations: Observation) -> npt.NDArray[np.float32]:
        """Return the arrays of B observations, flattened and concatenated, as float32 (B, D).

        (B, 0) for a spec without arrays.
        """
        rows = len(next(iter(observations.values())))
        flat = [np.asarray(observations[name], np.float32).reshape(rows, -1) for name in self]
        return flat[0] if len(flat) == 1 else np.concatenate([np.zeros((rows, 0), np.float32), *flat], axis=1)

    def validate(self, observation: Observation) -> None:
        """Raise InvalidObservation unless keys, shapes and types match the spec and all numbers are finite."""
        if observation.keys() != self._named.keys():
            raise InvalidObservation(
                "The observation has other keys than its spec.", got=sorted(observation), allowed=sorted(self)
            )
        for array in self.arrays:
            value = np.asarray(observation[array.name])
            if value.shape != array.shape or value.dtype != array.dtype:
                raise InvalidObservation(
                    f"Observation {array.name!r} has the wrong shape or type.",
                    got=f"{value.dtype}{list(value.shape)}",
                    allowed=f"{array.dtype}{list(array.shape)}",
                )
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise InvalidObservation(
                    f"Observation {array.name!r} holds NaN or infinity.",
                    got=value,
                    allowed="finite numbers",
                    fix="look at the simulator or sensor that produced it; nothing is replaced silently",
                )


def _as_limit(value: Any) -> Limit:
    array = np.asarray(value, np.float64)
    if array.ndim == 0 or (array.size and (array == array.flat[0]).all()):
        return float(array.flat[0])
    return tuple(float(x) for x in array.ravel()) if array.ndim == 1 else _not_a_vector(array)


def _not_a_vector(array: npt.NDArray[Any]) -> Limit:
    raise InvalidSetting("Limits of an array must be one number or one per element of a vector.", got=list(array.shape))
