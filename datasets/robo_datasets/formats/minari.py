"""Minari's HDF5 storage: https://minari.farama.org, layout as read from version 0.5.4.

    OUT/data/metadata.json       spaces, counts, identifier; `robo_rl` is our addition, the spec
    OUT/data/main_data.hdf5      episode_<i>/observations/<name> (T+1, ...), actions, rewards, terminations, truncations

Pictures are stored exactly; Minari's own default is JPEG.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import gymnasium
import h5py
import numpy as np
from typing_extensions import override

from robo_datasets.formats.hdf5_file import ACTIONS, attribute, loaded, opened_hdf5, required
from robo_datasets.formats.recording import (
    FACTS,
    SEVERAL_TASKS,
    About,
    Actions,
    Array,
    Foreign,
    Format,
    Recording,
    cost_name,
    flat_name,
    foreign_array,
    single_cost,
    within,
)
from robo_datasets.hdf5_arrays import created_hdf5, write_array
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Episode

VERSION = "0.5.4"
MAIN, METADATA = "main_data.hdf5", "metadata.json"
STEPS = ("actions", "rewards", "terminations", "truncations")
COST = "cost"
"""entry of infos with the constraint cost, named as in Safety-Gymnasium's environments"""
MOST_METADATA = 1 << 28
"""[byte] largest file of metadata; it may be large, since spaces of pictures list the limits of every pixel"""
_IDENTIFIER = re.compile(r"[-_\w]+-v\d+", re.ASCII)


class Minari(Format):
    """Format of a folder that `minari.load_dataset` or `minari.MinariDataset` opens."""

    name = "minari"
    suffix = ""

    @override
    def recognizes(self, source: Path) -> bool:
        return any((folder / METADATA).is_file() and (folder / MAIN).is_file() for folder in (source, source / "data"))

    @override
    def reduced(self, episode: Episode, spec: EnvironmentSpec) -> Recording:
        """Return what Minari keeps. Instruction, success and stop reason are stored in an attribute of the episode."""
        facts = {name: getattr(episode, name) for name in FACTS}
        return Recording(episode.observations, episode.actions, episode.rewards, costs=single_cost(episode), **facts)

    @override
    def write(self, recordings: Iterable[Recording], about: About, out: Path) -> None:
        folder = out / "data"
        folder.mkdir(parents=True)
        episodes = steps = 0
        with created_hdf5(folder / MAIN, track_order=True) as file:
            for index, recording in enumerate(recordings):
                _write_episode(file.create_group(f"episode_{index}"), index, recording)
                episodes, steps = episodes + 1, steps + len(recording)
        size = round((folder / MAIN).stat().st_size / 1e6, 1)
        counts = {"total_episodes": episodes, "total_steps": steps, "dataset_size": size}
        (folder / METADATA).write_text(json.dumps(_metadata(about) | counts))

    @override
    def read(self, source: Path) -> Foreign:
        folder = source if (source / METADATA).is_file() else source / "data"
        metadata = _load_metadata(folder / METADATA)
        space, action = (json.loads(metadata[name]) for name in ("observation_space", "action_space"))
        ours = metadata.get("robo_rl")
        with opened_hdf5(folder / MAIN) as datasets:
            episodes = _episodes(datasets)
            if not episodes:
                raise DatasetError(f"{source} has no episodes.")
            parts = _observation_paths(datasets, episodes[0])
            arrays = tuple(_array(name, datasets[f"{episodes[0]}/{path}"], path, space) for name, path in parts.items())
            least, most = within((episode, loaded(required(datasets, episode, "actions"))) for episode in episodes)
            promises = _promises(datasets, episodes, metadata)
            unread = sorted({path.split("/")[2] for path in datasets if path.startswith(f"{episodes[0]}/infos/")} - {COST})
        texts = [name for name, array in zip(parts, arrays, strict=True) if array is None]
        observation = ObservationSpec(tuple(array for array in arrays if array is not None))
        spec = None if ours is None else EnvironmentSpec.from_json(ours["spec"])
        notes = [f"infos are not read: {', '.join(unread)}"] if unread else []
        notes += [*promises, *([f"texts are not read: {', '.join(texts[1:])}"] if texts[1:] else [])]
        jpeg = {name for name, array in observation.items() if _is_jpeg(metadata, array.shape, array.dtype)}
        notes += [f"stored as JPEG, and so they stay: {', '.join(sorted(jpeg))}"] if jpeg else []
        return Foreign(
            lambda: _recordings(folder / MAIN, parts, texts, jpeg, cost_name(spec)),
            observation if spec is None else ObservationSpec(tuple(spec.observation[name] for name in observation)),
            _actions(action, least, most),
            name=str(metadata.get("dataset_id", "minari")),
            spec=spec,
            notes=tuple(notes),
        )


FORMAT = Minari()


def _write_episode(group: h5py.Group, index: int, recording: Recording) -> None:
    group.attrs["id"], group.attrs["total_steps"] = index, len(recording)
    if recording.seed is not None:
        group.attrs["seed"] = recording.seed
    facts = {name: getattr(recording, name) for name in ("success", "instruction", "stop_reason")}
    group.attrs["robo_rl"] = json.dumps(facts)
    observations = group.create_group("observations")
    for name, values in recording.observations.items():
        write_array(observations, name, values)
    flags = np.zeros((2, len(recording)), np.bool_)
    flags[:, -1] = bool(recording.terminated), bool(recording.truncated)
    arrays = {"actions": recording.actions, "rewards": recording.rewards, "terminations": flags[0], "truncations": flags[1]}
    for name, array in arrays.items():
        write_array(group, name, np.asarray(array))
    for values in recording.costs.values():
        write_array(group.create_group("infos"), COST, values)


def _metadata(about: About) -> dict[str, Any]:
    spec = about.spec
    facts: dict[str, Any] = {
        "dataset_id": about.name if _IDENTIFIER.fullmatch(about.name) else f"{re.sub(r'[^-_0-9a-zA-Z]', '-', about.name)}-v0",
        "minari_version": VERSION,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps({"type": "Dict", "subspaces": {k: _box(a.space) for k, a in spec.observation.items()}}),
        "action_space": json.dumps(_discrete(spec.action.size) if spec.action.is_discrete else _box(spec.action.space)),
        "description": f"{spec.name}: {spec.instruction or 'recorded'}. {ACTIONS}",
        "algorithm_name": str(about.card.get("policy", "unknown")),
        "robo_rl": {"spec": spec.to_json(), "actions": ACTIONS},
    }
    return facts | _environment(about)


def _environment(about: About) -> dict[str, str]:
    """Return the entry of the metadata for Minari's `recover_environment`; empty if the card has no environment."""
    from gymnasium.envs.registration import EnvSpec

    name = about.card.get("environment")
    if not isinstance(name, str):
        return {}
    try:
        arguments = dict(about.card.get("arguments", {}))
        kind = EnvSpec(
            name, "robo_rl.environments.make:make_environment", disable_env_checker=True, kwargs={"name": name} | arguments
        )
        return {"env_spec": kind.to_json()}
    except (gymnasium.error.Error, ValueError, TypeError):
        return {}  # a name that Gymnasium's registry cannot have


def _box(space: Any) -> dict[str, Any]:
    limits = {"low": space.low.tolist(), "high": space.high.tolist()}
    return {"type": "Box", "dtype": str(space.dtype), "shape": list(space.shape), **limits}


def _discrete(size: int) -> dict[str, Any]:
    return {"type": "Discrete", "dtype": "int64", "start": 0, "n": size}


def _load_metadata(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MOST_METADATA:
        raise DatasetError(f"{path} is not metadata.", got=f"{path.stat().st_size} bytes", allowed=f"{MOST_METADATA} bytes")
    metadata: dict[str, Any] = json.loads(path.read_text())
    if metadata.get("data_format", "hdf5") != "hdf5":
        raise DatasetError(
            "Only Minari's HDF5 storage is read.",
            got=metadata["data_format"],
            allowed="hdf5",
            fix='rewrite it with minari, data_format="hdf5"',
        )
    if missing := {"observation_space", "action_space"} - set(metadata):
        raise DatasetError(f"{path} does not describe its spaces.", got=f"no {', '.join(sorted(missing))}")
    return metadata


def _episodes(datasets: Mapping[str, h5py.Dataset]) -> list[str]:
    names = {path.split("/")[0] for path in datasets}
    return sorted((name for name in names if re.fullmatch(r"episode_\d+", name)), key=lambda name: int(name[8:]))


def _promises(datasets: Mapping[str, h5py.Dataset], episodes: Sequence[str], metadata: Mapping[str, Any]) -> list[str]:
    """Return remarks on episodes and steps that the metadata declare and the data do not have."""
    steps = [len(datasets[f"{episode}/actions"]) for episode in episodes]
    notes = [
        f"{METADATA} says {metadata[name]} {name.removeprefix('total_')}, the data has {found}: all of the data is taken"
        for name, found in (("total_episodes", len(episodes)), ("total_steps", sum(steps)))
        if metadata.get(name) not in (None, found)
    ]
    declared = [attribute(datasets[f"{episode}/actions"].parent, "total_steps") for episode in episodes]
    if wrong := sum(said not in (None, count) for said, count in zip(declared, steps, strict=True)):
        notes.append(f"`total_steps` says another length of {wrong} episodes than the data has: the data is taken")
    return notes + ([f"episodes without an action are left out: {steps.count(0)}"] if 0 in steps else [])


def _observation_paths(datasets: Mapping[str, h5py.Dataset], episode: str) -> dict[str, str]:
    """Return flat name of an observation -> path in the episode's group; nested names are joined by underscores."""
    found: dict[str, str] = {}
    for path in datasets:
        inside = path.removeprefix(f"{episode}/")
        if path.startswith(f"{episode}/observations"):
            name = flat_name(inside.removeprefix("observations").strip("/") or "observation")
            if name in found:
                raise DatasetError("Two observations have the same flat name.", got=[found[name], inside])
            found[name] = inside
    return found


def _array(name: str, dataset: h5py.Dataset, path: str, space: Mapping[str, Any]) -> ArraySpec | None:
    """Return the spec of an observation; None for text.

    Args:
        name: Flat name.
        dataset: Array of the observation.
        path: Its path in the episode's group.
        space: Observation space in the metadata.
    """
    if h5py.check_string_dtype(dataset.dtype) is not None:
        return None
    for part in path.split("/")[1:]:
        space = space["subspaces"][int(part[7:]) if space["type"] == "Tuple" else part]
    if space["type"] != "Box":
        return foreign_array(name, dataset.shape[1:], dataset.dtype)
    shape = tuple(int(size) for size in space["shape"])
    low, high = (np.asarray(space[limit], np.float64) for limit in ("low", "high"))
    if len(shape) != 1 or dataset.dtype.kind != "f":
        return foreign_array(name, shape, space["dtype"])
    return foreign_array(name, shape, space["dtype"], tuple(low.tolist()), tuple(high.tolist()))


def _actions(space: Mapping[str, Any], least: tuple[float, ...], most: tuple[float, ...]) -> Actions:
    if space["type"] == "Discrete" and space.get("start", 0) == 0:
        return Actions(int(space["n"]), are_choices=True)
    if space["type"] != "Box" or len(space["shape"]) != 1:
        raise DatasetError("Actions are neither a vector nor a choice.", got=space["type"], allowed="Box of one axis, Discrete")
    return Actions(int(space["shape"][0]), tuple(map(float, space["low"])), tuple(map(float, space["high"])), least, most)


def _recordings(path: Path, parts: Mapping[str, str], texts: list[str], jpeg: set[str], cost: str) -> Iterator[Recording]:
    with opened_hdf5(path) as datasets:
        for episode in _episodes(datasets):
            group = datasets[f"{episode}/actions"].parent
            facts = json.loads(attribute(group, "robo_rl") or "{}")
            steps = {name: required(datasets, episode, name) for name in STEPS}
            arrays = {name: loaded(dataset) for name, dataset in steps.items()}
            if len(arrays["actions"]) == 0:
                continue
            values = {name: required(datasets, episode, inside) for name, inside in parts.items()}
            remarks = _contradictions(arrays)
            if texts and "instruction" not in facts:
                facts["instruction"] = values[texts[0]].asstr()[0]
                if len({*values[texts[0]].asstr()[:]}) > 1:
                    remarks = (*remarks, SEVERAL_TASKS)
            if "success" not in facts and f"{episode}/infos/success" in datasets:
                facts["success"] = bool(loaded(datasets[f"{episode}/infos/success"]).any())
            costs = {cost: loaded(datasets[inside])} if (inside := f"{episode}/infos/{COST}") in datasets else {}
            seed = attribute(group, "seed")
            yield Recording(
                {
                    name: _decoded(values[name]) if name in jpeg else loaded(values[name])
                    for name in values
                    if name not in texts
                },
                arrays["actions"],
                arrays["rewards"],
                terminated=bool(arrays["terminations"][-1]),
                truncated=bool(arrays["truncations"][-1]),
                seed=None if seed is None else int(seed),
                costs=costs,
                name=episode,
                remarks=remarks,
                **facts,
            )


def _contradictions(arrays: Mapping[str, Array]) -> tuple[str, ...]:
    ends = arrays["terminations"].astype(np.bool_) | arrays["truncations"].astype(np.bool_)
    return ("an end is marked before the last step: the episode goes on",) if ends[:-1].any() else ()


def _is_jpeg(metadata: Mapping[str, Any], shape: tuple[int, ...], dtype: str) -> bool:
    """Return whether Minari has stored an array as JPEG, which is its default for pictures of at least 32 pixels a side."""
    return bool(metadata.get("jpeg_encoding", True)) and dtype == "uint8" and len(shape) in (2, 3) and min(shape[:2]) >= 32


def _decoded(dataset: h5py.Dataset) -> Array:
    """Decode the pictures of an array that Minari has stored as JPEG; raises DatasetError if one is damaged."""
    decoded = [cv2.imdecode(np.frombuffer(row, np.uint8), cv2.IMREAD_COLOR_RGB) for row in dataset[()]]
    pictures = [picture for picture in decoded if picture is not None]
    if len(pictures) != len(decoded):
        raise DatasetError("A picture is not a JPEG.", got=dataset.name)
    return np.stack(pictures)
