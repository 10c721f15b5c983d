"""Columns that a reward program may read: named, typed, documented, of the same kind for every simulator and robot.

`x` is the observation entry x after the step, `previous_x` the entry before it, `action` the executed action between the two.
Reward and success of the environment are never columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidObservation, InvalidSetting
from robo_rl.spec.environment import ActionMode, ActionSpec, ArraySpec, EnvironmentSpec, Limit, Observation, ObservationSpec
from robo_rl.types import Array, Episode

PREVIOUS = "previous_"
ACTION = "action"
START, HAND = "start", "end_effector"
"""Names of two frames of a robot's hand for entries of the observation: its pose at the reset, and its present axes."""
OUTCOME_WORDS = re.compile(
    r"(reward\w*|succe(ss|ed)\w*|solv(e|ed|ing)|scor(e|es|ed|ing)|returns?|outcomes?|complet(e|ed|ion)|fail(ed|ures?)?|done|bonus)$"
)
"""Words in names of entries that reveal reward or success, by which a program is judged; such entries do not become columns."""

Columns = dict[str, npt.NDArray[np.float64]]
"""Column name -> (N, ...), one row per step."""
Moment = Literal["after", "before", "between"]

_ROLES = {
    "proprioception": "Of the robot itself",
    "object": "Of things around it",
    "goal": "Of the goal",
    "privileged": "Privileged: the reward may read it, a deployed policy cannot",
    "image": "Pictures",
}
_MODES: dict[ActionMode, str] = {
    "joint_position": "where joints are sent to",
    "joint_velocity": "speeds that joints are given",
    "joint_torque": "torques (or efforts) of joints",
    "end_effector_delta": "how far the end effector is sent from where it is",
    "impedance": "how the target of a spring moves, and the spring's stiffness",
    "drive": "how a vehicle is driven",
    "discrete": "one choice",
    "unknown": "the source does not say what it commands",
}


@dataclass(frozen=True)
class Column:
    """Description of one column of a reward program's input: source, shape, unit, frame, limits, meaning."""

    name: str
    moment: Moment
    """Moment of the value: "before" or "after" the step; "between" for the action."""
    entry: str
    """Name of the observation entry, or "action"."""
    shape: tuple[int, ...]
    """Shape of the column's value for one step; () for a number."""
    unit: str
    """SI unit of the value, or "unknown"."""
    frame: str | None
    """Reference frame of the value; None if there is none."""
    low: Limit
    """Lowest value, in `unit`."""
    high: Limit
    """Highest value, in `unit`."""
    role: str
    """Role of the entry, or "action"."""
    meaning: str
    """Meaning in words; empty if unknown."""
    dtype: str = "float64"
    """Always float64, since differences of unsigned integers would wrap around."""


@dataclass(frozen=True)
class EnvAbstraction:
    """Columns that a reward program can read in an environment: their description, and how they are computed from steps."""

    columns: Mapping[str, Column]
    """Name -> column; first the columns after the step, then those before the step, then the action."""
    text: str
    """Description of the columns for prompts; it names neither environment nor simulator nor task."""

    @classmethod
    def of(cls, spec: EnvironmentSpec, *, images: bool = False) -> EnvAbstraction:
        """Return the columns of an environment.

        Entries whose names contain words for reward or success (OUTCOME_WORDS) are left out. If the environment has both `x`
        and `previous_x`, the entry `previous_x` is left out, too, because this name is reserved for `x` before the step.

        Args:
            spec: Spec of the environment.
            images: True to include pictures.

        Raises:
            InvalidSetting: An entry has the name "action".
        """
        entries = [array for array in spec.observation.arrays if _is_shown(array, spec, images)]
        if any(array.name == ACTION for array in entries):
            raise InvalidSetting(
                f"An entry of the observation of {spec.name} has the name of a column.", got=ACTION, allowed="any other name"
            )
        after = [_column(array, array.name, "after") for array in entries]
        before = [_column(array, PREVIOUS + array.name, "before") for array in entries]
        columns = [*after, *before, _action_column(spec.action)]
        return cls({column.name: column for column in columns}, "\n".join(_description(spec, entries)))

    def batch(self, episode: Episode) -> Columns:
        """Return the columns of the T steps of an episode; raises InvalidObservation if the episode lacks an entry."""
        before = {name: values[:-1] for name, values in episode.observations.items()}
        after = {name: values[1:] for name, values in episode.observations.items()}
        return self.batch_of(before, episode.actions, after)

    def batch_of(self, before: Observation, actions: Array, after: Observation) -> Columns:
        """Return the columns of N steps, in the given order.

        Args:
            before: Entry -> (N, ...) before each step.
            actions: (N, A), clipped to [-1, 1], or (N,) choices.
            after: Entry -> (N, ...) after each step.

        Raises:
            InvalidObservation: The steps lack an entry, or have it in another shape.
        """
        moments = {"before": before, "after": after, "between": {ACTION: actions}}
        rows = len(actions)
        found: Columns = {}
        for name, column in self.columns.items():
            values = moments[column.moment].get(column.entry)
            if values is None or np.shape(values) != (rows, *column.shape):
                raise InvalidObservation(
                    f"The steps have no {column.entry!r} as a reward program expects it.",
                    got="nothing of that name" if values is None else list(np.shape(values)),
                    allowed=f"{[rows, *column.shape]}",
                    fix="record with the program's environment, with the same arguments",
                )
            found[name] = np.asarray(values, np.float64)
            if column.moment == "between" and column.low == -1.0:
                found[name] = np.clip(found[name], -1.0, 1.0)
        return found

    def only(self, names: Collection[str]) -> EnvAbstraction:
        """Return these columns restricted to `names`, so that no unused column is computed."""
        return replace(self, columns={name: column for name, column in self.columns.items() if name in names})

    @property
    def moved(self) -> Mapping[str, str]:
        """Name of a column -> its frame, for columns relative to a hand (robo_rl.environments.relative_frame)."""
        frames = {name: column.frame for name, column in self.columns.items()}
        if START not in frames.values():
            return {}
        return {name: frame for name, frame in frames.items() if frame in (START, HAND)}

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the observation entries from which the columns are computed."""
        return tuple(dict.fromkeys(column.entry for column in self.columns.values() if column.moment != "between"))


def recorded_spec(episode: Episode) -> EnvironmentSpec:
    """Return an environment spec derived from the arrays of a recorded episode.

    It has their names, shapes and types. Elements of the action are called action_0, action_1, ...; units, limits and meanings
    are unknown.
    """
    arrays = tuple(ArraySpec(name, values.shape[1:], str(values.dtype)) for name, values in episode.observations.items())
    size = episode.actions.shape[-1]
    names = tuple(f"action_{number}" for number in range(size))
    continuous = ActionSpec(names, (-1.0,) * size, (1.0,) * size, ("1",) * size, "unknown")
    action = ActionSpec(("choice",), mode="discrete") if episode.actions.ndim == 1 else continuous
    return EnvironmentSpec("recording", ObservationSpec(arrays), action)


def _is_shown(array: ArraySpec, spec: EnvironmentSpec, images: bool) -> bool:
    repeats = array.name.removeprefix(PREVIOUS) in spec.observation and array.name.startswith(PREVIOUS)
    return (
        not repeats
        and not any(map(OUTCOME_WORDS.match, re.findall("[a-z]+", array.name)))
        and (images or array.role != "image")
    )


def _column(array: ArraySpec, name: str, moment: Moment) -> Column:
    return Column(
        name, moment, array.name, array.shape, array.unit, array.frame, array.low, array.high, array.role, array.meaning
    )


def _action_column(action: ActionSpec) -> Column:
    low, high = (0.0, float(action.size - 1)) if action.is_discrete else (-1.0, 1.0)
    return Column(ACTION, "between", ACTION, action.shape, "1", action.frame, low, high, ACTION, _MODES[action.mode])


def _description(spec: EnvironmentSpec, entries: list[ArraySpec]) -> Iterator[str]:
    period = spec.action.control_period
    yield "class Batch:  # N steps, a row each; every column is a numpy array of float64"
    if period is not None:
        yield f"    # One step lasts {period:g} s."
    yield "    # After the step. Each column x below has a twin previous_x of the same kind: the value before the step."
    for role, title in _ROLES.items():
        of_role = [array for array in entries if array.role == role]
        if of_role:
            yield f"    # {title}"
        for array in of_role:
            yield f"    {array.name}: {_shape(array.shape)}  # {'; '.join(_facts(array))}"
    yield "    # What was executed between the two"
    yield from _action_lines(spec.action)


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(['N', *map(str, shape)])}{',' if not shape else ''})"


def _facts(array: ArraySpec) -> Iterator[str]:
    yield {"1": "no unit", "mixed": "several units", "unknown": "unit unknown"}.get(array.unit, f"[{array.unit}]")
    if array.frame is not None:
        yield f"frame {array.frame}"
    if np.isfinite(array.low).all() or np.isfinite(array.high).all():
        yield f"from {_limit(array.low)} to {_limit(array.high)}"
    yield array.meaning or "meaning not stated"


def _limit(limit: Limit) -> str:
    return f"{limit:g}" if isinstance(limit, float) else f"[{', '.join(f'{value:g}' for value in limit)}]"


def _action_lines(action: ActionSpec) -> Iterator[str]:
    frame = f"; frame {action.frame}" if action.frame is not None else ""
    if action.is_discrete:
        yield f"    action: (N,)  # number of a choice: {', '.join(f'{i} {name}' for i, name in enumerate(action.names))}"
        return
    yield f"    action: (N, {action.size})  # from -1 to 1; {_MODES[action.mode]}{frame}; -1 and 1 stand for:"
    for number, (name, low, high, unit) in enumerate(zip(action.names, action.low, action.high, action.units, strict=True)):
        suffix = "" if unit == "1" else f" {unit}"
        yield f"    #   action[:, {number}] {name}: {low:g} to {high:g}{suffix}"
