"""robo-rl reward fit preference: learn a reward from comparisons and keep it in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from robo_cli.display import counted
from robo_datasets.cache import open_cache
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash
from robo_datasets.preferences import PreferenceSet
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.statistics import wilson
from robo_rl.rewards.preferences.preference_reward import FEW, BradleyTerryConfig, Pairs, fit, require_vectors, save
from robo_rl.types import Array, Preference

MOST = 200_000  # steps that set the scale


@dataclass(frozen=True)
class FitPreference:
    """States that are preferred are worth more (Bradley & Terry): to comparisons of `robo-rl prefer`."""

    dataset: Path
    """Dataset of the compared segments."""
    preferences: str
    """The set of comparisons."""
    out: Path
    """A new folder."""
    settings: BradleyTerryConfig = field(default_factory=BradleyTerryConfig)


def fit_preference(arguments: FitPreference) -> int:
    """Fit, save, and print the accuracy on held-out comparisons."""
    dataset = Dataset(arguments.dataset)
    found = [*PreferenceSet.existing(dataset, arguments.preferences)]
    usable = [each for each in found if each.label != "skip"]
    entries = dataset.entries()
    rows = Rows(dataset, entries)
    fitted = fit(pairs_of(usable, rows), rows.steps(), arguments.settings)
    raters = Counter(each.rater for each in found)
    facts: dict[str, Any] = {
        "dataset": str(dataset.path),
        "content": content_hash(entries),
        "preferences": arguments.preferences,
    }
    count = int(fitted.report["pairs"])
    facts["identities"] = sorted({identity for each in usable for identity, _, _ in (each.first, each.second)})
    facts |= {"comparisons": len(found), "usable": count, "raters": dict(raters), "report": fitted.report}
    save(arguments.out, fitted.reward, arguments.settings, dataset.spec, facts)
    print(f"{count} usable of {len(found)} comparisons by {', '.join(raters)}")
    learned, held = (_orders(fitted.report, side) for side in ("train", "held_out"))
    print(f"orders {learned} decided pairs as they were labelled; of those held out, {held}")
    if count < FEW:
        print(f"warning: with less than {FEW} comparisons a learned reward is poor where some of them are wrong")
    label = f"robo-rl label {dataset.path} --reward preference --reward.settings.folder {arguments.out} --name NAME"
    print(f"label with it: {label}")
    return 0


def _orders(report: Mapping[str, float], side: str) -> str:
    """Return a share with its interval and sample size."""
    count = int(report[f"{side}_decided"])
    return f"{wilson(round(report[side] * count), count):.1%} of {count}" if count else "none of 0"


class Rows:
    """Observations and actions of a dataset, all episodes one after the other, from its training cache."""

    def __init__(self, dataset: Dataset, entries: Sequence[Entry]) -> None:
        """Raises InvalidSetting if the environment has no vectors."""
        require_vectors(dataset.spec)
        cache = open_cache(dataset, entries, partial(counted, "training cache", "episodes"))
        self._values, self._starts = cache.rows["vectors"][:, :-1], cache.rows["starts"]  # the last column is the reward
        ends = np.cumsum([entry.steps + 1 if entry.steps else 0 for entry in entries]).tolist()
        self._first = {entry.identity: end - entry.steps - 1 for entry, end in zip(entries, ends, strict=True)}

    def steps(self) -> Array:
        """Return (B, D) of all steps, or of an even selection that fits into memory."""
        rows = np.flatnonzero(self._starts)
        return np.array(self._values[rows[:: max(1, len(rows) // MOST)]], np.float32)

    def segment(self, place: tuple[str, int, int]) -> Array:
        """Returns (L, D); raises InvalidSetting for an episode that is gone."""
        identity, start, stop = place
        if identity not in self._first:
            raise InvalidSetting("A comparison is of an episode that the dataset does not have.", got=identity)
        return np.array(self._values[self._first[identity] + start : self._first[identity] + stop], np.float32)


def pairs_of(preferences: Sequence[Preference], rows: Rows) -> Pairs:
    """Returns comparisons as arrays; raises InvalidSetting if segments differ in length."""
    lengths = {stop - start for each in preferences for _, start, stop in (each.first, each.second)}
    if len(lengths) > 1:
        raise InvalidSetting(
            "The compared segments differ in length.", got=sorted(lengths), allowed="one length", fix="two sets"
        )
    if not preferences:
        raise InvalidSetting("No comparison can be used.", got="none that was answered", fix="robo-rl prefer")
    first, second = (np.stack([rows.segment(getattr(each, side)) for each in preferences]) for side in ("first", "second"))
    return Pairs(first, second, np.array([each.label for each in preferences], np.float32))
