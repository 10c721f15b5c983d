"""D4RL's HDF5 file: Fu et al. 2020, https://arxiv.org/abs/2004.07219; layout of the version 2 files, from memory.

    observations, next_observations (N, O) float32     actions (N, A)     rewards, terminals, timeouts (N,)
    costs (N,)                      of datasets with one constraint cost, as DSRL's: Liu et al. 2023, https://arxiv.org/abs/2306.09303
    metadata/robo_rl                our addition: the spec, and the names of the observations in the vector, in order

Episodes are joined; each row with `terminals` or `timeouts` is the last of an episode. Files without `next_observations` lack
the observation after the last action of an episode.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from typing_extensions import override

from robo_datasets.formats.hdf5_file import SPEC, loaded, names_in_hdf5, opened_hdf5
from robo_datasets.formats.recording import (
    About,
    Actions,
    Array,
    Foreign,
    Format,
    Recording,
    cost_name,
    foreign_array,
    number_of_choices,
    single_cost,
    split_columns,
    vector_size,
    within,
)
from robo_datasets.hdf5_arrays import created_hdf5, write_array
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Episode

STEPS = ("observations", "actions", "rewards", "terminals")
OPTIONAL = ("timeouts", "next_observations", "costs")
CHUNK = 1 << 12
"""number of rows of a chunk"""
APART = "cut where `next_observations` is not the observation of the next row"
_LAYOUT = f"metadata/{SPEC}"


class D4RL(Format):
    """Format of a flat file with the arrays that D4RL's `get_dataset` returns."""

    name = "d4rl"
    suffix = ".hdf5"

    @override
    def recognizes(self, source: Path) -> bool:
        return source.is_file() and set(STEPS) <= names_in_hdf5(source)

    @override
    def reduced(self, episode: Episode, spec: EnvironmentSpec) -> Recording:
        """Return what D4RL keeps: observations as float32, without pictures and privileged entries; actions, rewards, ends.

        Raises DatasetError if the episode has pictures only.
        """
        arrays = flat_arrays(spec.observation)
        if not arrays:
            raise DatasetError("D4RL holds no pictures, and there is nothing else.", got=sorted(spec.observation))
        kept = {array.name: episode.observations[array.name].astype(np.float32) for array in arrays}
        return Recording(
            kept, episode.actions, episode.rewards, episode.terminated, episode.truncated, costs=single_cost(episode)
        )

    @override
    def write(self, recordings: Iterable[Recording], about: About, out: Path) -> None:
        arrays = flat_arrays(about.spec.observation)
        with created_hdf5(out) as file:
            for recording in recordings:
                flags = np.zeros((2, len(recording)), np.bool_)
                flags[:, -1] = bool(recording.terminated), bool(recording.truncated)
                flat = np.concatenate([recording.observations[a.name].reshape(len(recording) + 1, -1) for a in arrays], axis=1)
                _append(file, "observations", flat[:-1])
                _append(file, "next_observations", flat[1:])
                _append(file, "actions", recording.actions)
                _append(file, "rewards", np.asarray(recording.rewards))
                _append(file, "terminals", flags[0])
                _append(file, "timeouts", flags[1])
                for values in recording.costs.values():
                    _fill(file, "costs", len(file["rewards"]) - len(recording))  # episodes before it had none
                    _append(file, "costs", values)
            if "costs" in file:
                _fill(file, "costs", len(file["rewards"]))
            layout = {"spec": about.spec.to_json(), "observations": [array.name for array in arrays]}
            write_array(file.require_group("metadata"), SPEC, np.frombuffer(json.dumps(layout).encode(), np.uint8))

    @override
    def read(self, source: Path) -> Foreign:
        with opened_hdf5(source) as datasets:
            if missing := set(STEPS) - set(datasets):
                raise DatasetError(f"{source} is not a D4RL file.", got=f"no {', '.join(sorted(missing))}")
            sizes = {
                name: len(datasets[name]) for name in (*STEPS, "timeouts", "next_observations", "costs") if name in datasets
            }
            if len(set(sizes.values())) != 1:
                raise DatasetError("The arrays differ in length.", got=sizes)
            layout = _layout(datasets)
            flat = datasets["observations"]
            observation = ObservationSpec((foreign_array("observation", flat.shape[1:], flat.dtype),))
            if layout is not None:
                observation = ObservationSpec(layout[1])
            actions = datasets["actions"]
            rows = (
                (f"the part from row {start} on", loaded(actions, start, start + CHUNK))
                for start in range(0, len(actions), CHUNK)
            )
            notes = (
                []
                if "timeouts" in datasets
                else ["no `timeouts`: episodes end at `terminals` only, unless the steps do not join"]
            )
            unread = sorted({path.split("/")[0] for path in datasets} - {*sizes, "metadata"})
            notes += [f"not read: {', '.join(unread)}"] if unread else []
            are_choices = actions.ndim == 1 and actions.dtype.kind in "iu"
            if are_choices:
                size = number_of_choices(rows) if layout is None else layout[0].action.size
                found = Actions(size, are_choices=True)
            else:
                found = Actions(vector_size(actions), None, None, *within(rows))
        return Foreign(
            lambda: _recordings(source, *((None, None) if layout is None else layout)),
            observation,
            found,
            name=source.stem,
            spec=None if layout is None else layout[0],
            notes=tuple(notes),
        )


FORMAT = D4RL()


def flat_arrays(observation: ObservationSpec) -> tuple[ArraySpec, ...]:
    """Return the arrays that are joined in the vector: all observations of a policy but pictures."""
    return tuple(observation.vectors.values())


def _layout(datasets: Mapping[str, h5py.Dataset]) -> tuple[EnvironmentSpec, tuple[ArraySpec, ...]] | None:
    if _LAYOUT not in datasets:
        return None
    found: dict[str, Any] = json.loads(np.asarray(datasets[_LAYOUT][()]).tobytes())
    spec = EnvironmentSpec.from_json(found["spec"])
    return spec, tuple(spec.observation[name] for name in found["observations"])


def _append(file: h5py.File, name: str, rows: Array) -> None:
    if name not in file:
        shape = rows.shape[1:]
        file.create_dataset(name, (0, *shape), rows.dtype, maxshape=(None, *shape), chunks=(CHUNK, *shape), fletcher32=True)
    dataset = file[name]
    dataset.resize(len(dataset) + len(rows), axis=0)
    dataset[len(dataset) - len(rows) :] = rows


def _fill(file: h5py.File, name: str, rows: int) -> None:
    """Append NaN to an array until it has `rows` rows."""
    if missing := rows - (len(file[name]) if name in file else 0):
        _append(file, name, np.full(missing, np.nan, np.float32))


def _recordings(path: Path, spec: EnvironmentSpec | None, arrays: tuple[ArraySpec, ...] | None) -> Iterator[Recording]:
    with opened_hdf5(path) as datasets:
        terminals = loaded(datasets["terminals"]).reshape(-1).astype(np.bool_)
        timeouts = (
            loaded(datasets["timeouts"]).reshape(-1).astype(np.bool_) if "timeouts" in datasets else np.zeros_like(terminals)
        )
        ends = np.flatnonzero(terminals | timeouts) + 1
        edges = [0, *ends.tolist(), *([len(terminals)] if len(ends) == 0 or ends[-1] < len(terminals) else [])]
        for start, stop in pairwise(edges):
            for first, last in _joined(datasets, start, stop):
                flat = loaded(datasets["observations"], first, last)
                if "next_observations" in datasets:
                    flat = np.concatenate([flat, loaded(datasets["next_observations"], last - 1, last)])
                is_marked = last == stop
                costs = loaded(datasets["costs"], first, last).reshape(-1) if "costs" in datasets else np.full(1, np.nan)
                yield Recording(
                    {"observation": flat} if arrays is None else split_columns(flat, arrays),
                    loaded(datasets["actions"], first, last),
                    loaded(datasets["rewards"], first, last).reshape(-1),
                    terminated=is_marked and bool(terminals[last - 1]),
                    truncated=is_marked and bool(timeouts[last - 1]),
                    costs={} if np.isnan(costs).all() else {cost_name(spec): costs},
                    name=f"at rows {first} to {last - 1}",
                    remarks=() if (first, last) == (start, stop) else (APART,),
                )


def _joined(datasets: Mapping[str, h5py.Dataset], start: int, stop: int) -> list[tuple[int, int]]:
    """Split the rows from `start` to before `stop` where `next_observations` is not the observation of the next row.

    Returns:
        First row, and row after the last, of each part.
    """
    if "next_observations" not in datasets:
        return [(start, stop)]
    before, after = loaded(datasets["next_observations"], start, stop - 1), loaded(datasets["observations"], start + 1, stop)
    apart = np.flatnonzero(~((before == after) | (np.isnan(before) & np.isnan(after))).all(axis=1)) + start + 1
    edges = [start, *apart.tolist(), stop]
    return list(pairwise(edges))
