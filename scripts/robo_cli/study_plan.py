"""What a study consists of: trainings that datasets are made from, datasets, and methods trained on them with several seeds.

A study is a YAML file over the dataclasses below, strict as a recipe is. Everything it makes lies in one folder:

    OUT/sources/  runs          OUT/data/NAME  datasets          OUT/runs/  runs          OUT/logs/  what they printed
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import pydantic

from robo_cli.study_labels import STRICT, Labels, Model, Shuffled
from robo_cli.study_options import Settings
from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.plain_files import read_yaml


@dataclass(frozen=True)
class Source:
    """A training that keeps its episodes."""

    __pydantic_config__ = STRICT
    recipe: str
    seed: int = 10
    """Apart from the seeds of the study."""
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Data:
    """A dataset of one of D4RL's families, of a source or of an environment that has a scripted expert."""

    __pydantic_config__ = STRICT
    family: str
    source: str = ""
    environment: str = ""
    """Where there is no source."""
    arguments: Settings = field(default_factory=dict)
    """Of that environment."""
    episodes: int = 0
    """0 for all that there are, or `robo-rl record`'s own default."""
    expert: str = ""
    """As in `robo-rl record --expert`."""

    def __post_init__(self) -> None:
        if bool(self.source) == bool(self.environment):
            got = "both" if self.source else "neither"
            raise InvalidSetting(
                "A dataset is made from a source or in an environment.", got=got, allowed="source or environment"
            )


@dataclass(frozen=True)
class Method:
    """A recipe that learns from each dataset."""

    __pydantic_config__ = STRICT
    recipe: str
    settings: Settings = field(default_factory=dict)
    for_source: dict[str, Settings] = field(default_factory=dict)
    """Settings that hold for the datasets of one source, such as a penalty that the paper chooses for each domain."""
    return_span: float = 0.0
    """Rewards are scaled so that their sums over a dataset's episodes span this; 0 leaves them. IQL's paper scales to 1,000."""
    labels: str = ""
    """Of the study, whose rewards count in the place of the recorded ones."""
    model: str = ""
    """Of the study, which the reward of the recipe or the settings reads while a policy learns online."""
    only: tuple[str, ...] = ()
    """Datasets; none for all."""


@dataclass(frozen=True)
class Claim:
    """An order that is expected, stated before it is measured."""

    __pydantic_config__ = STRICT
    better: str
    than: str
    datasets: tuple[str, ...]
    """Endings of their names, such as mixed"""
    share: float = 1.0
    """Of the other's score that is to be exceeded."""


@dataclass(frozen=True)
class Study:
    """A table of methods by datasets."""

    __pydantic_config__ = STRICT
    name: str
    summary: str
    datasets: dict[str, Data]
    methods: dict[str, Method]
    sources: dict[str, Source] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    """Reward models that are learned before labels are made."""
    labels: dict[str, Labels] = field(default_factory=dict)
    """Label sets of every dataset, made in this order."""
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: Settings = field(default_factory=dict)
    """Of every training."""
    claims: tuple[Claim, ...] = ()

    def __post_init__(self) -> None:
        known: dict[str, Collection[str]] = {
            "source": self.sources,
            "dataset": self.datasets,
            "method": self.methods,
            "model": self.models,
            "label set": self.labels,
        }
        named = [("source", data.source) for data in self.datasets.values() if data.source]
        named += [("label set", method.labels) for method in self.methods.values() if method.labels]
        named += [("label set", each.shuffled) for each in self.labels.values() if isinstance(each, Shuffled)]
        models = [each.model for each in self.labels.values() if not isinstance(each, Shuffled)]
        models += [method.model for method in self.methods.values()]
        named += [("model", model) for model in models if model]
        named += [("source", source) for method in self.methods.values() for source in method.for_source]
        named += [("dataset", dataset) for method in self.methods.values() for dataset in method.only]
        named += [("method", name) for claim in self.claims for name in (claim.better, claim.than)]
        for kind, name in named:
            if name not in known[kind]:
                raise UnknownName(f"{kind} of the study {self.name}", name, known[kind])
        require_allowed(self, {"seeds": (len(set(self.seeds)) == len(self.seeds) >= 1, "one or more, all different")})

    def trainings(self) -> Iterator[tuple[str, str, int]]:
        """Yields (method, dataset, seed), one seed of everything before the next, so that a table grows evenly."""
        for seed in self.seeds:
            for name, method in self.methods.items():
                for dataset in method.only or self.datasets:
                    yield name, dataset, seed

    def settings_of(self, method: str, dataset: str, span: float) -> Settings:
        """Returns the settings of one training; `span` is that of the sums of rewards over the episodes of the dataset."""
        chosen = self.methods[method]
        settings = self.settings | chosen.settings | chosen.for_source.get(self.datasets[dataset].source, {})
        if chosen.return_span and span > 0:
            settings["learner.reward-scale"] = float(f"{chosen.return_span / span:.4g}")
        return settings


def read_study(name: str) -> Study:
    """Returns a study that comes with the package, or that of a YAML file."""
    path = study_file(name)
    try:
        return pydantic.TypeAdapter(Study).validate_python({"name": path.stem, **read_yaml(path)})
    except (pydantic.ValidationError, TypeError) as error:
        raise InvalidSetting(f"{path} is not a study.", got=_reasons(error), fix="docs/offline.md shows one") from None


def study_file(name: str) -> Path:
    """Returns the file of a study, by its name or its path; raises UnknownName."""
    folder = Path(str(files("robo_cli") / "studies"))
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    path = Path(name) if name.endswith((".yaml", ".yml")) else known.get(name)
    if path is None or not path.exists():
        raise UnknownName("study", name, known, fix="a path to a .yaml file works too")
    return path


def has_datasets(path: Path) -> bool:
    """Returns whether a study learns from datasets; one that does not, learns in environments (`robo_cli.online_study`)."""
    try:
        found = read_yaml(path)
    except InvalidSetting:
        return True  # whoever reads it says what is wrong
    return not isinstance(found, dict) or "datasets" in found


def _reasons(error: Exception) -> str:
    if not isinstance(error, pydantic.ValidationError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors())
