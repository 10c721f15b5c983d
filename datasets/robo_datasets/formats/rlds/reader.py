"""Episodes of a dataset in RLDS (Ramos et al. 2021), as TensorFlow Datasets and Open X-Embodiment lay them out.

    NAME/VERSION/features.json  dataset_info.json  NAME-SPLIT.tfrecord-00000-of-00010 ...

A step has an observation, and the action and reward that follow it. Those of the last step are invalid: its observation is the
one after the last action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from robo_datasets.formats.recording import Actions, Array, Foreign, MappedReader, Recording, flat_name, foreign_array, within
from robo_datasets.formats.rlds.features import Feature, features_of
from robo_datasets.formats.rlds.shards import Values, examples, missing_shards, shards_in
from robo_rl.errors import DatasetError, RunError, UnknownName
from robo_rl.settings import settings_as
from robo_rl.spec.environment import ActionMode, ObservationSpec
from robo_rl.system.plain_files import read_object, read_yaml

FEATURES, INFO = "features.json", "dataset_info.json"
OBSERVATION, ACTION = "observation", "action"
FLAGS = ("is_first", "is_last", "is_terminal")
LAST = "rewards of last steps, which RLDS declares invalid, are not 0 and left out; last_step: kept in a mapping keeps them"


@dataclass(frozen=True)
class RldsMapping:
    """Content of the user's YAML file, which names the features that become observations and actions if not all do."""

    observations: Mapping[str, str] | None = None
    """name -> feature of a step, such as observation/state; by default all pictures and numbers in `observation`"""
    actions: tuple[str, ...] | None = None
    """features of a step, one behind the other; by default all numbers in `action`, in the file's order"""
    split: str | None = None
    """split that is read; by default train, if there are several"""
    rate: float | None = None
    """Rate of the recorded steps [1/s], which the files do not tell."""
    mode: ActionMode = "unknown"
    """Control mode that the actions stand for, such as end_effector_delta."""
    instruction: str | None = None
    """feature of a step that holds the instruction, a text; by default the first whose name has the word"""
    last_step: Literal["invalid", "kept"] = "invalid"
    """kept: action and reward of the last step are taken, although RLDS declares them invalid"""


@dataclass(frozen=True)
class Rlds(MappedReader):
    """Reader of RLDS datasets: folders with features.json and TFRecord files."""

    mapping: RldsMapping = RldsMapping()
    source: str = "the mapping"
    """name of the mapping in errors"""
    name = "rlds"

    def recognizes(self, source: Path) -> bool:
        """Return whether a folder looks like a dataset of TensorFlow Datasets."""
        try:
            folder = _folder(source)
            return (folder / FEATURES).is_file() and any(".tfrecord" in path.name for path in folder.iterdir())
        except (OSError, DatasetError):
            return False

    def mapped(self, path: Path) -> Rlds:
        """Return a reader with the mapping of a YAML file."""
        return Rlds(settings_as(RldsMapping, read_yaml(path), source=str(path)), str(path))

    def read(self, source: Path) -> Foreign:
        """Open a dataset; raises DatasetError, and UnknownName if the mapping names what is not there."""
        reading = _Reading(_folder(source), self.mapping, self.source)
        parts = [(name, actions) for name, actions in reading.actions()]
        if not parts:
            raise DatasetError(f"{source} has no episodes.", got="; ".join(reading.notes) or None, fix="copy the shards again")
        names = [label for feature in reading.acted for label in _labels(feature)]
        found = Actions(
            len(names),
            None,
            None,
            *within(parts),
            names=tuple(names),
            are_normalized=False,
            mode=self.mapping.mode,
        )
        return Foreign(
            reading.recordings,
            reading.observation(),
            found,
            name=reading.name,
            control_period=None if self.mapping.rate is None else 1 / self.mapping.rate,
            notes=tuple(reading.notes),
        )


FORMAT = Rlds()


class _Reading:
    """Dataset whose description was read."""

    def __init__(self, folder: Path, mapping: RldsMapping, source: str) -> None:
        self._mapping, self._source = mapping, source
        try:
            described = read_object(folder / FEATURES, fix="copy it again")
        except (RunError, OSError) as error:
            raise DatasetError(f"{folder} has no {FEATURES} that can be read.", got=error) from None
        self.features, left_out = features_of(described)
        self.notes = [f"not read: {', '.join(sorted(left_out))}"] if left_out else []
        self.name = flat_name(folder.parent.name if re.fullmatch(r"\d+\.\d+\.\d+", folder.name) else folder.name)
        self.observed = self._observed()
        self.acted = [self._feature(path, "numbers") for path in self._acted()]
        self._words = self._instruction()
        self._shards = self._of_split(shards_in(folder))
        self._heights: dict[str, tuple[int, ...]] = {}

    def actions(self) -> Iterator[tuple[str, Array]]:
        """Yield name and actions of each episode, and note what is damaged in words."""
        found, kept_rewards = 0, 0
        for name, example in self._examples(self.notes.append):
            actions = self._actions(example)
            found += 1
            kept_rewards += self._mapping.last_step == "invalid" and bool(self._rewards(example)[-1:].any())
            for observation, feature in self.observed.items():
                if feature.kind == "picture" and observation not in self._heights:
                    self._heights[observation] = feature.values(example).shape[1:]
            yield name, actions if self._mapping.last_step == "kept" else actions[:-1]
        if kept_rewards:
            self.notes.append(f"{LAST}: {kept_rewards} of {found} episodes")

    def observation(self) -> ObservationSpec:
        """Return the spec of the observations."""
        shapes = {name: self._heights.get(name, feature.shape) for name, feature in self.observed.items()}
        return ObservationSpec(
            tuple(foreign_array(name, shapes[name], feature.dtype) for name, feature in self.observed.items())
        )

    def recordings(self) -> Iterator[Recording]:
        """Yield the episodes."""
        for name, example in self._examples(lambda words: None):
            try:
                yield self._recording(name, example)
            except DatasetError as error:
                raise DatasetError(f"{name}: {error}") from None

    def _recording(self, name: str, example: Mapping[str, Values]) -> Recording:
        observations = {key: feature.values(example) for key, feature in self.observed.items()}
        actions, rewards = self._actions(example), self._rewards(example)
        flags = {flag: self._flags(example, flag) for flag in FLAGS}
        lengths = {len(actions), len(rewards) or len(actions), *map(len, observations.values())}
        if len(lengths) > 1:
            raise DatasetError("Parts of an episode differ in length.", got=sorted(lengths), allowed="one value for each step")
        last = flags["is_last"]
        remarks: tuple[str, ...] = ()
        if last is not None and len(last) and (not last[-1] or last[:-1].any()):
            remarks = ("is_last is not set at the last step alone: each record is taken as one episode",)
        count = len(actions) if self._mapping.last_step == "kept" else len(actions) - 1
        terminal = flags["is_terminal"]
        is_terminal = None if terminal is None or not len(terminal) else bool(terminal[-1])
        words = None if self._words is None else next(iter(self._words.values(example)), None)
        return Recording(
            observations,
            actions[:count],
            rewards[:count] if len(rewards) else None,
            terminated=is_terminal,
            truncated=None if is_terminal is None else not is_terminal,
            instruction=words or None,
            name=name,
            remarks=remarks,
        )

    def _actions(self, example: Mapping[str, Values]) -> Array:
        parts = [feature.values(example) for feature in self.acted]
        if len({len(part) for part in parts}) > 1:
            raise DatasetError("Parts of an action differ in length.", got=[len(part) for part in parts])
        numbers = [part.astype(np.float32) if part.dtype == bool else part for part in parts]
        return np.concatenate([part.reshape(len(part), -1) for part in numbers], axis=1)

    def _rewards(self, example: Mapping[str, Values]) -> Array:
        """Return (N,) rewards, none if there are no such numbers."""
        feature = self.features.get("reward")
        if feature is None or feature.kind != "numbers" or feature.shape not in ((), (1,)):
            return np.zeros(0)
        return np.asarray(feature.values(example)).reshape(-1)

    def _flags(self, example: Mapping[str, Values], name: str) -> Array | None:
        feature = self.features.get(name)
        return None if feature is None else np.asarray(feature.values(example)).reshape(-1).astype(bool)

    def _examples(self, damage: Any) -> Iterator[tuple[str, Mapping[str, Values]]]:
        for shard in self._shards:
            for number, example in enumerate(examples(shard, damage)):
                yield f"{shard.name} episode {number}", example

    def _observed(self) -> dict[str, Feature]:
        if self._mapping.observations is not None:
            return {name: self._feature(path, "picture", "numbers") for name, path in self._mapping.observations.items()}
        inside = [each for each in self.features.values() if each.path.split("/")[0] == OBSERVATION and each.kind != "text"]
        found = {flat_name(each.path.removeprefix(f"{OBSERVATION}/")): each for each in inside}
        if not found or len(found) < len(inside):
            self._raise_unclear("observations", [each.path for each in inside])
        return found

    def _acted(self) -> Sequence[str]:
        if self._mapping.actions is not None:
            return self._mapping.actions
        found = [each.path for each in self.features.values() if each.path.split("/")[0] == ACTION and each.kind == "numbers"]
        if not found:
            self._raise_unclear("actions", found)
        return found

    def _raise_unclear(self, part: str, found: Sequence[str]) -> None:
        allowed, fix = ", ".join(self.features), f"--mapping FILE with {part}"
        raise DatasetError(f"The steps do not say their {part}.", got=", ".join(found) or "none", allowed=allowed, fix=fix)

    def _feature(self, path: str, *kinds: str) -> Feature:
        known = {key: feature for key, feature in self.features.items() if feature.kind in kinds}
        if path not in known:
            raise UnknownName(f"feature in {self._source}", path, known)
        return known[path]

    def _instruction(self) -> Feature | None:
        if self._mapping.instruction is not None:
            return self._feature(self._mapping.instruction, "text")
        texts = [each for each in self.features.values() if each.kind == "text" and "instruction" in each.path]
        return texts[0] if texts else None

    def _of_split(self, shards: Sequence[Path]) -> list[Path]:
        """Return the shards of one split."""
        splits: dict[str, list[Path]] = {}
        for path in shards:
            splits.setdefault(path.name.partition(".tfrecord")[0].rpartition("-")[2], []).append(path)
        wanted = self._mapping.split
        if wanted is not None and wanted not in splits:
            raise UnknownName("split of the dataset", wanted, splits)
        chosen = wanted or ("train" if "train" in splits else next(iter(splits)))
        if len(splits) > 1:
            self.notes.append(f"split {chosen} of {', '.join(splits)}; another one: split: NAME in a mapping")
        if missing := missing_shards(splits[chosen]):
            self.notes.append(f"{len(missing)} shards are missing, such as {missing[0]}")
        return splits[chosen]


def _folder(source: Path) -> Path:
    """Return the folder with features.json: the source, or its only version; raises DatasetError for several."""
    if (source / FEATURES).is_file() or not source.is_dir():
        return source
    found = [path for path in sorted(source.iterdir()) if (path / FEATURES).is_file()]
    if len(found) > 1:
        raise DatasetError(
            f"{source} has several versions.", got=", ".join(path.name for path in found), fix="name one of them"
        )
    return found[0] if found else source


def _labels(feature: Feature) -> list[str]:
    """Return a name for each number of an action."""
    name = flat_name(feature.path.removeprefix(f"{ACTION}/"))
    size = int(np.prod(feature.shape))
    return [name] if size == 1 else [f"{name}_{index}" for index in range(size)]
