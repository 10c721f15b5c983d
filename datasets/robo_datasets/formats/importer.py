"""Convert foreign recordings to episodes of a spec; every inferred or missing part is noted."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from robo_datasets.formats.recording import Actions, Array, Foreign, Recording, split_columns
from robo_rl.errors import DatasetError, SpecMismatch
from robo_rl.rollout.episode import end_of
from robo_rl.spec.environment import ActionSpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import ActionSource, Episode

ROUNDING = 1e-5
"""Rounding error of float32 after scaling an action there and back, in [-1, 1] units; larger excess is refused, not clipped."""


@dataclass(frozen=True)
class EpisodeImporter:
    """Converter of one foreign dataset's recordings to episodes."""

    spec: EnvironmentSpec
    low: tuple[float, ...] = ()
    """Foreign action at -1; empty if actions are in [-1, 1] or choices already."""
    high: tuple[float, ...] = ()
    source: str = "imported"
    split: bool = False
    """Whether the foreign observation is one vector of the spec's arrays, concatenated."""
    notes: tuple[str, ...] = field(default=())

    def episode(self, recording: Recording) -> Episode | None:
        """Returns the episode, or None if no step is left.

        If the observation after the last action is missing, that action cannot be bootstrapped: it is dropped after a
        truncation; after a termination, which needs no bootstrap, the last observation is repeated.
        """
        kept, changes = len(recording), {}
        terminated, truncated = bool(recording.terminated), bool(recording.truncated)
        if not terminated and not truncated:
            truncated, changes["end"] = True, "inferred"
        observations = self._observations(recording.observations)
        if not recording.has_final_observation:
            changes["final_observation"] = "repeated" if terminated else "missing"
            if terminated:
                observations = {name: np.concatenate([rows, rows[-1:]]) for name, rows in observations.items()}
            else:
                kept -= 1
        if kept < 1:
            return None
        for name in ("rewards", "timestamps"):
            if getattr(recording, name) is None:
                changes[name] = "missing"
        rewards = np.zeros(kept) if recording.rewards is None else recording.rewards[:kept]
        actions = self._normalized(recording.actions[:kept])
        return Episode(
            observations=observations,
            actions=actions,
            policy_actions=actions,
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
            values = found[name]
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
                raise DatasetError("Unknown discrete action.", got=actions, allowed=f"0 to {action.size - 1}")
            return actions.astype(np.int64)
        if not np.isfinite(actions).all():
            raise DatasetError("An action holds NaN or infinity.", fix="leave that episode out")
        if not self.low:
            scaled = actions
        else:
            low, high = np.asarray(self.low), np.asarray(self.high)
            scaled = (actions - low) / (high - low) * 2 - 1
            scaled = np.where(np.abs(scaled) < 1 + ROUNDING, np.clip(scaled, -1, 1), scaled)
        if (furthest := float(np.abs(scaled).max(initial=0))) > 1 + ROUNDING:
            raise DatasetError(
                "Actions lie outside the environment's limits; nothing is clipped.",
                got=f"{furthest:.6g} in [-1, 1] units",
                allowed="actions that the environment accepts",
                fix="leave --environment out, so that the limits are taken from the data",
            )
        return scaled.astype(np.float32)

    def _timestamps(self, found: Array | None, steps: int) -> Array:
        period = self.spec.action.control_period or 1.0
        if found is None:
            return np.arange(steps + 1) * period
        times = np.asarray(found, np.float64)[: steps + 1]
        return times if len(times) == steps + 1 else np.append(times, times[-1] + period)


def importer_of(foreign: Foreign, spec: EnvironmentSpec | None = None) -> EpisodeImporter:
    """Returns the importer of a foreign dataset: with its own spec, with `spec`, or with one derived from the data.

    Raises SpecMismatch if the data does not fit `spec`.
    """
    source = f"imported: {foreign.name}"
    if foreign.spec is not None and spec is None:
        return EpisodeImporter(held(foreign.spec, foreign.observation), source=source)
    if spec is None:
        return _derived(foreign, source)
    split = _is_split(foreign.observation, spec)
    if not split and (missing := [name for name in spec.observation if name not in foreign.observation]):
        raise SpecMismatch(
            f"The data is not of {spec.name}",
            [f"observation {name}: {spec.observation[name].shape} there, missing in the data" for name in missing],
            fix=f"the data has {', '.join(f'{name} {array.shape}' for name, array in foreign.observation.items())}",
        )
    low, high = _limits_of(foreign, spec.action, spec.name)
    return EpisodeImporter(spec, low, high, source, split)


def held(spec: EnvironmentSpec, names: Container[str]) -> EnvironmentSpec:
    """Returns the spec without the observations that a foreign dataset lacks."""
    arrays = tuple(array for name, array in spec.observation.items() if name in names)
    return spec if len(arrays) == len(spec.observation) else replace(spec, observation=ObservationSpec(arrays))


def _derived(foreign: Foreign, source: str) -> EpisodeImporter:
    notes = []
    found = foreign.actions
    size = found.size
    if found.are_choices:
        names = found.names or tuple(f"choice_{index}" for index in range(size))
        action = ActionSpec(names, mode="discrete", control_period=foreign.control_period)
        return EpisodeImporter(_spec(foreign, action), source=source)
    least, most = np.asarray(found.least or (0.0,) * size), np.asarray(found.most or (0.0,) * size)
    is_declared = found.low is not None and found.high is not None and bool(np.isfinite([found.low, found.high]).all())
    if is_declared:
        low, high = np.asarray(found.low), np.asarray(found.high)
    elif found.are_normalized:
        low, high = -np.ones(size), np.ones(size)
    else:
        low, high = least, np.where(most > least, most, least + 1)
        notes.append("the file declares no limits of actions: the least and the most that occur become -1 and 1")
    if (least < low).any() or (most > high).any():
        notes.append(f"actions reach {least.tolist()} to {most.tolist()}, beyond their limits: the limits are widened to them")
        low, high = np.minimum(low, least), np.maximum(high, most)
    names = found.names if len(set(found.names)) == size else tuple(f"action_{index}" for index in range(size))
    limits = tuple(low.tolist()), tuple(high.tolist())
    action = ActionSpec(names, *limits, ("unknown",) * size, "unknown", foreign.control_period)
    physical = ((), ()) if set(limits[0]) == {-1.0} and set(limits[1]) == {1.0} else limits
    return EpisodeImporter(_spec(foreign, action), *physical, source, notes=tuple(notes))


def _spec(foreign: Foreign, action: ActionSpec) -> EnvironmentSpec:
    return EnvironmentSpec(f"imported/{foreign.name}", foreign.observation, action, max_steps=foreign.max_steps)


def _is_split(observation: ObservationSpec, spec: EnvironmentSpec) -> bool:
    """Returns whether the file has one vector: the spec's arrays, concatenated."""
    arrays = list(observation.values())
    if len(arrays) != 1 or len(arrays[0].shape) != 1 or set(observation) == set(spec.observation):
        return False
    return arrays[0].size == spec.observation.size


def _limits_of(foreign: Foreign, action: ActionSpec, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the foreign actions at -1 and 1, empty if actions are in [-1, 1] already."""
    found: Actions = foreign.actions
    if found.are_choices != action.is_discrete or found.size != action.size:
        there, here = _kind(action.size, action.is_discrete), _kind(found.size, found.are_choices)
        raise SpecMismatch(f"The data is not of {name}", [f"action: {there} there, {here} in the data"], fix="look at the file")
    if action.is_discrete:
        return (), ()
    ones = (1.0,) * action.size
    if found.low is not None and found.high is not None:
        declared = (found.low, found.high)
        if np.allclose(declared, (action.low, action.high)) and not np.allclose(declared, ((-1.0,), ones)):
            return action.low, action.high
        if np.allclose(declared, (tuple(-one for one in ones), ones)):
            return (), ()
        raise SpecMismatch(
            f"The data is not of {name}",
            [f"action limits: {action.low} to {action.high} there, {found.low} to {found.high} in the data"],
            fix="leave --environment out",
        )
    return ((), ()) if found.are_normalized else (action.low, action.high)


def _kind(size: int, are_choices: bool) -> str:
    return f"{size} {'choices' if are_choices else 'numbers'}"
