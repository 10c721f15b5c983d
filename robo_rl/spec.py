"""What an environment observes and accepts: names, shapes, units, frames, limits and rates.

SI units, angles in rad, quaternions (w, x, y, z), images uint8 (H, W, 3) RGB. Both Gymnasium spaces derive from the spec.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidAction, InvalidObservation, InvalidSetting, SpecMismatch, UnknownName

Role = Literal["proprioception", "object", "image", "goal", "privileged"]
ActionMode = Literal["joint_position", "joint_velocity", "joint_torque", "end_effector_delta", "drive", "discrete", "unknown"]
Observation = Mapping[str, npt.NDArray[Any]]
Limit = float | tuple[float, ...]

INTERFACE = ("observation", "observation order", "action")
"""What a policy depends on."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class ArraySpec:
    """One named array of an observation."""

    name: str
    """Flat snake_case: Stable-Baselines3 refuses nested dicts and dots, HDF5 and LeRobot reserve "/"."""
    shape: tuple[int, ...]
    dtype: str = "float32"
    low: Limit = -np.inf
    """Lowest value, in `unit`: one number, or one per element of a vector."""
    high: Limit = np.inf
    unit: str = "1"
    """SI unit such as "m", "rad/s", "N"; "1" for numbers without one, "mixed" where a source packs several together."""
    frame: str | None = None
    """"world", "base", "ego", a body's name, or None where no frame applies or the source states none."""
    role: Role = "proprioception"
    """"proprioception" of the robot, "object" measured outside it, "image", "goal", or "privileged": the last may
    feed a critic or a reward, never a deployed policy."""
    meaning: str = field(default="", compare=False)
    """What the numbers are, in words, element by element where they differ; "" where the source does not say. No part of the
    contract: it changes no fingerprint, and specs that differ in it alone are equal."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting(
                f"Observation name {self.name!r} is not flat snake_case.", got=self.name, allowed=_NAME.pattern
            )
        if self.role not in get_args(Role):
            raise InvalidSetting(f"Unknown role of observation {self.name!r}.", got=self.role, allowed=get_args(Role))
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype).name)
        object.__setattr__(self, "low", _as_limit(self.low))
        object.__setattr__(self, "high", _as_limit(self.high))

    @property
    def space(self) -> gymnasium.spaces.Box:
        """Box with the limits broadcast to the shape."""
        low, high = (np.broadcast_to(np.asarray(v, self.dtype), self.shape) for v in (self.low, self.high))
        return gymnasium.spaces.Box(low, high, self.shape, np.dtype(self.dtype).type)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class ObservationSpec(Mapping[str, ArraySpec]):
    """Ordered, named arrays; order is the order of concatenation in every flat view."""

    arrays: tuple[ArraySpec, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", tuple(self.arrays))
        names = [array.name for array in self.arrays]
        if len(set(names)) != len(names):
            raise InvalidSetting("Two arrays of an observation share a name.", got=names, allowed="unique names")

    def __getitem__(self, name: str) -> ArraySpec:
        for array in self.arrays:
            if array.name == name:
                return array
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (array.name for array in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def space(self) -> gymnasium.spaces.Dict:
        """Flat Dict of boxes."""
        return gymnasium.spaces.Dict({array.name: array.space for array in self.arrays})

    def subset(self, *roles: Role) -> ObservationSpec:
        """Returns the arrays that have one of the roles, in order."""
        return ObservationSpec(tuple(array for array in self.arrays if array.role in roles))

    @property
    def vectors(self) -> ObservationSpec:
        """What a state policy may see: everything but images and privileged entries."""
        return self.subset("proprioception", "object", "goal")

    @property
    def visible(self) -> ObservationSpec:
        """What a policy may see: everything but privileged entries."""
        return ObservationSpec(tuple(array for array in self.arrays if array.role != "privileged"))

    def validate(self, observation: Observation) -> None:
        """Raises InvalidObservation unless keys, shapes, types and finiteness are right."""
        if set(observation) != set(self):
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


@dataclass(frozen=True)
class ActionSpec:
    """What a policy commands. Policies speak [-1, 1]^A; the two methods below are the only places that scale."""

    names: tuple[str, ...]
    """One name per element; for mode "discrete" one name per choice."""
    low: tuple[float, ...] = ()
    """Physical value at -1, in the element's unit."""
    high: tuple[float, ...] = ()
    """Physical value at +1, in the element's unit."""
    units: tuple[str, ...] = ()
    mode: ActionMode = "joint_position"
    control_period: float | None = None
    """[s] between two actions; None where time has no meaning (grid worlds)."""
    frame: str | None = None
    """Frame of Cartesian elements."""

    def __post_init__(self) -> None:
        for name in ("names", "units"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("low", "high"):  # plain floats, so that messages do not read "np.float64(-1.0)"
            object.__setattr__(self, name, tuple(float(limit) for limit in getattr(self, name)))
        if self.mode not in get_args(ActionMode):
            raise InvalidSetting("Unknown action mode.", got=self.mode, allowed=get_args(ActionMode))
        if self.is_discrete:
            return
        sizes = {name: len(getattr(self, name)) for name in ("names", "low", "high", "units")}
        if len(set(sizes.values())) != 1:
            raise InvalidSetting(
                "names, low, high and units of an action differ in length.", got=sizes, allowed="equal lengths"
            )
        if not all(low < high and np.isfinite([low, high]).all() for low, high in zip(self.low, self.high, strict=True)):
            raise InvalidSetting(
                "An action limit is empty or not finite.", got=(self.low, self.high), allowed="finite low < high"
            )

    @cached_property
    def _bounds(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        low = np.asarray(self.low, np.float64)
        return low, np.asarray(self.high, np.float64) - low

    @cached_property
    def _half_width(self) -> npt.NDArray[np.float64]:
        return 0.5 * self._bounds[1]  # exact

    @property
    def is_discrete(self) -> bool:
        """True where the action is one int64 that chooses among `names`."""
        return self.mode == "discrete"

    @property
    def size(self) -> int:
        """Number of elements A of a continuous action, or of choices of a discrete one."""
        return len(self.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """(A,) for a continuous action, () for a discrete one."""
        return () if self.is_discrete else (self.size,)

    @property
    def dtype(self) -> str:
        """Type of an action as policies emit it."""
        return "int64" if self.is_discrete else "float32"

    @property
    def space(self) -> gymnasium.spaces.Box | gymnasium.spaces.Discrete:
        """Box [-1, 1]^A, or Discrete(n)."""
        if self.is_discrete:
            return gymnasium.spaces.Discrete(self.size)
        return gymnasium.spaces.Box(-1.0, 1.0, (self.size,), np.float32)

    def validate(self, action: npt.ArrayLike) -> npt.NDArray[Any]:
        """Returns the action as an array; raises InvalidAction on a wrong shape, NaN, infinity or unknown choice."""
        value = np.asarray(action)
        if value.shape != self.shape:
            raise InvalidAction(
                "The action has the wrong shape.", got=list(value.shape), allowed=f"{list(self.shape)} for {self.names}"
            )
        if self.is_discrete:
            if value.dtype.kind not in "iu" or not 0 <= value < self.size:
                raise InvalidAction(
                    "Unknown discrete action.", got=value, allowed=f"integer 0 to {self.size - 1}: {self.names}"
                )
        elif not np.isfinite(value).all():
            raise InvalidAction(
                "The action holds NaN or infinity.",
                got=value,
                allowed="finite numbers in [-1, 1]",
                fix="look at the policy: its weights or its input are not finite",
            )
        return value

    def validate_batch(self, actions: npt.ArrayLike, count: int) -> npt.NDArray[Any]:
        """Returns the actions of `count` environments, a row each; raises InvalidAction that says which rows are wrong."""
        value = np.asarray(actions)
        if value.shape != (count, *self.shape):
            raise InvalidAction(
                "The actions have the wrong shape.",
                got=list(value.shape),
                allowed=f"{[count, *self.shape]}: one row for each of {count} environments, of {self.names}",
            )
        if self.is_discrete:
            if value.dtype.kind not in "iu" or (wrong := np.flatnonzero((value < 0) | (value >= self.size))).size:
                at = "of every environment" if value.dtype.kind not in "iu" else f"of environments {wrong.tolist()}"
                raise InvalidAction(
                    f"Unknown discrete actions {at}.", got=value, allowed=f"integer 0 to {self.size - 1}: {self.names}"
                )
        elif np.count_nonzero(np.isfinite(value)) < value.size:  # thrice as fast as all()
            wrong = np.flatnonzero(~np.isfinite(value).all(axis=1))
            raise InvalidAction(
                f"The actions of environments {wrong.tolist()} hold NaN or infinity.",
                got=value[wrong],
                allowed="finite numbers in [-1, 1]",
                fix="look at the policy: its weights or its input are not finite",
            )
        return value

    def to_physical_batch(self, actions: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
        """Scales the actions (count, A) of many environments as `to_physical` scales one, to the same bits."""
        value = self.validate_batch(actions, count)
        if self.is_discrete:
            return value.astype(np.float64)
        return self._scale(value)

    def _scale(self, value: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Returns the physical values of finite actions whose last axis is A; in place, because batches come every step."""
        physical = value.astype(np.float64)
        np.maximum(physical, -1.0, out=physical)
        np.minimum(physical, 1.0, out=physical)
        physical += 1.0
        physical *= self._half_width
        physical += self._bounds[0]
        return physical

    def to_physical(self, action: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Scales a policy's action from [-1, 1] to physical units, clipping at the limits.

        Raises InvalidAction before anything is clipped, because clipping lets NaN through.
        """
        value = self.validate(action)
        return value.astype(np.float64) if self.is_discrete else self._scale(value)

    def to_normalized(self, physical: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Scales physical units to [-1, 1], clipping at the limits; the inverse of `to_physical`."""
        value = np.asarray(physical, np.float64)
        if value.shape != self.shape or not np.isfinite(value).all():
            raise InvalidAction("The physical action is not finite or has the wrong shape.", got=value, allowed=self.shape)
        if self.is_discrete:
            return value.astype(np.float32)
        low, width = self._bounds
        return np.clip((value - low) / width * 2.0 - 1.0, -1.0, 1.0).astype(np.float32)


@dataclass(frozen=True)
class EnvironmentSpec:
    """Everything that a policy, an episode or a checkpoint must agree on with an environment."""

    name: str
    observation: ObservationSpec
    action: ActionSpec
    version: int = 0
    instruction: str | None = None
    """The task in words; may change from episode to episode where an environment says so in `info`."""
    max_steps: int | None = None
    success_rule: str | None = None
    """When an episode counts as a success, in words; None where the environment has no notion of it."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; infinities become the strings "inf" and "-inf"."""
        plain: dict[str, Any] = _plain(self)
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EnvironmentSpec:
        """Inverse of `to_json`."""
        values = _parse(dict(data))
        arrays = tuple(ArraySpec(**array) for array in values.pop("observation")["arrays"])
        return cls(observation=ObservationSpec(arrays), action=ActionSpec(**values.pop("action")), **values)

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that change with anything in the spec but the words (instruction, success rule, meanings)."""
        text = json.dumps(_contract(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differences(self, other: EnvironmentSpec) -> list[str]:
        """Returns one line per field that differs, `self` first."""
        return _differences("", _contract(self), _contract(other))

    def require(self, other: EnvironmentSpec, *, what: str, fix: str | None = None) -> None:
        """Raises SpecMismatch with a field-by-field difference unless `other` has the same contract; `fix` says what to do."""
        if lines := self.differences(other):
            raise SpecMismatch(what, lines, fix=fix)

    def require_interface(self, other: EnvironmentSpec, *, what: str) -> None:
        """Raises SpecMismatch unless a policy of this spec can act in `other`.

        Observations and actions must agree in everything, rate included; name, version and time limit may differ, so that a
        policy can be tried on another task or on a replica, and so may what is privileged, which no policy sees.
        """
        visible = (replace(spec, observation=spec.observation.visible) for spec in (self, other))
        mine, others = ({key: _contract(spec)[key] for key in INTERFACE} for spec in visible)
        if lines := _differences("", mine, others):
            raise SpecMismatch(what, lines)


def specification(environment: gymnasium.Env[Any, Any]) -> EnvironmentSpec:
    """Returns the `environment_spec` of an environment, looking through its wrappers."""
    try:
        spec = environment.get_wrapper_attr("environment_spec")
    except AttributeError:
        raise UnknownName(
            "attribute of the environment", "environment_spec", [], fix="wrap it: robo_sims has a wrapper for each family"
        ) from None
    assert isinstance(spec, EnvironmentSpec)
    return spec


def _as_limit(value: Any) -> Limit:
    array = np.asarray(value, np.float64)
    if array.ndim == 0 or (array.size and (array == array.flat[0]).all()):
        return float(array.flat[0])
    return tuple(float(x) for x in array.ravel()) if array.ndim == 1 else _not_a_vector(array)


def _not_a_vector(array: npt.NDArray[Any]) -> Limit:
    raise InvalidSetting("Limits of an array must be one number or one per element of a vector.", got=list(array.shape))


def _contract(spec: EnvironmentSpec) -> dict[str, Any]:
    data = spec.to_json()
    for array in data["observation"]["arrays"]:
        array.pop("meaning", None)
    data["observation"] = {array.pop("name"): array for array in data["observation"]["arrays"]}
    data["observation order"] = list(data["observation"])
    return {key: value for key, value in data.items() if key not in ("instruction", "success_rule")}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, ArraySpec | ObservationSpec | ActionSpec | EnvironmentSpec):
        plain = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        return {name: item for name, item in plain.items() if (name, item) != ("meaning", "")}  # as it always was
    return value


def _parse(value: Any, *, is_limit: bool = False) -> Any:
    """Turns lists into tuples, and the strings of infinite limits (but no other word "inf") into numbers."""
    if isinstance(value, dict):
        return {key: _parse(item, is_limit=key in ("low", "high")) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_parse(item, is_limit=is_limit) for item in value)
    return float(value) if is_limit and isinstance(value, str) else value


def _differences(path: str, a: Any, b: Any) -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [*a, *(key for key in b if key not in a)]
        return [
            line
            for key in keys
            for line in _differences(f"{path}.{key}".lstrip("."), a.get(key, "(absent)"), b.get(key, "(absent)"))
        ]
    return [] if a == b else [f"{path}: {a!r} here, {b!r} there"]
