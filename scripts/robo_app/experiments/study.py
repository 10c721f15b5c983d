"""Study: methods trained in environments or on datasets with several seeds, and their expected order.

A YAML file gives the fields of the dataclasses below; as in a recipe, unknown keys are errors. All results lie in one folder:

    OUT/sources/   runs        OUT/data/NAME  datasets       OUT/programs/  written by language models
    OUT/models/    learned     OUT/runs/      trainings      OUT/logs/      their output
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from robo_app.arguments.options import Settings, Words, options
from robo_app.experiments.inputs import (
    STRICT,
    Asked,
    Compared,
    Data,
    Labels,
    Model,
    Program,
    PublicData,
    Shuffled,
    Source,
    differing,
    is_labelled,
    is_made,
    recipe_settings,
    reward_folders,
    span_of,
)
from robo_app.jobs.jobs import Job
from robo_app.jobs.trainings import Training, keep_settings
from robo_app.recipes.recipe import read_recipe
from robo_app.training.train_options import Train, parsed
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.errors import UnknownName, require_allowed
from robo_rl.runs.run import Run
from robo_rl.settings import plain

Cell = tuple[str, str, int]
"""One training of a study: method, dataset or task ("" if there are none), and seed."""


@dataclass(frozen=True)
class Method:
    """A recipe that learns from each dataset, or in its own environment if the study has no datasets."""

    __pydantic_config__ = STRICT
    recipe: str
    settings: Settings = field(default_factory=dict)
    for_source: dict[str, Settings] = field(default_factory=dict)
    """Source -> settings for its datasets alone, such as a penalty that the paper chooses for each domain."""
    return_span: float = 0.0
    """Difference of the best and the worst return of a dataset after scaling of rewards (IQL's paper: 1,000); 0: no scaling."""
    labels: str = ""
    """Label set of the study that replaces the recorded rewards."""
    model: str = ""
    """Model of the study that the reward and the completion bonus read."""
    program: str = ""
    """Program of the study that the reward reads."""
    only: tuple[str, ...] = ()
    """Names of the datasets that the method learns from; empty for all datasets."""


@dataclass(frozen=True)
class Claim:
    """An order that is expected, stated before it is measured."""

    __pydantic_config__ = STRICT
    better: str
    than: str
    datasets: tuple[str, ...] = ()
    """Endings of the datasets' names, such as mixed; empty for all datasets."""
    share: float = 1.0
    """Share of the other method's score that the better one is to exceed."""
    by: str = "return"
    """Compared outcome: "return" (not comparable between different rewards), "success" or a measure of the environment."""
    fewer: bool = False
    """True if a lower outcome is better, such as fewer infractions."""


@dataclass(frozen=True)
class Study:
    """Methods that are compared in environments or on datasets."""

    __pydantic_config__ = STRICT
    name: str
    summary: str
    methods: dict[str, Method]
    sources: dict[str, Source] = field(default_factory=dict)
    datasets: dict[str, Data | PublicData] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    """Reward models that are learned before labels are made."""
    programs: dict[str, Program] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)
    """Label sets of every dataset, made in this order."""
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: Settings = field(default_factory=dict)
    """Settings of every training."""
    claims: tuple[Claim, ...] = ()

    def __post_init__(self) -> None:
        known: dict[str, Collection[str]] = {
            "source": self.sources,
            "dataset": self.datasets,
            "method": self.methods,
            "model": self.models,
            "program": self.programs,
            "label set": self.labels,
        }
        labels = [*self.labels.values()]
        named = [("source", data.source) for data in self.datasets.values()]
        named += [("label set" if isinstance(each, Shuffled) else "model", _origin(each)) for each in labels]
        for method in self.methods.values():
            named += [("label set", method.labels), ("model", method.model), ("program", method.program)]
            named += [*(("source", source) for source in method.for_source), *(("dataset", name) for name in method.only)]
        named += [("method", name) for claim in self.claims for name in (claim.better, claim.than)]
        for kind, name in named:
            if name and name not in known[kind]:
                raise UnknownName(f"{kind} of the experiment {self.name}", name, known[kind])
        on_data = bool(self.sources or self.labels or any(method.return_span for method in self.methods.values()))
        require_allowed(self, {"datasets": (bool(self.datasets) or not on_data, "one or more, for labels and spans")})
        require_allowed(self, {"seeds": (len(set(self.seeds)) == len(self.seeds) >= 1, "one or more, all different")})

    def cells(self) -> Iterator[Cell]:
        """Yield all combinations (method, dataset or task, seed) of the study.

        Every method comes with the first seed before any comes with the second, so that a table of results grows evenly.
        """
        for seed in self.seeds:
            for name, method in self.methods.items():
                for dataset in method.only or self.datasets or ("",):
                    yield name, dataset, seed

    def preparations(self, out: Path) -> Iterator[Sequence[Job]]:
        """Yield the jobs for the missing inputs of the trainings, stage by stage: each stage needs the one before.

        Raises RunError if an input was made with other settings: what was made from it would have to be removed, too.
        """
        sources = {name: source.training(name, out) for name, source in self.sources.items()}
        yield [source.job() for source in sources.values() if source.finished is None]
        made = self.made(out)
        missing = {name: data for name, data in self.datasets.items() if name not in made}
        yield [Job(name, [data.command(out / "data" / name, sources.get(data.source))]) for name, data in missing.items()]
        folders = {name: out / "models" / name for name in self.models}
        for name, folder in folders.items():
            _keep(folder.with_suffix(".json"), self.models[name])
        yield [Job(name, [self.models[name].command(at)]) for name, at in folders.items() if not is_made(at)]
        files = {name: program_file(name, out) for name in self.programs}
        yield [Job(name, [self.programs[name].command(file)]) for name, file in files.items() if not file.exists()]
        for name in self.labels:  # one may rest on another
            yield self._labelling(name, out)

    def trainings(self, out: Path) -> dict[Cell, Training]:
        """Return the trainings whose dataset and labels exist.

        A run counts if it has the plan's settings and has learnt from exactly the dataset's episodes and labels.
        """
        made, found = self.made(out), {}
        for method, name, seed in self.cells():
            labels, dataset = self.methods[method].labels, made.get(name)
            if name and (dataset is None or (labels and not is_labelled(dataset, labels))):
                continue
            content = _content(dataset, labels)
            words = self.words(method, seed, out, dataset)
            counts = partial(_counts, words, content)
            found[method, name, seed] = Training(words[-1], seed, words, out / "runs", counts=counts)
        return found

    def made(self, out: Path) -> dict[str, Dataset]:
        """Return the complete datasets by name; raises RunError if one was made with other settings."""
        sources = {name: source.training(name, out) for name, source in self.sources.items()}
        found = {name: data.made(out / "data" / name, sources.get(data.source)) for name, data in self.datasets.items()}
        return {name: dataset for name, dataset in found.items() if dataset is not None}

    def words(self, method: str, seed: int, out: Path, dataset: Dataset | None = None) -> Words:
        """Return the words after `robo-rl train` that train a method; the last one is the name of the recipe."""
        chosen = self.methods[method]
        if dataset is None:
            settings = self.settings | chosen.settings
            if "seed" in read_recipe(chosen.recipe).reward.settings:  # a learnt reward is trained again with each seed, too
                settings["reward.settings.seed"] = seed
        else:
            settings = self.settings_of(method, dataset.path.name, span_of(dataset, chosen.labels))
        settings |= reward_folders(chosen.model, chosen.recipe, settings, out)
        if chosen.program:
            settings["reward.settings.path"] = str(program_file(chosen.program, out))
        data = [] if dataset is None else ["--dataset", str(dataset.path)]
        words = [chosen.recipe, *data, "--seed", str(seed), *options(settings)]
        name = method if dataset is None else f"{method}--{dataset.path.name}"
        return [*words, *(["--labels", chosen.labels] if chosen.labels else []), "--name", name]

    def settings_of(self, method: str, dataset: str, span: float) -> Settings:
        """Return the settings of one training. span: best minus worst return of the dataset's episodes."""
        chosen = self.methods[method]
        settings = self.settings | chosen.settings | chosen.for_source.get(self.datasets[dataset].source, {})
        if chosen.return_span and span > 0:
            settings["learner.reward-scale"] = float(f"{chosen.return_span / span:.4g}")
        return settings

    def expected(self, method: str, on: str) -> Settings:
        """Return the settings of a training as far as they are known before its data are made, by dotted path.

        They identify the training in an archive: settings of the recipe with defaults, and those of its inputs in the plan.
        """
        chosen = self.methods[method]
        settings = self.settings_of(method, on, 0.0) if on else self.settings | chosen.settings
        found = _recipe_settings(chosen.recipe, tuple(options(settings)))
        data, labels = self.datasets.get(on), self.labels.get(chosen.labels)
        before = self.labels.get(labels.shuffled) if isinstance(labels, Shuffled) else None
        model = chosen.model or next((each.model for each in (labels, before) if isinstance(each, Asked | Compared)), "")
        inputs = {
            "settings": settings,
            "return_span": chosen.return_span,
            "data": data,
            "source": None if data is None else self.sources.get(data.source),
            "labels": labels,
            "labels_before": before,
            "model": self.models.get(model),
            "program": self.programs.get(chosen.program),
        }
        return found | {f"study.{name}": plain(value) for name, value in inputs.items()}

    def content(self, method: str, on: str, out: Path) -> dict[str, str]:
        """Return digests of the dataset and labels of a training; empty if they do not exist yet."""
        return _content(self.made(out).get(on), self.methods[method].labels)

    def _labelling(self, name: str, out: Path) -> list[Job]:
        paths = [out / "data" / dataset for dataset in self.datasets]
        for path in paths:
            _keep(out / "labels" / f"{path.name}--{name}.json", self.labels[name])
        missing = [path for path in paths if not is_labelled(Dataset(path), name)]
        return [Job(f"{name}--{path.name}", self.labels[name].commands(name, path, out)) for path in missing]


def program_file(name: str, out: Path) -> Path:
    """Return the file of a program of a study."""
    return out / "programs" / f"{name}.py"


def _origin(labels: Labels) -> str:
    return labels.shuffled if isinstance(labels, Shuffled) else labels.model


@lru_cache(maxsize=256)
def _recipe_settings(recipe: str, words: tuple[str, ...]) -> Settings:
    """Return the settings of a recipe with options, cached: datasets share them, and reading them takes 0.1 s."""
    return recipe_settings(parsed(Train, recipe, words).recipe)


def _content(dataset: Dataset | None, labels: str) -> dict[str, str]:
    """Return digests of a dataset and of its labels; empty without it."""
    if dataset is None:
        return {}
    found = {"content": dataset.card["content"]}
    if labels and is_labelled(dataset, labels):
        found["labels_content"] = LabelSet.existing(dataset, labels).digest(dataset.entries())
    return found


def _counts(words: Words, content: Mapping[str, str], run: Path) -> bool:
    learnt_from = Run(run).description.get("dataset", {}) if content else {}
    return {key: learnt_from.get(key) for key in content} == content and not differing(run, words)


def _keep(path: Path, settings: Any) -> None:
    keep_settings(path, json.dumps(plain(settings), indent=1))
