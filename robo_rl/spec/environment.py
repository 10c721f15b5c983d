"""Environment specs: names, shapes, units, frames, limits and rates of observations and actions.

SI units, angles in rad, quaternions (w, x, y, z), images uint8 (H, W, 3) RGB. Both Gymnasium spaces derive from the spec.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import gymnasium
import numpy as np

from robo_rl.errors import SpecMismatch, UnknownName
from robo_rl.spec.action import ActionMode, ActionSpec
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.observation import ArraySpec, Limit, Observation, ObservationSpec, Role

__all__ = [
    "INTERFACE",
    "ActionMode",
    "ActionSpec",
    "ArraySpec",
    "CostSpec",
    "EnvironmentSpec",
    "Limit",
    "Observation",
    "ObservationSpec",
    "Role",
    "specification",
]
"""The whole contract, from wherever its parts are."""
INTERFACE = ("observation", "observation order", "action")
"""Parts of a spec that must agree for a policy to act in an environment."""
UNWRITTEN: dict[str, Any] = {"meaning": "", "channels": "rgb", "history": 1, "costs": []}
"""Fields that are left out of the JSON form if they have these values: fingerprints from before the fields existed stay
valid."""
KEEP_RATE = "a policy, its action chunks and its history keep the rate it was trained at"
"""Last words of the error about another control rate."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """What policies, episodes and checkpoints depend on in an environment: observations, action, time limit, costs."""

    name: str
    """Name of the environment, such as "robo/ArmPick-v0"."""
    observation: ObservationSpec
    action: ActionSpec
    version: int = 0
    """Version of the environment; environments of different versions are different."""
    instruction: str | None = None
    """Task in words; an environment may report another one for an episode in `info["instruction"]`."""
    max_steps: int | None = None
    """Steps until an episode is truncated; None without a time limit."""
    success_rule: str | None = None
    """Condition of success in words; None if the environment has no success criterion."""
    costs: tuple[CostSpec, ...] = ()
    """Constraint costs, which every step reports in `info["costs"]`; no policy depends on them."""

    def to_json(self) -> dict[str, Any]:
        """Return the spec as plain JSON values; infinities become the strings "inf" and "-inf"."""
        plain: dict[str, Any] = _plain(self)
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EnvironmentSpec:
        """Return the spec from the values that `to_json` returned."""
        values = _parse(dict(data))
        arrays = tuple(ArraySpec(**array) for array in values.pop("observation")["arrays"])
        costs = tuple(CostSpec(**cost) for cost in values.pop("costs", ()))
        return cls(observation=ObservationSpec(arrays), action=ActionSpec(**values.pop("action")), costs=costs, **values)

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that identify the spec: equal for equal specs. Words and limits of costs do not count."""
        text = json.dumps(_contract(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differences(self, other: EnvironmentSpec) -> list[str]:
        """Return one line of text for each field in which the specs differ, with the value of `self` first."""
        return _differences("", _contract(self, is_whole=True), _contract(other, is_whole=True))

    def require(self, other: EnvironmentSpec, *, what: str, fix: str | None = None) -> None:
        """Raise SpecMismatch, with a line for each difference, unless `other` equals this spec.

        Words and limits of costs may differ.

        Args:
            other: Spec to compare with.
            what: First words of the message.
            fix: Remedy in the message.
        """
        if lines := self.differences(other):
            raise SpecMismatch(what, lines, fix=fix)

    def without_pictures(self, but: Container[str] = ()) -> EnvironmentSpec:
        """Return the spec without its pictures, except for the pictures named in `but`."""
        arrays = (array for array in self.observation.arrays if array.role != "image" or array.name in but)
        return replace(self, observation=ObservationSpec(tuple(arrays)))

    def restricted(self, names: Container[str]) -> EnvironmentSpec:
        """Return the spec with only the named observation entries, in their present order."""
        arrays = (array for array in self.observation.arrays if array.name in names)
        return replace(self, observation=ObservationSpec(tuple(arrays)))

    @property
    def single(self) -> EnvironmentSpec:
        """This spec without frame stacks: the last axis of each entry with a history is divided by it.

        See `ArraySpec.history`.
        """
        return replace(self, observation=ObservationSpec(tuple(array.with_history(1) for array in self.observation.arrays)))

    def require_interface(self, other: EnvironmentSpec, *, what: str, exactly: bool = False) -> None:
        """Raise SpecMismatch unless a policy of this spec can act in an environment of the spec `other`.

        Actions, and the entries that a policy reads, must agree in everything, including the control rate. Name, version and
        time limit may differ, so that a policy can be tried on another task or a replica. Privileged entries, which no policy
        reads, may differ too.

        Args:
            other: Spec of the environment.
            what: First words of the message.
            exactly: True to reject further entries of `other` that the policy does not read.
        """
        read = self.observation.visible
        there = tuple(array for array in other.observation.visible.arrays if exactly or array.name in read)
        compared = (replace(self, observation=read), replace(other, observation=ObservationSpec(there)))
        mine, others = ({key: _contract(spec, is_whole=True)[key] for key in INTERFACE} for spec in compared)
        if lines := _differences("", mine, others):
            raise SpecMismatch(what, lines, fix=_fix_of_rate(self.action.control_period, other.action.control_period))


def _fix_of_rate(wanted: float | None, found: float | None) -> str | None:
    """Return how an environment gets the control period of a policy, None if it has it."""
    if wanted == found:
        return None
    if wanted and found and (times := round(wanted / found)) > 1 and math.isclose(times * found, wanted, rel_tol=1e-6):
        option = f"--environment.arguments.action_repeat {times}, or ?action_repeat={times} behind the address of a robot"
        return f"make the environment with {option}, times that which it has: {KEEP_RATE}"
    return f"make the environment with the control rate of the training (action_repeat): {KEEP_RATE}"


def specification(environment: gymnasium.Env[Any, Any]) -> EnvironmentSpec:
    """Return the `environment_spec` of an environment, also through wrappers; raises UnknownName if it has none."""
    try:
        spec = environment.get_wrapper_attr("environment_spec")
    except AttributeError:
        raise UnknownName(
            "attribute of the environment",
            "environment_spec",
            [],
            fix="make it with robo_rl.make_environment, by its name or class",
        ) from None
    assert isinstance(spec, EnvironmentSpec)
    return spec


def _contract(spec: EnvironmentSpec, *, is_whole: bool = False) -> dict[str, Any]:
    """Return the values that count; is_whole: with those that are not written."""
    data = spec.to_json()
    for array in data["observation"]["arrays"]:
        if is_whole:
            array |= {name: UNWRITTEN[name] for name in ("channels", "history") if name not in array}
        array.pop("meaning", None)
    for cost in data.get("costs", ()):  # a limit is the learner's aim, and no property of what was recorded
        for name in ("limit", "meaning"):
            cost.pop(name, None)
    data["observation"] = {array.pop("name"): array for array in data["observation"]["arrays"]}
    data["observation order"] = list(data["observation"])
    return {key: value for key, value in data.items() if key not in ("instruction", "success_rule")}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, ArraySpec | ObservationSpec | ActionSpec | CostSpec | EnvironmentSpec):
        plain = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        return {name: item for name, item in plain.items() if name not in UNWRITTEN or item != UNWRITTEN[name]}
    return value


def _parse(value: Any, *, is_limit: bool = False) -> Any:
    """Turn lists into tuples, and the strings of infinite limits (but no other word "inf") into numbers."""
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
