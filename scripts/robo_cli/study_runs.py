"""What of a study is there already, and whether it was made with the settings that the study has now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from robo_cli.recipe import read_recipe, to_yaml
from robo_cli.selection import runs_of
from robo_cli.study_labels import is_labelled, reward_folders, span_of
from robo_cli.study_options import Words, options
from robo_cli.study_plan import Data, Study
from robo_cli.train import recipe_of
from robo_datasets.dataset import DESCRIPTION, Dataset
from robo_datasets.labels import LabelSet
from robo_rl.errors import RunError
from robo_rl.plain_files import read_yaml
from robo_rl.runs import Run

PATHS = ("demonstrations.dataset",)  # the folder may have been moved
FOLDER = "folder"  # of a model, among the settings of a reward: may have been moved, too; the run notes whose weights it has
WHOLE = ("environment.arguments", "reward.settings", "reward.completion.settings")  # one that is missing is a change, too


def source_words(study: Study, name: str) -> Words:
    """Returns how a source is trained."""
    source = study.sources[name]
    return [source.recipe, "--seed", str(source.seed), "--record-episodes", *options(source.settings), "--name", name]


def source_run(study: Study, name: str, out: Path) -> Path | None:
    """Returns the run of a source; raises RunError if it was made with other settings, as all datasets rest on it."""
    found = next(runs_of(name, study.sources[name].seed, out / "sources"), None)
    if found is not None and (changed := differing(found, source_words(study, name))):
        raise _other_settings(found, changed)
    return found


def dataset_words(study: Study, name: str, out: Path) -> Words:
    """Returns how a dataset is recorded."""
    data = study.datasets[name]
    settings: dict[str, Any] = {"family": data.family, "out": str(out / "data" / name)}
    settings |= {"run": str(source_run(study, data.source, out))} if data.source else {}
    settings |= {"episodes": data.episodes} if data.episodes else {}
    settings |= {"expert": data.expert} if data.expert else {}
    settings |= {"arguments": [f"{key}={json.dumps(value)}" for key, value in data.arguments.items()]} if data.arguments else {}
    environment = data.environment or read_recipe(study.sources[data.source].recipe).environment.name
    return [environment, *options(settings)]


def made_dataset(study: Study, name: str, out: Path) -> Dataset | None:
    """Returns a dataset that is complete, for its card then says what came of it; RunError if made with other settings."""
    data, path = study.datasets[name], out / "data" / name
    if not (path / DESCRIPTION).exists() or "content" not in Dataset(path).card:
        return None
    dataset = Dataset(path)
    run = source_run(study, data.source, out) if data.source else None
    told, wanted = dataset.card, _card_of(data)
    changed = {key: (told[key], value) for key, value in wanted.items() if told[key] != value}
    if run is not None and told["run"]["name"] != run.name:
        changed["run"] = (told["run"]["name"], run.name)
    if changed:
        raise _other_settings(path, changed)
    return dataset


def _card_of(data: Data) -> dict[str, Any]:
    """Returns what the card of such a dataset says."""
    card: dict[str, Any] = {"family": data.family}
    card |= {"planned": data.episodes} if data.episodes else {}
    return card | ({"environment": data.environment, "arguments": data.arguments} if data.environment else {})


def training_words(study: Study, method: str, dataset: Dataset, seed: int) -> Words:
    """Returns how a method is trained on a dataset."""
    name = dataset.path.name
    labels = study.methods[method].labels
    chosen, settings = study.methods[method], study.settings_of(method, name, span_of(dataset, labels))
    settings |= reward_folders(chosen.model, chosen.recipe, settings, dataset.path.parents[1])
    words = [chosen.recipe, "--dataset", str(dataset.path), "--seed", str(seed), *options(settings)]
    return [*words, *(["--labels", labels] if labels else []), "--name", f"{method}--{name}"]


def training_run(study: Study, method: str, dataset: Dataset, seed: int, out: Path) -> Path | None:
    """Returns the newest run of a training with these settings on these very episodes and labels."""
    labels = study.methods[method].labels
    if labels and not is_labelled(dataset, labels):
        return None
    words, wanted = training_words(study, method, dataset, seed), {"content": dataset.card["content"]}
    wanted |= {"labels_content": LabelSet.existing(dataset, labels).digest(dataset.entries())} if labels else {}
    for found in runs_of(f"{method}--{dataset.path.name}", seed, out / "runs"):
        learnt_from = Run(found).description.get("dataset", {})
        if {key: learnt_from.get(key) for key in wanted} == wanted and not differing(found, words):
            return found
    return None


def differing(run: Path, words: Words) -> dict[str, tuple[Any, Any]]:
    """Returns the settings in which a run and a command differ, as name -> (of the run, of the command).

    A setting that only one of them names is left out: it came or went with a version of the program.
    """
    before, now = _flat(read_yaml(run / "recipe.yaml")), _flat(yaml.safe_load(to_yaml(recipe_of(words))))
    both = (before.keys() & now.keys()) - {*PATHS}
    return {name: (before[name], now[name]) for name in sorted(both) if before[name] != now[name]}


def _flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = above + key
        if name in WHOLE and isinstance(value, dict):
            flat[name] = {part: told for part, told in value.items() if part != FOLDER}
        else:
            flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def _other_settings(path: Path, changed: Mapping[str, tuple[Any, Any]]) -> RunError:
    told = "; ".join(f"{name}: {before}, now {now}" for name, (before, now) in changed.items())
    return RunError(f"{path} was made with other settings.", got=told, fix="another --out, or remove what rests on it")
