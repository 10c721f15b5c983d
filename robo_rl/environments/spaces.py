"""Specs of environments that describe themselves only by Gymnasium's spaces.

An observation space becomes named arrays, an action space a coding of actions. Nothing is guessed: units are "unknown", frames
None. A uint8 array with two or three axes and the size of a picture is a picture. Any other space becomes a vector by
Gymnasium's flattening, which makes a choice one-hot.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, flatten, flatten_space

from robo_rl.errors import EnvironmentFailed, InvalidAction, InvalidSetting, printable
from robo_rl.spec.environment import ActionSpec, ArraySpec, ObservationSpec, Role

Space = gymnasium.Space[Any]
UNKNOWN = "unknown"
"""Unit of a number whose unit the space does not give."""
SMALLEST_PICTURE, MOST_CHANNELS = 16, 12
"""Smallest side [pixel] and most channels of a picture; other uint8 arrays are numbers, such as codes of grid cells."""
MOST_CHOICES = 1024
"""Largest number of combinations of discrete choices that can become one discrete action."""
GOALS = ("desired_goal", "goal")
"""Keys of goals in Gymnasium's goal-conditioned environments."""
Path = tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """One array of a derived observation: where it stands in the original observation, its space and its axes."""

    path: Path
    """Keys that lead to the array through nested dicts of the original observation."""
    space: Space
    """Gymnasium's space of the array."""
    array: ArraySpec
    order: tuple[int, ...] | None = None
    """Order of the axes that makes a picture (H, W, channels); None for a vector."""

    def read(self, observation: Any, name: str) -> npt.NDArray[Any]:
        """Return the array from an original observation; raises EnvironmentFailed if it is not in its space.

        name: name of the environment, for the message.
        """
        try:
            value = observation
            for key in self.path:
                value = value[key]
            if self.order is not None:
                picture = np.asarray(value).reshape(np.shape(value) + (1,) * (3 - np.ndim(value)))
                found = np.ascontiguousarray(np.transpose(picture, self.order))
            else:
                found = np.array(flatten(self.space, _whole(self.space, value)), self.array.dtype)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            found = None
        if found is None or found.shape != self.array.shape or found.dtype != self.array.dtype:
            where = "".join(f"[{key!r}]" for key in self.path)
            raise EnvironmentFailed(
                f"{name} returned an observation{where} that is not in its observation_space.",
                got=printable(repr(observation), 200),
                allowed=self.space,
                fix=f"look at reset() and step() of {name}",
            )
        return found


def entries_of(space: Space, name: str) -> tuple[Entry, ...]:
    """Return the arrays of an observation space, with nested dicts flattened.

    Args:
        space: The observation space.
        name: Name of the environment in errors.

    Raises:
        InvalidSetting: The space has no arrays, or arrays of no fixed size, or two keys that become the same name.
    """
    entries = tuple(_entry(path, leaf, name) for path, leaf in _leaves((), space))
    if not entries:
        raise InvalidSetting(f"The observations of {name} are empty.", got=space, allowed="one array or more")
    names = [entry.array.name for entry in entries]
    if len({*names}) < len(names):
        got = ", ".join(sorted({each for each in names if names.count(each) > 1}))
        raise InvalidSetting(f"Two entries of the observations of {name} have one name.", got=got, fix="rename a key")
    return entries


def observation_spec(entries: tuple[Entry, ...]) -> ObservationSpec:
    """Return the spec of observations with these arrays."""
    return ObservationSpec(tuple(entry.array for entry in entries))


def _leaves(path: Path, space: Space) -> Iterator[tuple[Path, Space]]:
    if isinstance(space, Dict):
        for key, inner in space.spaces.items():
            yield from _leaves((*path, key), inner)
    else:
        yield path, space


def _entry(path: Path, space: Space, name: str) -> Entry:
    key = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", "_".join(map(str, path))).lower()).strip("_")
    key = key if re.match(r"[a-z]", key) else f"entry_{key}".rstrip("_")
    if isinstance(space, Box) and (picture := _picture(space)) is not None:
        shape, order = picture
        role: Role = "image"
        camera = f"camera_{key.removeprefix('camera_') if path else 'view'}"
        return Entry(path, space, ArraySpec(camera, shape, "uint8", 0, 255, role=role), order)
    if (
        not isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary)
        or space.dtype is None
        or space.dtype.kind not in "fiub"
    ):
        raise InvalidSetting(
            f"The observation space of {name} has no arrays of fixed size.",
            got=f"{'.'.join(map(str, path)) or 'it'}: {space}",
            allowed="Box, Discrete, MultiDiscrete, MultiBinary, and Dict of these",
            fix="wrap it so that it has, for example in gymnasium.wrappers.FlattenObservation or TransformObservation",
        )
    flat = flatten_space(space)
    assert isinstance(flat, Box)
    role = "goal" if path and path[-1] in GOALS else "proprioception"
    low, high = (_limits(limit) for limit in (flat.low, flat.high))
    unit = UNKNOWN if isinstance(space, Box) else "1"
    return Entry(path, space, ArraySpec(key if path else "observation", flat.shape, low=low, high=high, unit=unit, role=role))


def _picture(space: Box) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """Return the shape (H, W, channels) of a picture and the order of axes that makes it; None for other arrays."""
    shape = (*space.shape, 1) if len(space.shape) == 2 else space.shape
    if space.dtype != np.uint8 or len(shape) != 3:
        return None
    for order in ((0, 1, 2), (1, 2, 0)):  # channels last, and first
        height, width, channels = (shape[axis] for axis in order)
        if min(height, width) >= SMALLEST_PICTURE and channels <= MOST_CHANNELS:
            return (height, width, channels), order
    return None


def _limits(limits: npt.NDArray[Any]) -> Any:
    """Return limits as float64; the largest values of float32 become infinite, which means no limit."""
    values = limits.astype(np.float64).ravel()
    return np.where(np.abs(values) >= float(np.finfo(np.float32).max), np.copysign(np.inf, values), values)


def _whole(space: Space, value: Any) -> Any:
    """Return the value of a Discrete as an int, which Gymnasium's flattening needs; other values unchanged."""
    return int(value) if isinstance(space, Discrete) else value


class ActionCoding(Protocol):
    """Interface of codings: the action spec that learners see, and the conversion to and from the environment's actions."""

    spec: ActionSpec

    def decode(self, action: npt.NDArray[Any]) -> Any:
        """Convert an action of the spec, in [-1, 1]^A or the number of a choice, into an action of the environment's space."""

    def encode(self, action: Any) -> npt.NDArray[Any]:
        """Convert an action of the environment's space into one of the spec, the inverse of `decode`; raises InvalidAction."""


class BoxActions:
    """Coding of actions: a Gymnasium Box of floats with limits, as A numbers in [-1, 1]."""

    def __init__(self, space: Box) -> None:
        self._space, count = space, math.prod(space.shape)
        names = ("action",) if count == 1 else tuple(f"action_{index}" for index in range(count))
        low, high = (tuple(limit.astype(np.float64).ravel()) for limit in (space.low, space.high))
        self.spec = ActionSpec(names, low, high, (UNKNOWN,) * count, "unknown")

    def decode(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the value of the Gymnasium space, in physical units, for an action (A,) in [-1, 1]."""
        physical = self.spec.to_physical(action).reshape(self._space.shape).astype(self._space.dtype)
        found: npt.NDArray[Any] = np.clip(physical, self._space.low, self._space.high)  # of float64, rounded to float32
        return found

    def encode(self, action: Any) -> npt.NDArray[np.float32]:
        """Return the action (A,) in [-1, 1] for a value of the Gymnasium space; raises InvalidAction for another shape."""
        value = np.asarray(action, np.float64)
        if value.shape != self._space.shape:
            got, allowed = list(value.shape), f"{list(self._space.shape)}, the shape of {self._space}"
            fix = "look at what the policy returns; one number is np.array([number])"
            raise InvalidAction("The action has the wrong shape.", got=got, allowed=allowed, fix=fix)
        found: npt.NDArray[np.float32] = np.clip(self.spec.to_normalized(value.ravel()), -1.0, 1.0)
        return found


class ChoiceActions:
    """Coding of actions: a Discrete, MultiDiscrete or MultiBinary space, as one discrete action.

    Each combination of choices has a number.
    """

    def __init__(self, space: Discrete | MultiDiscrete | MultiBinary) -> None:
        if isinstance(space, Discrete):
            self._choices: list[Any] = [space.dtype.type(space.start + index) for index in range(int(space.n))]
            names = tuple(str(choice) for choice in self._choices)
        else:
            counts = space.nvec if isinstance(space, MultiDiscrete) else np.full(space.shape, 2)
            start = space.start if isinstance(space, MultiDiscrete) else np.zeros(space.shape)
            combinations = itertools.product(*(range(count) for count in counts.ravel()))
            self._choices = [(np.reshape(each, space.shape) + start).astype(space.dtype) for each in combinations]
            names = tuple(",".join(map(str, choice.ravel())) for choice in self._choices)
        self.spec = ActionSpec(names, mode="discrete")

    def decode(self, action: npt.NDArray[Any]) -> Any:
        """Return the value of the Gymnasium space that belongs to a choice, counted from 0."""
        return self._choices[int(self.spec.validate(action))]

    def encode(self, action: Any) -> npt.NDArray[np.int64]:
        """Return the number of the choice, counted from 0, for a value of the Gymnasium space.

        Raises InvalidAction if there is none.
        """
        found = [index for index, choice in enumerate(self._choices) if np.array_equal(choice, action)]
        if not found:
            raise InvalidAction("Unknown discrete action.", got=action, allowed=", ".join(self.spec.names))
        return np.array(found[0], np.int64)


def coding_of(space: Space, name: str) -> ActionCoding:
    """Return the coding of an action space.

    Args:
        space: The action space.
        name: Name of the environment in errors.

    Raises:
        InvalidSetting: A Box lacks finite limits, combinations exceed `MOST_CHOICES`, or the space is of another kind.
    """
    if isinstance(space, Box) and space.dtype.kind == "f":
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all() and (space.low < space.high).all()):
            raise InvalidSetting(
                f"The actions of {name} have no limits, between which a policy's [-1, 1] could be scaled.",
                got=space,
                allowed="a Box with finite low < high",
                fix="give its action_space limits, or wrap it in gymnasium.wrappers.TransformAction with a space that has some",
            )
        return BoxActions(space)
    if isinstance(space, Discrete) or (isinstance(space, MultiDiscrete | MultiBinary) and _combinations(space) <= MOST_CHOICES):
        return ChoiceActions(space)
    raise InvalidSetting(
        f"The actions of {name} are of a kind that no learner here has.",
        got=space,
        allowed=f"a Box of floats, Discrete, or MultiDiscrete and MultiBinary of at most {MOST_CHOICES} combinations",
        fix="wrap it in one of these, for example in gymnasium.wrappers.TransformAction",
    )


def _combinations(space: MultiDiscrete | MultiBinary) -> int:
    """Return the number of combinations of several choices."""
    return math.prod(map(int, space.nvec.ravel())) if isinstance(space, MultiDiscrete) else 2 ** math.prod(space.shape)
