"""Inputs that a study makes before its trainings, by commands: episodes, datasets, reward models, programs, labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pydantic

from robo_app.arguments.free_settings import option_words
from robo_app.arguments.options import Settings, Words, options
from robo_app.arguments.recipe_settings import MAPPINGS
from robo_app.jobs.trainings import Training, changed_settings, flat, other_settings
from robo_app.recipes.recipe import Recipe, read_recipe, to_yaml
from robo_app.training.train_options import recipe_of
from robo_datasets.dataset import DESCRIPTION, Dataset
from robo_datasets.labels import LabelSet
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.runs.checkpoints import MANIFEST
from robo_rl.system.plain_files import parse_yaml, read_yaml

STRICT = pydantic.ConfigDict(extra="forbid")
COMPLETION = "reward.completion.name"
DATASET, FOLDER = "demonstrations.dataset", "folder"
"""Settings whose values are paths, which may have moved since a training: the dataset, and the folder of a reward model.

The weights of the reward model are recorded in the run, so its folder does not identify it.
"""


@dataclass(frozen=True)
class Source:
    """Training of a study whose episodes are recorded into datasets; its run lies in OUT/sources."""

    __pydantic_config__ = STRICT
    recipe: str
    seed: int = 10
    """Seed of this training; it should differ from the seeds of the study."""
    settings: Settings = field(default_factory=dict)

    def training(self, name: str, out: Path) -> Training:
        """Return the training; raises RunError if it was made with other settings, because the datasets were made from it."""
        words = [self.recipe, "--seed", str(self.seed), "--record-episodes", *options(self.settings), "--name", name]
        training = Training(name, self.seed, words, out / "sources")
        if (run := training.run) is not None and (changed := differing(run, words)):
            raise other_settings(run, changed)
        return training


@dataclass(frozen=True)
class Data:
    """Dataset of a study, recorded with `robo-rl record` into OUT/data/NAME.

    It belongs to one of D4RL's families, such as "medium". Its actor is a training of the study, or an environment's scripted
    expert.
    """

    __pydantic_config__ = STRICT
    family: str
    source: str = ""
    environment: str = ""
    """Environment to record in if there is no source."""
    arguments: Settings = field(default_factory=dict)
    """Arguments of that environment."""
    episodes: int = 0
    """Number of episodes; 0 for what `robo-rl record` takes by default: for a source, all of its episodes."""
    expert: str = ""
    """Expert of a family of datasets: "scripted", a run or an agent, as in `robo-rl record --expert`."""

    def __post_init__(self) -> None:
        if bool(self.source) == bool(self.environment):
            got = "both" if self.source else "neither"
            raise InvalidSetting(
                "A dataset is made from a source or in an environment.", got=got, allowed="source or environment"
            )

    def command(self, path: Path, source: Training | None) -> Words:
        """Return the words of `record`, without `robo-rl`, which records the dataset or resumes the recording.

        Args:
            path: Folder of the dataset.
            source: Training whose episodes are recorded; None to record in `environment`.
        """
        environment = self.environment if source is None else read_recipe(source.words[0]).environment.name
        settings: Settings = {
            "family": self.family,
            "out": str(path),
            "run": "" if source is None else str(source.run),
            "episodes": self.episodes,
            "expert": self.expert,
        }
        arguments = option_words("environment.arguments", self.arguments)
        begun = ["--append"] if (path / DESCRIPTION).exists() else []
        return ["record", environment, *options({name: value for name, value in settings.items() if value}), *arguments, *begun]

    def made(self, path: Path, source: Training | None) -> Dataset | None:
        """Return the dataset if its card shows that it is complete; raises RunError if it was made with other settings."""
        if not (path / DESCRIPTION).exists() or "content" not in (card := Dataset(path).card):
            return None
        wanted: Settings = {"family": self.family, "planned": self.episodes or card.get("planned")}
        if self.environment:
            wanted |= {"environment": self.environment, "arguments": self.arguments}
        recorded = {key: card.get(key) for key in wanted}
        if source is not None and source.run is not None:
            wanted["run"], recorded["run"] = source.run.name, card["run"]["name"]
        if changed := changed_settings(recorded, wanted):
            raise other_settings(path, changed)
        return Dataset(path)


@dataclass(frozen=True)
class PublicData:
    """A public set that becomes a dataset (`robo-rl data get`), in OUT/data/NAME."""

    __pydantic_config__ = STRICT
    get: str
    """Name of the set."""
    folder: str = ""
    """Folder that holds its files; "" to download them."""
    source: ClassVar[str] = ""
    """A public set is made from no training."""

    def command(self, path: Path, source: Training | None) -> Words:
        """Return the words of `data get`, without `robo-rl`, which writes the dataset to `path`; `source` is not used."""
        return ["data", "get", self.get, "--out", str(path), *(["--from", self.folder] if self.folder else [])]

    def made(self, path: Path, source: Training | None) -> Dataset | None:
        """Return the dataset if it exists; raises RunError if it was made from another public set."""
        if not (path / DESCRIPTION).exists():
            return None
        dataset = Dataset(path)
        if changed := changed_settings({"get": dataset.card.get("public_set")}, {"get": self.get}):
            raise other_settings(path, changed)
        return dataset


@dataclass(frozen=True)
class Model:
    """A reward model that is learned once, in OUT/models/NAME."""

    __pydantic_config__ = STRICT
    fit: str
    """Name of the `robo-rl reward fit` subcommand that learns the model."""
    settings: Settings = field(default_factory=dict)

    def command(self, out: Path) -> Words:
        """Return the words of `reward fit`, without `robo-rl`, which learns the model and writes it to the folder `out`."""
        return ["reward", "fit", self.fit, "--out", str(out), *options(self.settings)]


@dataclass(frozen=True)
class Program:
    """A program that a language model writes, in OUT/programs/NAME.py."""

    __pydantic_config__ = STRICT
    writer: str
    """Name of the `robo-rl reward` subcommand that writes the program; it must accept ENVIRONMENT, --llm and --out FILE."""
    environment: str
    llm: str
    settings: Settings = field(default_factory=dict)

    def command(self, file: Path) -> Words:
        """Return the words, without `robo-rl`, of the command by which the language model writes the program to `file`."""
        return ["reward", self.writer, self.environment, "--llm", self.llm, "--out", str(file), *options(self.settings)]


@dataclass(frozen=True)
class Asked:
    """Labels that a reward gives to each step."""

    __pydantic_config__ = STRICT
    reward: str
    settings: Settings = field(default_factory=dict)
    model: str = ""
    """Name of a model that the study learns, whose folder becomes the setting `folder` of the reward; "" for none."""

    def commands(self, name: str, dataset: Path, out: Path) -> list[Words]:
        """Return the words of `label`, without `robo-rl`, which stores the set `name` of a reward's labels beside `dataset`.

        out: folder of the study, in which `model` lies.
        """
        settings = _settings_words("reward.settings", self.settings, self.model, out)
        return [["label", str(dataset), "--name", name, "--reward", self.reward, *settings]]


@dataclass(frozen=True)
class Compared:
    """Labels of a reward that is fitted to a rater's comparisons of segments."""

    __pydantic_config__ = STRICT
    rater: str
    settings: Settings = field(default_factory=dict)
    """Keyword settings of the rater, as in `robo-rl prefer --rater.settings`."""
    model: str = ""
    """Model of the study; its folder becomes the setting `folder` of the rater."""
    pairs: int = 2000
    length: int = 1
    """Number of steps in each compared segment."""

    def commands(self, name: str, dataset: Path, out: Path) -> list[Words]:
        """Return the words, without `robo-rl`, of the commands that compare segments, fit a reward and store its labels.

        The labels are the set `name` beside `dataset`. out: folder of the study, in which the reward is stored.
        """
        settings = _settings_words("rater.settings", self.settings, self.model, out)
        folder = out / "rewards" / f"{dataset.name}--{name}"
        size = ["--pairs", str(self.pairs), "--length", str(self.length)]
        compare = ["prefer", str(dataset), "--name", name, "--rater", self.rater, *size, *settings]
        fit = ["reward", "fit", "preference", "--dataset", str(dataset), "--preferences", name, "--out", str(folder)]
        label = ["label", str(dataset), "--name", name, "--reward", "preference"]
        label += option_words("reward.settings", {"folder": str(folder)})
        return [compare, *([] if is_made(folder) else [fit]), label]


@dataclass(frozen=True)
class Shuffled:
    """Source of labels for a control experiment: the rewards of the label set named `shuffled`, dealt out in random order."""

    __pydantic_config__ = STRICT
    shuffled: str

    def commands(self, name: str, dataset: Path, out: Path) -> list[Words]:
        """Return the words of `label`, without `robo-rl`, which stores the set `name` beside `dataset`; `out` is not used."""
        return [["label", str(dataset), "--name", name, "--shuffled", self.shuffled]]


Labels = Asked | Compared | Shuffled


def is_made(folder: Path) -> bool:
    """Return True if a subfolder holds the manifest of a learned model, which is written when the model is complete."""
    return any(folder.glob(f"*/{MANIFEST}"))


def is_labelled(dataset: Dataset, name: str) -> bool:
    """Return True if every episode has labels of the set."""
    return {entry.identity for entry in dataset.entries()} <= LabelSet(dataset, name).labelled


def span_of(dataset: Dataset, labels: str) -> float:
    """Return the largest minus the smallest sum of rewards of an episode. labels: label set; "" for the recorded rewards."""
    if not labels:
        return float(dataset.card["return"]["most"] - dataset.card["return"]["least"])
    found = [LabelSet.existing(dataset, labels).read(entry.identity) for entry in dataset.entries()]
    sums = [float(each.values[each.valid].sum(dtype=float)) for each in found if each is not None]
    if not sums:
        raise RunError(f"{dataset.path} has no labels of the set {labels!r}.", fix="run the study again")
    return max(sums) - min(sums)


def reward_folders(model: str, recipe: str, settings: Settings, out: Path) -> Settings:
    """Return the folder of a model of the study, as settings of a training's reward and completion bonus (if it has one)."""
    if not model:
        return {}
    completes = COMPLETION in settings or read_recipe(recipe).reward.completion.name
    parts = ["reward", *(["reward.completion"] if completes else [])]
    return {f"{part}.settings.folder": str(out / "models" / model) for part in parts}


def differing(run: Path, words: Words) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which a run and a command differ: name -> (value of the run, value of the command).

    Paths are left out, and so is a setting that only one of them has: another version of the program added or removed it.
    """
    before = _settings(read_yaml(run / "recipe.yaml"))
    now = _settings(parse_yaml(to_yaml(recipe_of(words)), "The recipe"))
    return {name: (before[name], now[name]) for name in sorted(before.keys() & now.keys()) if before[name] != now[name]}


def recipe_settings(recipe: Recipe[Any]) -> dict[str, Any]:
    """Return the settings of a recipe by dotted path, without paths of files and without its names and seed."""
    found: dict[str, Any] = json.loads(json.dumps(_settings(parse_yaml(to_yaml(recipe), "The recipe")), default=str))
    return {path: value for path, value in found.items() if path not in ("name", "summary", "seed")}


def _settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe by dotted path, without paths of files; a mapping with all of its keys is one value."""
    found = flat(recipe, MAPPINGS)
    without = {
        path: {key: value for key, value in found[path].items() if key != FOLDER} for path in MAPPINGS if found.get(path)
    }
    return {path: value for path, value in {**found, **without}.items() if path != DATASET}


def _settings_words(group: str, settings: Mapping[str, Any], model: str, out: Path) -> list[str]:
    folder = {"folder": str(out / "models" / model)} if model else {}
    return option_words(group, {**settings, **folder})
