"""How a study makes labels of its datasets, and the reward models that it learns before; each kind is one class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from robo_cli.recipe import read_recipe
from robo_cli.study_options import Settings, Words, options
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.checkpoints import MANIFEST
from robo_rl.errors import RunError
from robo_rl.runs import write_text
from robo_rl.settings import plain

COMPLETION = "reward.completion.name"
STRICT = pydantic.ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Model:
    """A reward model that is learned once, in OUT/models/NAME."""

    __pydantic_config__ = STRICT
    fit: str
    """A kind of `robo-rl reward fit`."""
    settings: Settings = field(default_factory=dict)

    def command(self, out: Path) -> Words:
        """Returns how it is learned."""
        return ["reward", "fit", self.fit, "--out", str(out), *options(self.settings)]


@dataclass(frozen=True)
class Asked:
    """Labels of a reward model."""

    __pydantic_config__ = STRICT
    reward: str
    settings: Settings = field(default_factory=dict)
    model: str = ""
    """A model of the study, whose folder becomes the setting `folder`."""

    def commands(self, name: str, dataset: Path, out: Path) -> list[Words]:
        """Returns how the set is made."""
        told = _settings({**self.settings, **_folder(self.model, out)})
        return [["label", str(dataset), "--name", name, "--reward", self.reward, *told]]


@dataclass(frozen=True)
class Compared:
    """Labels of a reward that is fitted to comparisons."""

    __pydantic_config__ = STRICT
    rater: str
    settings: Settings = field(default_factory=dict)
    """Of the rater."""
    model: str = ""
    """A model of the study, whose folder becomes the setting `folder` of the rater."""
    pairs: int = 2000
    length: int = 1
    """Steps of a segment."""

    def commands(self, name: str, dataset: Path, out: Path) -> list[Words]:
        """Returns how the segments are compared, the reward fitted and the set made."""
        told, folder = _settings({**self.settings, **_folder(self.model, out)}), out / "rewards" / f"{dataset.name}--{name}"
        size = ["--pairs", str(self.pairs), "--length", str(self.length)]
        compare = ["prefer", str(dataset), "--name", name, "--rater", self.rater, *size, *told]
        fit = ["reward", "fit", "preference", "--dataset", str(dataset), "--preferences", name, "--out", str(folder)]
        label = ["label", str(dataset), "--name", name, "--reward", "preference", "--settings", f"folder={folder}"]
        return [compare, *([] if is_made(folder) else [fit]), label]


@dataclass(frozen=True)
class Shuffled:
    """The labels of another set, dealt out by chance: the control."""

    __pydantic_config__ = STRICT
    shuffled: str

    def commands(self, name: str, dataset: Path, out: Path) -> list[Words]:
        """Returns how the set is made."""
        return [["label", str(dataset), "--name", name, "--shuffled", self.shuffled]]


Labels = Asked | Compared | Shuffled


def require_as_made(told: Path, settings: Any) -> None:
    """Notes beside what is about to be made how; raises RunError where that was made with other settings."""
    now = json.loads(json.dumps(plain(settings)))
    if not told.exists():
        told.parent.mkdir(parents=True, exist_ok=True)
        write_text(told, json.dumps(now, indent=1))
    elif (before := json.loads(told.read_text())) != now:
        fix = f"another --out, or remove {told} and what rests on it"
        raise RunError(f"{told.stem} was made with other settings.", got=f"{before}, now {now}", fix=fix)


def is_made(folder: Path) -> bool:
    """Returns whether a model is complete."""
    return any(folder.glob(f"*/{MANIFEST}"))


def is_labelled(dataset: Dataset, name: str) -> bool:
    """Returns whether every episode has labels of the set."""
    return {entry.identity for entry in dataset.entries()} <= LabelSet(dataset, name).labelled


def span_of(dataset: Dataset, labels: str) -> float:
    """Returns most minus least sum of rewards over the episodes: of those of a label set, or of the recorded ones."""
    if not labels:
        return float(dataset.card["return"]["most"] - dataset.card["return"]["least"])
    found = [LabelSet.existing(dataset, labels).read(entry.identity) for entry in dataset.entries()]
    sums = [float(each.values[each.valid].sum(dtype=float)) for each in found if each is not None]
    if not sums:
        raise RunError(f"{dataset.path} has no labels of the set {labels!r}.", fix="run the study again")
    return max(sums) - min(sums)


def reward_folders(model: str, recipe: str, settings: Settings, out: Path) -> Settings:
    """Returns the settings by which a training's reward finds a model of the study, its completion too where it has one."""
    if not model:
        return {}
    completes = COMPLETION in settings or read_recipe(recipe).reward.completion.name
    parts = ["reward", *(["reward.completion"] if completes else [])]
    return {f"{part}.settings.folder": str(out / "models" / model) for part in parts}


def _folder(model: str, out: Path) -> Mapping[str, Any]:
    return {"folder": str(out / "models" / model)} if model else {}


def _settings(settings: Mapping[str, Any]) -> list[str]:
    words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    return ["--settings", *words] if words else []
