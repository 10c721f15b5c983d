"""Record a family: the missing episodes of its plan, then the card with the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from robo_app.display.display import display
from robo_app.display.recording_progress import Progress
from robo_app.recording.families import plan_of
from robo_app.recording.family_sources import Sources
from robo_datasets.dataset import Dataset
from robo_datasets.figures import figures_of
from robo_datasets.repair import repair
from robo_rl.errors import DatasetError
from robo_rl.runs.run import circumstances


def record_family(family: str, sources: Sources, episodes: int | None, out: Path, *, append: bool) -> Dataset:
    """Record the dataset of a family and return it; with `append` an interrupted recording is completed.

    Raises UnknownName, InvalidSetting before any recording, DatasetError for a dataset of another plan.
    """
    plan = plan_of(family, sources, episodes)
    card = {"family": family, "how": plan.how, "planned": len(plan.episodes), **sources.card, **plan.facts}
    dataset = _begun(out, card) if append else Dataset.create(out, sources.spec, card)
    with dataset.writer() as writer:
        for found in repair(writer, thorough=False):
            print(f"{found.name}: {found.problem}; {found.action}")
        present = {entry.identity for entry in dataset.entries()}
        missing = [planned for planned in plan.episodes if planned.identity not in present]
        progress = Progress()
        with display(f"record {family}", len(plan.episodes), "episodes") as shown:
            done = len(plan.episodes) - len(missing)
            try:
                for planned in missing:
                    entry = writer.add(planned.make(), identity=planned.identity)
                    done += 1
                    shown.update(done, progress.add(entry))
            except KeyboardInterrupt:
                kept = f"{done} of {len(plan.episodes)} episodes are kept in {out}"
                shown.say(f"interrupted: {kept}; the same command with --append goes on")
                raise
        dataset.describe(dataset.card | card | {"commit": circumstances()["commit"]} | figures_of(dataset.entries()))
    return dataset


def _begun(path: Path, card: dict[str, Any]) -> Dataset:
    """Return the dataset of an interrupted recording; raises DatasetError if it has another plan."""
    dataset = Dataset(path)
    planned = json.loads(json.dumps(card))
    if differing := sorted(key for key in planned if dataset.card.get(key) != planned[key]):
        raise DatasetError(
            f"{path} was not begun by this command.",
            got="; ".join(f"{key} {dataset.card.get(key)}, not {planned[key]}" for key in differing),
            allowed="the same family, sources, seed and number of episodes",
            fix="record into a new folder; `robo-rl data merge` puts several together",
        )
    return dataset
