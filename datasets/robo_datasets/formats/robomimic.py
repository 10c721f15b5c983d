"""robomimic's HDF5 file: https://robomimic.github.io/docs/datasets/overview.html, as of the source of version 0.3.0.

    data/demo_<i>/obs/<name>, next_obs/<name>  (T, ...)      actions (T, A) in [-1, 1]      rewards, dones (T,)
    data  attributes `total` and `env_args`;  demo_<i>  attribute `num_samples`
    mask/<filter key>  names of demonstrations;  robo_rl  our addition, the spec

`dones` does not distinguish termination and truncation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from typing_extensions import override

from robo_datasets.formats.hdf5_file import (
    ACTIONS,
    SPEC,
    attribute,
    loaded,
    names_in_hdf5,
    opened_hdf5,
    required,
    spec_bytes,
    spec_in,
)
from robo_datasets.formats.recording import (
    About,
    Actions,
    Foreign,
    Format,
    Recording,
    flat_name,
    foreign_array,
    vector_size,
    within,
)
from robo_datasets.hdf5_arrays import created_hdf5, write_array
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import EnvironmentSpec, ObservationSpec
from robo_rl.types import Episode

GYM_TYPE = 2
"""robomimic.envs.env_base.EnvType of Gym environments"""


class Robomimic(Format):
    """Format of a file that robomimic's SequenceDataset opens."""

    name = "robomimic"
    suffix = ".hdf5"

    @override
    def recognizes(self, source: Path) -> bool:
        return source.is_file() and "data" in names_in_hdf5(source)

    @override
    def reduced(self, episode: Episode, spec: EnvironmentSpec) -> Recording:
        """Return what robomimic keeps: observations, actions and rewards; raises DatasetError for discrete actions."""
        if spec.action.is_discrete:
            raise DatasetError("robomimic holds no discrete actions.", got=spec.name, fix="convert to minari, d4rl or lerobot")
        return Recording(episode.observations, episode.actions, episode.rewards)

    @override
    def write(self, recordings: Iterable[Recording], about: About, out: Path) -> None:
        with created_hdf5(out, track_order=True) as file:
            data = file.create_group("data", track_order=True)
            total = 0
            for index, recording in enumerate(recordings):
                _write_demonstration(data.create_group(f"demo_{index}"), recording)
                total += len(recording)
            action = {name: getattr(about.spec.action, name) for name in ("low", "high", "units", "mode", "names")}
            kwargs = {"card": {name: str(value) for name, value in about.card.items()}, "action": action, "actions": ACTIONS}
            data.attrs["total"] = total
            data.attrs["env_args"] = json.dumps({"env_name": about.spec.name, "type": GYM_TYPE, "env_kwargs": kwargs})
            write_array(file, SPEC, spec_bytes(about.spec))

    @override
    def read(self, source: Path) -> Foreign:
        with opened_hdf5(source) as datasets:
            demonstrations = _demonstrations(datasets)
            if not demonstrations:
                raise DatasetError(f"{source} has no demonstrations.", allowed="data/demo_<number>/actions")
            first = demonstrations[0]
            spec = spec_in(datasets)
            names = _observations(datasets, first)
            if not names:
                raise DatasetError(
                    f"{source} has states, but no observations.", fix="robomimic's dataset_states_to_obs.py makes them"
                )
            arrays = {name: datasets[f"{first}/obs/{key}"] for name, key in names.items()}
            described = (foreign_array(name, array.shape[1:], array.dtype) for name, array in arrays.items())
            observation = ObservationSpec(tuple(described if spec is None else (spec.observation[name] for name in names)))
            least, most = within((demo, loaded(datasets[f"{demo}/actions"])) for demo in demonstrations)
            size = vector_size(datasets[f"{first}/actions"])
            settings = json.loads(attribute(datasets[f"{first}/actions"].parent.parent, "env_args") or "{}")
            notes = [*_notes(datasets, first), *_promises(datasets, demonstrations)]
        horizon = _horizon(settings)
        if horizon is None:
            notes.append("`dones` does not distinguish termination and truncation: every episode counts as truncated")
        return Foreign(
            lambda: _recordings(source, names, horizon),
            observation,
            Actions(size, least=least, most=most),
            name=str(settings.get("env_name", "robomimic")),
            spec=spec,
            control_period=_period(settings),
            max_steps=horizon,
            notes=tuple(notes),
        )


FORMAT = Robomimic()


def _write_demonstration(group: h5py.Group, recording: Recording) -> None:
    group.attrs["num_samples"] = len(recording)
    for name, values in recording.observations.items():
        write_array(group.require_group("obs"), name, values[:-1])
        write_array(group.require_group("next_obs"), name, values[1:])
    dones = np.zeros(len(recording), np.int64)
    dones[-1] = 1
    for name, array in {"actions": recording.actions, "rewards": recording.rewards, "dones": dones}.items():
        write_array(group, name, np.asarray(array))


def _demonstrations(datasets: Mapping[str, h5py.Dataset]) -> list[str]:
    found = [match for path in datasets if (match := re.fullmatch(r"(data/demo_(\d+))/actions", path))]
    return [match[1] for match in sorted(found, key=lambda match: int(match[2]))]


def _observations(datasets: Mapping[str, h5py.Dataset], demonstration: str) -> dict[str, str]:
    """Return flat name of an observation -> its key under obs/; raises DatasetError if two have the same flat name."""
    keys = _keys(datasets, demonstration)
    names = {flat_name(key): key for key in keys}
    if len(names) < len(keys):
        raise DatasetError("Two observations have the same flat name.", got=sorted(keys))
    return names


def _keys(datasets: Mapping[str, h5py.Dataset], demonstration: str) -> list[str]:
    """Return the keys under obs/ of a demonstration."""
    prefix = f"{demonstration}/obs/"
    return [path.removeprefix(prefix) for path in datasets if path.startswith(prefix)]


def _promises(datasets: Mapping[str, h5py.Dataset], demonstrations: Sequence[str]) -> list[str]:
    """Return remarks on demonstrations and steps that the file declares and does not have."""
    steps = [len(datasets[f"{demo}/actions"]) for demo in demonstrations]
    declared = attribute(datasets[f"{demonstrations[0]}/actions"].parent.parent, "total")
    notes = []
    if declared not in (None, sum(steps)):
        notes.append(f"`total` says {declared} steps, the data has {sum(steps)}: all of the data is taken")
    named = {match[0] for path in datasets if (match := re.match(r"data/demo_\d+(?=/)", path))}
    if absent := len(named - {*demonstrations}) + steps.count(0):
        notes.append(f"demonstrations without an action are left out: {absent}")
    return notes


def _notes(datasets: Mapping[str, h5py.Dataset], first: str) -> list[str]:
    known = {"obs", "next_obs", "actions", "rewards", "dones"}
    unread = sorted({path.split("/")[2] for path in datasets if path.startswith(f"{first}/")} - known)
    others = {match[1] for path in datasets if (match := re.fullmatch(r"data/demo_\d+/obs/(.+)", path))}
    unread += [f"obs/{key}, which {first} lacks" for key in sorted(others - {*_keys(datasets, first)})]
    masks = sorted(path.removeprefix("mask/") for path in datasets if path.startswith("mask/"))
    notes = [f"not read: {', '.join(unread)}"] if unread else []
    return notes + ([f"filter keys are not kept: {', '.join(masks)}"] if masks else [])


def _horizon(settings: Mapping[str, Any]) -> int | None:
    """Return the time limit in steps of the environment in `env_args`.

    A `dones` before this limit means that the episode terminated. None if there is no limit, or `dones` was ignored.
    """
    kwargs = settings.get("env_kwargs") or {}
    horizon = kwargs.get("horizon")
    return int(horizon) if isinstance(horizon, int) and not kwargs.get("ignore_done", False) else None


def _period(settings: Mapping[str, Any]) -> float | None:
    rate = (settings.get("env_kwargs") or {}).get("control_freq")
    return 1.0 / rate if isinstance(rate, int | float) and rate > 0 else None


def _recordings(path: Path, names: Mapping[str, str], horizon: int | None) -> Iterator[Recording]:
    with opened_hdf5(path) as datasets:
        for demo in _demonstrations(datasets):
            actions = loaded(datasets[f"{demo}/actions"])
            if len(actions) == 0:
                continue
            for key in names.values():
                required(datasets, demo, f"obs/{key}")
            observations, remarks = {}, _contradictions(datasets, demo, names, len(actions))
            for name, key in names.items():
                observations[name] = loaded(datasets[f"{demo}/obs/{key}"])
                if (following := datasets.get(f"{demo}/next_obs/{key}")) is not None:
                    observations[name] = np.concatenate([observations[name], loaded(following, len(actions) - 1)])
            rewards, dones = datasets.get(f"{demo}/rewards"), datasets.get(f"{demo}/dones")
            ended = horizon is not None and dones is not None and bool(loaded(dones)[-1]) and len(actions) < horizon
            found = None if rewards is None else loaded(rewards)
            terminated, truncated = (True, False) if ended else (None, None)
            name = demo.removeprefix("data/")
            yield Recording(observations, actions, found, terminated, truncated, name=name, remarks=remarks)


def _contradictions(datasets: Mapping[str, h5py.Dataset], demo: str, names: Mapping[str, str], steps: int) -> tuple[str, ...]:
    """Return remarks on contradictions in a demonstration of `steps` steps."""
    found = []
    for key in names.values():
        following = datasets.get(f"{demo}/next_obs/{key}")
        if following is not None and not np.array_equal(
            loaded(following, 0, steps - 1), loaded(datasets[f"{demo}/obs/{key}"], 1), equal_nan=following.dtype.kind == "f"
        ):
            found.append(f"next_obs/{key} is not the observation of the next step: obs/{key} is taken")
    dones = datasets.get(f"{demo}/dones")
    if dones is not None and loaded(dones, 0, steps - 1).any():
        found.append("`dones` is set before the last step: the episode goes on")
    declared = attribute(datasets[f"{demo}/actions"].parent, "num_samples")
    if declared is not None and declared != steps:
        found.append("`num_samples` is not the number of actions, which is taken")
    return tuple(found)
