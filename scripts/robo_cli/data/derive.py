"""robo-rl data merge, filter, split: make new datasets from recorded ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robo_app.arguments.free_settings import Shares, as_words
from robo_app.arguments.positionals import DATASET
from robo_datasets.atomic_write import require_free
from robo_datasets.curation import Selection, differing_arguments, inherited, make_dataset, shares
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting


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


def merge(arguments: Merge) -> int:
    """Make one dataset of several."""
    sources = [Dataset(path) for path in arguments.datasets]
    cards = {str(source.path): source.card for source in sources}
    if len(cards) < 2:
        raise InvalidSetting("Merging needs two datasets or more.", got=len(cards))
    entries = {source.path: source.entries() for source in sources}
    for path, copied in make_dataset(arguments.out, inherited([*cards.values()]) | {"merged_from": cards}, entries).items():
        twice = len(entries[path]) - copied
        print(f"{copied} episodes of {path}" + (f"; {twice} were there already" if twice else ""))
    for line in differing_arguments(cards):
        print(f"remark: {line}")
    return 0


def filter_(arguments: Filter) -> int:
    """Make a dataset of the episodes that were selected."""
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
    """Make several datasets of one."""
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


def _number(share: Any) -> float:
    try:
        return float(share)
    except (TypeError, ValueError):
        allowed = "--into.NAME SHARE, such as --into.train 0.9"
        raise InvalidSetting("A share is not a number.", got=share, allowed=allowed) from None
