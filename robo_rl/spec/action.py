"""Action specs: names, units and limits of the elements of an action, and their scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidAction, InvalidSetting

ActionMode = Literal[
    "joint_position", "joint_velocity", "joint_torque", "end_effector_delta", "impedance", "drive", "discrete", "unknown"
]


@dataclass(frozen=True)
class ActionSpec:
    """Spec of an environment's action: names, units and limits of its elements, control period.

    Policies return values in [-1, 1]^A; `to_physical` and `to_normalized` convert them to physical units and back.
    """

    names: tuple[str, ...]
    """One name per element; for mode "discrete" one name per choice."""
    low: tuple[float, ...] = ()
    """Physical value of each element at the action -1, in the element's unit."""
    high: tuple[float, ...] = ()
    """Physical value of each element at the action +1, in the element's unit."""
    units: tuple[str, ...] = ()
    """SI unit of each element, such as "m" or "rad/s"."""
    mode: ActionMode = "joint_position"
    """Meaning of the action for the robot or simulator; "discrete" for a choice among `names`."""
    control_period: float | None = None
    """[s] between two actions; None if time has no meaning (grid worlds)."""
    frame: str | None = None
    """Frame of Cartesian elements; None if there are none."""

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

    @cached_property
    def is_discrete(self) -> bool:
        """True if an action is one int64 that chooses among `names`."""
        return self.mode == "discrete"

    @cached_property
    def size(self) -> int:
        """Number of elements A of a continuous action, or of choices of a discrete one."""
        return len(self.names)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """(A,) for a continuous action, () for a discrete one."""
        return () if self.is_discrete else (self.size,)

    @cached_property
    def dtype(self) -> str:
        """Type of an action as a policy returns it: "float32" or "int64"."""
        return "int64" if self.is_discrete else "float32"

    @property
    def space(self) -> gymnasium.spaces.Box | gymnasium.spaces.Discrete:
        """Gymnasium space: Box [-1, 1]^A, or Discrete(n)."""
        if self.is_discrete:
            return gymnasium.spaces.Discrete(self.size)
        return gymnasium.spaces.Box(-1.0, 1.0, (self.size,), np.float32)

    def random(self, generator: np.random.Generator, *leading: int) -> npt.NDArray[Any]:
        """Return uniformly random actions: (*leading, A) float32 in [-1, 1], or (*leading,) int64 choices."""
        shape = (*leading, *self.shape)
        if self.is_discrete:
            return generator.integers(self.size, size=shape)
        return generator.uniform(-1.0, 1.0, shape).astype(np.float32)

    def validate(self, action: npt.ArrayLike) -> npt.NDArray[Any]:
        """Check an action and return it as an array of shape (A,) or ().

        Raises InvalidAction on a wrong shape, NaN, infinity or unknown choice.
        """
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
        """Check the actions of `count` environments and return them as an array (count, A) or (count,).

        Raises InvalidAction, which names the wrong rows, on a wrong shape, NaN, infinity or an unknown choice.
        """
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
        """Scale actions (count, A) from [-1, 1] to physical units; each row is bit-identical to the result of `to_physical`.

        Raises InvalidAction as `validate_batch` does. Discrete choices (count,) are returned as float64.
        """
        value = self.validate_batch(actions, count)
        if self.is_discrete:
            return value.astype(np.float64)
        return self._scale(value)

    def _scale(self, value: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the physical values of finite actions whose last axis is A; in place, because batches come every step."""
        physical = value.astype(np.float64)
        np.maximum(physical, -1.0, out=physical)
        np.minimum(physical, 1.0, out=physical)
        physical += 1.0
        physical *= self._half_width
        physical += self._bounds[0]
        return physical

    def to_physical(self, action: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Scale an action (A,) from [-1, 1] to physical units (A,) float64; values beyond [-1, 1] are clipped.

        Raises InvalidAction for NaN, infinity or a wrong shape, before clipping, because clipping lets NaN through.
        """
        value = self.validate(action)
        return value.astype(np.float64) if self.is_discrete else self._scale(value)

    def to_normalized(self, physical: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Scale an action (A,) from physical units to [-1, 1], float32, clipping at the limits.

        The inverse of `to_physical`.

        Raises InvalidAction for NaN, infinity or a wrong shape.
        """
        value = np.asarray(physical, np.float64)
        if value.shape != self.shape or not np.isfinite(value).all():
            raise InvalidAction(
                "The physical action is not finite or has the wrong shape.",
                got=value,
                allowed=f"finite numbers of shape {list(self.shape)} for {self.names}",
                fix="look at the policy that returned it: its weights or its input may not be finite",
            )
        if self.is_discrete:
            return value.astype(np.float32)
        low, width = self._bounds
        return np.clip((value - low) / width * 2.0 - 1.0, -1.0, 1.0).astype(np.float32)
