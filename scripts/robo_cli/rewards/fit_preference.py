"""robo-rl reward fit preference: learn a reward from comparisons and keep it in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robo_app.rewards.preference_rows import Rows, pairs_of
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash
from robo_datasets.preferences import PreferenceSet
from robo_rl.evaluation.statistics import wilson
from robo_rl.rewards.preferences.preference_reward import FEW, BradleyTerryConfig, fit, save


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
