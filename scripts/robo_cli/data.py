"""robo-rl data: look at recorded datasets, check them, mend them, and make new ones from them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import tyro

from robo_cli.actions import run_action
from robo_cli.data_convert import EXAMPLES as CONVERSIONS
from robo_cli.data_convert import Convert, convert
from robo_cli.data_stats import Stats, stats
from robo_cli.data_view import View, view
from robo_cli.typed_settings import Shares, as_words
from robo_datasets.curation import Selection, inherited, make_dataset, shares
from robo_datasets.dataset import Dataset
from robo_datasets.draft import require_free
from robo_datasets.figures import normalised
from robo_datasets.labels import LabelSet, label_sets
from robo_datasets.preferences import PreferenceSet, preference_sets
from robo_datasets.repair import Finding
from robo_datasets.repair import repair as mend
from robo_datasets.repair import verify as check
from robo_rl.errors import InvalidSetting

DATASET = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATASET")]
EXAMPLES = """robo-rl data info data/pick
robo-rl data stats data/pick
robo-rl data verify data/pick
robo-rl data repair data/pick
robo-rl data filter data/pick --out data/good --select.success True
robo-rl data split data/pick --into.train 0.9 --into.test 0.1
robo-rl data merge data/pick data/more --out data/all
robo-rl data view data/pick"""


@dataclass(frozen=True)
class Info:
    """Describe a dataset: how it was made, episodes, returns, successes, actors, label sets."""

    dataset: DATASET
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class Verify:
    """Read every episode and report faults, changing nothing; exit status 1 if there is one."""

    dataset: DATASET


@dataclass(frozen=True)
class Repair:
    """Recover episodes after a crash, adopt orphans, move unreadable files to quarantine/; nothing is deleted."""

    dataset: DATASET


@dataclass(frozen=True)
class Merge:
    """Copy the episodes of several datasets of one environment into a new one."""

    datasets: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DATASET")]
    out: Path
    """Folder of the new dataset."""


@dataclass(frozen=True)
class Filter:
    """Copy some of a dataset's episodes into a new one."""

    dataset: DATASET
    out: Path
    """Folder of the new dataset."""
    select: Selection = field(default_factory=Selection)


@dataclass(frozen=True)
class Split:
    """Copy a dataset's episodes at random into several new datasets next to it, each episode into one."""

    dataset: DATASET
    into: Shares = field(default_factory=lambda: {"train": 0.9, "test": 0.1})
    """Share of the new folder DATASET-KEY; by default --into.train 0.9 --into.test 0.1"""
    seed: int = 0
    """Seed of the draw."""


def main(arguments: list[str]) -> int:
    """Runs one of the actions and returns its exit status."""
    return run_action("data", ACTIONS, f"{EXAMPLES}\n{CONVERSIONS}", arguments)


def info(arguments: Info) -> int:
    """Print the catalogue."""
    facts = summary_of(Dataset(arguments.dataset))
    if arguments.json:
        print(json.dumps(facts))
        return 0
    card = facts.pop("card")
    for name, value in facts.items():
        print(f"{name:12} {_readable(value)}")
    print("card")
    for name, value in card.items():
        print(f"  {_readable(name):12} {_readable(value)}")
    return 0


def summary_of(dataset: Dataset) -> dict[str, Any]:
    """Return the summary of a dataset without reading its episodes."""
    entries = dataset.entries()
    judged = [entry.success for entry in entries if entry.success is not None]
    returns = [entry.episode_return for entry in entries if math.isfinite(entry.episode_return)]
    spread = {"least": min(returns), "mean": fmean(returns), "most": max(returns)} if returns else None
    missing = {"not finite": len(entries) - len(returns)} if len(returns) < len(entries) else {}
    reference = dataset.card.get("reference", {})
    can_normalise = "expert" in reference and reference["expert"] != reference["random"]
    scores = {name: normalised(value, reference) for name, value in spread.items()} if spread and can_normalise else None
    return {
        "environment": f"{dataset.spec.name}   spec {dataset.spec.fingerprint}",
        "episodes": len(entries),
        "steps": sum(entry.steps for entry in entries),
        "bytes": sum(entry.bytes for entry in entries),
        "return": (spread or {}) | missing or None,
        "score": scores,
        "success": {"episodes": sum(judged), "of": len(judged)} if judged else None,
        "ends": dict(Counter(entry.stop_reason for entry in entries).most_common()),
        "actors": dict(Counter(entry.source for entry in entries).most_common()),
        "labels": {name: f"{len(LabelSet(dataset, name).labelled)} episodes" for name in label_sets(dataset)},
        "preferences": {name: f"{len([*PreferenceSet(dataset, name)])} comparisons" for name in preference_sets(dataset)},
        "card": dataset.card,
    }


def verify(arguments: Verify) -> int:
    """Print the faults."""
    dataset = Dataset(arguments.dataset)
    findings = check(dataset)
    _show(findings)
    print(f"{len(findings)} problems" if findings else f"{len(dataset)} episodes, all as they were written")
    return int(bool(findings))


def repair(arguments: Repair) -> int:
    """Print the repairs."""
    dataset = Dataset(arguments.dataset)
    with dataset.writer() as writer:
        findings = mend(writer)
    _show(findings)
    print(f"{len(findings)} problems mended; {len(dataset)} episodes")
    return 0


def merge(arguments: Merge) -> int:
    """Makes one dataset of several."""
    sources = [Dataset(path) for path in arguments.datasets]
    cards = {str(source.path): source.card for source in sources}
    if len(cards) < 2:
        raise InvalidSetting("Merging needs two datasets or more.", got=len(cards))
    card = inherited([*cards.values()]) | {"merged_from": cards}
    entries = {source.path: source.entries() for source in sources}
    for path, copied in make_dataset(arguments.out, card, entries).items():
        twice = len(entries[path]) - copied
        print(f"{copied} episodes of {path}" + (f"; {twice} were there already" if twice else ""))
    return 0


def filter_(arguments: Filter) -> int:
    """Makes a dataset of the episodes that were selected."""
    source = Dataset(arguments.dataset)
    wanted = [entry for entry in source.entries() if arguments.select.has(entry)]
    if not wanted:
        raise InvalidSetting(
            f"No episode of {source.path} is selected.",
            got=", ".join(f"{name} {value}" for name, value in asdict(arguments.select).items() if value not in (None, 0)),
            fix=f"robo-rl data info {source.path} shows actors, ends and returns",
        )
    card = inherited([source.card]) | {"filtered_from": {str(source.path): source.card}, "select": asdict(arguments.select)}
    made = make_dataset(arguments.out, card, {source.path: wanted})
    print(f"{made[source.path]} of {len(source)} episodes in {arguments.out}")
    return 0


def split(arguments: Split) -> int:
    """Makes several datasets of one."""
    source = Dataset(arguments.dataset)
    fractions = {name: _number(share) for name, share in arguments.into.items()}
    place = source.path.absolute()
    parts = {place.with_name(f"{place.name}-{n}"): e for n, e in shares(source.entries(), fractions, arguments.seed).items()}
    require_free(*parts)
    for out, entries in parts.items():
        card = inherited([source.card]) | {"split_from": {str(source.path): source.card}}
        card |= {"into": as_words(arguments.into), "seed": arguments.seed}
        made = make_dataset(out, card, {source.path: entries})
        print(f"{made[source.path]} episodes in {source.path.with_name(out.name) if source.path.name else out}")
    return 0


def _show(findings: list[Finding]) -> None:
    for found in findings:
        print(f"{found.name}: {' '.join(found.problem.split())} -> {found.action}")


def _readable(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_readable(name)} {_nested(part)}" for name, part in value.items()) or "none"
    text = f"{value:.6g}" if isinstance(value, float) else f"{value}"
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)  # none that a terminal would obey


def _nested(value: object) -> str:
    return f"({_readable(value)})" if isinstance(value, dict) and value else _readable(value)


def _number(share: Any) -> float:
    try:
        return float(share)
    except (TypeError, ValueError):
        raise InvalidSetting(
            "A share is not a number.", got=share, allowed="--into.NAME SHARE, such as --into.train 0.9"
        ) from None


ACTIONS: dict[str, tuple[Any, Callable[[Any], int]]] = {
    "info": (Info, info),
    "stats": (Stats, stats),
    "verify": (Verify, verify),
    "repair": (Repair, repair),
    "merge": (Merge, merge),
    "filter": (Filter, filter_),
    "split": (Split, split),
    "view": (View, view),
    "convert": (Convert, convert),
}
