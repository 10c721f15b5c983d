"""Convert foreign recordings to episodes of a spec; what is inferred or missing is noted in their metadata."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from robo_datasets.formats.adjustments import NONE, Adjustments
from robo_datasets.formats.recording import Actions, Array, Foreign, Recording, split_columns
from robo_rl.errors import DatasetError, SpecMismatch
from robo_rl.rollout.episode import end_of
from robo_rl.spec.environment import ActionSpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import ActionSource, Episode

MOST_NAMED = 3
"""largest number of elements of an action that a remark names"""
ROUNDING = 1e-5
"""largest excess of an action beyond [-1, 1] that counts as a rounding error of float32 and is clipped; more is refused"""


@dataclass(frozen=True)
class EpisodeImporter:
    """Converter of the recordings of one foreign dataset to episodes."""

    spec: EnvironmentSpec
    """spec of the episodes"""
    low: tuple[float, ...] = ()
    """foreign value of each element of an action that becomes -1; empty if actions are discrete or in [-1, 1] already"""
    high: tuple[float, ...] = ()
    """foreign value of each element of an action that becomes 1"""
    source: str = "imported"
    """name of the actor in the episodes' metadata"""
    split: bool = False
    """True if the foreign observation is one vector; it is split into the arrays of the spec."""
    notes: tuple[str, ...] = field(default=())
    """remarks for the user"""
    adjustments: Adjustments = NONE
    """changes that the user asks for"""

    def __post_init__(self) -> None:
        self.adjustments.require_known(self.spec)

    def episode(self, recording: Recording) -> Episode | None:
        """Convert a recording to an episode; return None if no step is left.

        If the observation after the last action is missing, the value of the next state cannot be bootstrapped. So the last
        step of a truncated episode is dropped, unless the user asks to keep it. A terminated episode needs no bootstrap: its
        last observation is repeated, and so is that of a step that is kept.

        Raises:
            DatasetError: The recording does not fit the spec, or has NaN or infinity where they are not allowed.
        """
        kept, changes = len(recording), {}
        terminated, truncated = bool(recording.terminated), bool(recording.truncated)
        if not terminated and not truncated:
            truncated, changes["end"] = True, "inferred"
        observations = self._observations(recording.observations)
        if not recording.has_final_observation:
            is_kept = terminated or self.adjustments.keep_last
            changes["final_observation"] = "repeated" if is_kept else "missing"
            if is_kept:
                observations = {name: np.concatenate([rows, rows[-1:]]) for name, rows in observations.items()}
            else:
                kept -= 1
        if kept < 1:
            return None
        for name in ("rewards", "timestamps"):
            if getattr(recording, name) is None:
                changes[name] = "missing"
        rewards = np.zeros(kept) if recording.rewards is None else _column(recording.rewards)[:kept]
        proposed = self._normalized(recording.actions[:kept])
        actions = np.clip(proposed, -1, 1) if self.adjustments.clip and not self.spec.action.is_discrete else proposed
        return Episode(
            observations=observations,
            actions=actions,
            policy_actions=proposed,
            rewards=np.asarray(rewards, np.float32),
            sources=np.full(kept, ActionSource.DATASET, np.int8),
            timestamps=self._timestamps(recording.timestamps, kept),
            costs={name: np.asarray(values[-len(recording) :][:kept], np.float32) for name, values in recording.costs.items()},
            terminated=terminated,
            truncated=truncated,
            stop_reason=end_of(terminated, truncated, recording.success, recording.stop_reason),
            success=recording.success,
            seed=recording.seed,
            instruction=recording.instruction,
            spec_fingerprint=self.spec.fingerprint,
            metadata={"source": self.source} | ({"imported": changes} if changes else {}),
        )

    def _observations(self, found: Mapping[str, Array]) -> dict[str, Array]:
        if self.split:
            (flat,) = found.values()
            found = split_columns(flat, [*self.spec.observation.values()])
        kept = {}
        for name, array in self.spec.observation.items():
            values = self.adjustments.turned(array, self.adjustments.scaled(name, found[name]))
            if values.shape[1:] != array.shape:
                raise DatasetError(f"Observation {name!r} changes its shape.", got=values.shape[1:], allowed=array.shape)
            if values.dtype.kind == "f" and not np.isfinite(values).all() and values.dtype != array.dtype:
                raise DatasetError(f"Observation {name!r} holds NaN or infinity.", fix="leave that episode out")
            kept[name] = values if values.dtype == array.dtype else values.astype(array.dtype)
        return kept

    def _normalized(self, actions: Array) -> Array:
        action = self.spec.action
        if actions.shape[1:] != action.shape:
            raise DatasetError("Actions have another shape than their spec.", got=actions.shape[1:], allowed=action.shape)
        if action.is_discrete:
            if actions.dtype.kind not in "iu" or actions.min() < 0 or actions.max() >= action.size:
                got = f"{actions.min()} to {actions.max()} ({actions.dtype})"
                raise DatasetError("Unknown discrete action.", got=got, allowed=f"whole numbers, 0 to {action.size - 1}")
            return actions.astype(np.int64)
        if not np.isfinite(actions).all():
            raise DatasetError("An action holds NaN or infinity.", fix="leave that episode out")
        if not self.low:
            scaled = actions
        else:
            low, high = np.asarray(self.low), np.asarray(self.high)
            scaled = (actions - low) / (high - low) * 2 - 1
            scaled = np.where(np.abs(scaled) < 1 + ROUNDING, np.clip(scaled, -1, 1), scaled)
        beyond = np.abs(scaled).max(axis=0, initial=0)
        if beyond.max() > 1 + ROUNDING and not self.adjustments.clip:
            name = action.names[int(beyond.argmax())]
            raise DatasetError(
                "Actions lie outside the environment's limits; nothing is clipped.",
                got=f"{beyond.max():.6g} in [-1, 1] units, of {name}",
                allowed="actions that the environment accepts",
                fix=f"--clip, if the environment clipped them as they were recorded; --action-ranges {name} LOW HIGH, if they "
                "have another unit; or leave --environment out, so that the limits are taken from the data",
            )
        return scaled.astype(np.float32)

    def _timestamps(self, found: Array | None, steps: int) -> Array:
        period = self.spec.action.control_period or 1.0
        if found is None:
            return np.arange(steps + 1) * period
        times = np.asarray(found, np.float64)[: steps + 1]
        return times if len(times) == steps + 1 else np.append(times, times[-1] + period)


def importer_of(foreign: Foreign, spec: EnvironmentSpec | None = None, adjustments: Adjustments = NONE) -> EpisodeImporter:
    """Return the importer of a foreign dataset.

    Args:
        foreign: The foreign data.
        spec: Spec that the data must fit; None for the spec in the data, else one derived from the data.
        adjustments: Changes that the user asks for.

    Raises:
        SpecMismatch: The data do not fit `spec`.
        UnknownName: An adjustment names an action or observation that the data do not have.
    """
    source = f"imported: {foreign.name}"
    if foreign.spec is not None and spec is None:
        own = held(foreign.spec, foreign.observation)
        limits = adjustments.limits(own.action.names, (), ())
        own = replace(own, observation=adjustments.spec_of(own.observation))
        return EpisodeImporter(own, *limits, source, adjustments=adjustments)
    if spec is None:
        return _derived(foreign, source, adjustments)
    split = _is_split(foreign.observation, spec)
    if not split and (missing := [name for name in spec.observation if name not in foreign.observation]):
        raise SpecMismatch(
            f"The data is not of {spec.name}",
            [f"observation {name}: {spec.observation[name].shape} there, missing in the data" for name in missing],
            fix=f"the data has {', '.join(f'{name} {array.shape}' for name, array in foreign.observation.items())}",
        )
    limits = adjustments.limits(spec.action.names, *_limits_of(foreign, spec.action, spec.name, adjustments))
    return EpisodeImporter(spec, *limits, source, split, adjustments=adjustments)


def held(spec: EnvironmentSpec, names: Container[str]) -> EnvironmentSpec:
    """Return the spec without the observations that are not in `names`."""
    arrays = tuple(array for name, array in spec.observation.items() if name in names)
    return spec if len(arrays) == len(spec.observation) else replace(spec, observation=ObservationSpec(arrays))


def _derived(foreign: Foreign, source: str, adjustments: Adjustments) -> EpisodeImporter:
    found = foreign.actions
    names = found.names if len(set(found.names)) == found.size else tuple(f"action_{index}" for index in range(found.size))
    if found.are_choices:
        names = found.names or tuple(f"choice_{index}" for index in range(found.size))
        action = ActionSpec(names, mode="discrete", control_period=foreign.control_period)
        return EpisodeImporter(_spec(foreign, action, adjustments), source=source, adjustments=adjustments)
    (first, last), notes = _limits_in(foreign, names, adjustments)
    low, high = np.minimum(first, last).tolist(), np.maximum(first, last).tolist()
    units = found.units or ("unknown",) * found.size
    action = ActionSpec(names, tuple(low), tuple(high), units, found.mode, foreign.control_period)
    is_plain = (first == -1).all() and (last == 1).all()
    limits = ((), ()) if is_plain else (tuple(first.tolist()), tuple(last.tolist()))
    return EpisodeImporter(_spec(foreign, action, adjustments), *limits, source, notes=tuple(notes), adjustments=adjustments)


def _limits_in(foreign: Foreign, names: Sequence[str], adjustments: Adjustments) -> tuple[tuple[Array, Array], list[str]]:
    """Return the foreign values (A,) that become -1 and 1, and remarks.

    They come from the user, else from the limits in the file, else from the values that occur.
    """
    notes, found, size = [], foreign.actions, foreign.actions.size
    least, most = np.asarray(found.least or (0.0,) * size), np.asarray(found.most or (0.0,) * size)
    given = np.array([adjustments.has_range(name) for name in names])
    is_declared = found.low is not None and found.high is not None and bool(np.isfinite([found.low, found.high]).all())
    if is_declared:
        low, high = np.asarray(found.low, np.float64), np.asarray(found.high, np.float64)
    elif found.are_normalized:
        low, high = -np.ones(size), np.ones(size)
    else:
        low, high = least, np.where(most > least, most, least + 1)
        if not given.all():
            notes.append("the file declares no limits of actions: the least and the most that occur become -1 and 1")
    first, last = map(np.asarray, adjustments.limits(names, low.tolist(), high.tolist()))
    low, high = np.minimum(first, last), np.maximum(first, last)
    beyond = (least < low) | (most > high)
    if beyond.any() and not adjustments.clip:
        reach = ", ".join(
            f"{names[index]} {least[index]:.6g} to {most[index]:.6g}" for index in np.flatnonzero(beyond)[:MOST_NAMED]
        )
        more = ", ..." if beyond.sum() > MOST_NAMED else ""
        notes.append(
            f"{beyond.sum()} of {size} actions reach beyond their limits, {reach}{more}: the limits are widened to them "
            "(--clip keeps the limits, --action-ranges gives others)"
        )
        is_turned = first > last
        low, high = np.minimum(low, least), np.maximum(high, most)
        first, last = np.where(is_turned, high, low), np.where(is_turned, low, high)
    return (first, last), notes


def _spec(foreign: Foreign, action: ActionSpec, adjustments: Adjustments) -> EnvironmentSpec:
    observation = adjustments.spec_of(foreign.observation)
    return EnvironmentSpec(f"imported/{foreign.name}", observation, action, max_steps=foreign.max_steps)


def _column(rewards: Array) -> Array:
    """Return rewards as (T,); some files have them as (T, 1)."""
    return rewards.reshape(-1) if rewards.size == len(rewards) else rewards


def _is_split(observation: ObservationSpec, spec: EnvironmentSpec) -> bool:
    """Return whether the file has one vector that joins the arrays of the spec."""
    arrays = list(observation.values())
    if len(arrays) != 1 or len(arrays[0].shape) != 1 or set(observation) == set(spec.observation):
        return False
    return arrays[0].size == spec.observation.size


def _limits_of(
    foreign: Foreign, action: ActionSpec, name: str, adjustments: Adjustments
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the foreign values of each element that become -1 and 1; both empty if actions are in [-1, 1] already.

    Elements whose range the user gives are not compared with the limits of the spec. name: name of the environment.

    Raises:
        SpecMismatch: The data have another number or kind of actions, or other limits than the spec.
    """
    found: Actions = foreign.actions
    if found.are_choices != action.is_discrete or found.size != action.size:
        there, here = _kind(action.size, action.is_discrete), _kind(found.size, found.are_choices)
        raise SpecMismatch(f"The data is not of {name}", [f"action: {there} there, {here} in the data"], fix="look at the file")
    if action.is_discrete:
        return (), ()
    if found.low is not None and found.high is not None:
        compared = [not adjustments.has_range(element) for element in action.names]
        ends = (found.low, found.high), (action.low, action.high)
        declared, limits = (np.asarray(pair, np.float64)[:, compared] for pair in ends)
        ones = np.array([[-1.0], [1.0]])
        if np.allclose(declared, limits) and not np.allclose(declared, ones):
            return action.low, action.high
        if np.allclose(declared, ones):
            return (), ()
        raise SpecMismatch(
            f"The data is not of {name}",
            [f"action limits: {action.low} to {action.high} there, {found.low} to {found.high} in the data"],
            fix="leave --environment out, or give the ranges that the data has: --action-ranges NAME LOW HIGH",
        )
    return ((), ()) if found.are_normalized else (action.low, action.high)


def _kind(size: int, are_choices: bool) -> str:
    return f"{size} {'choices' if are_choices else 'numbers'}"
