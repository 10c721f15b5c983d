"""robo-rl world fit: learn dynamics, rewards and ends from recorded episodes, and keep them in a folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robo_app.display.display import counted
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash
from robo_papers.world_models.world import UNDER_WAY, fit_world
from robo_rl.errors import InvalidSetting
from robo_rl.runs.checkpoints import has_checkpoint
from robo_rl.system.threads import fitting
from robo_rl.worlds.dynamics import DynamicsConfig
from robo_rl.worlds.steps import require_predictable

EXAMPLES = "robo-rl world fit data/push --out worlds/push"


@dataclass(frozen=True)
class FitWorld:
    """Fit an ensemble of dynamics with rewards, ends and successes; the same command goes on after an interruption."""

    dataset: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATASET")]
    """Recorded episodes, best of several qualities: a world from good ones alone cannot imagine failures."""
    out: Path
    """Folder of the world, new or that of an interrupted fit."""
    shuffled_actions: bool = False
    """A control: each step has the action of another one, so that the world knows nothing about actions."""
    settings: DynamicsConfig = field(default_factory=DynamicsConfig)


@fitting
def run(arguments: FitWorld) -> int:
    """Fit, save, and print the errors on held-out steps."""
    out, started = arguments.out, time.monotonic()
    if has_checkpoint(out) or (out.exists() and any(path.name != UNDER_WAY for path in out.iterdir())):
        got = "a world" if has_checkpoint(out) else "other files"
        raise InvalidSetting(f"{out} is not empty.", got=got, fix="name a new folder")
    dataset = Dataset(arguments.dataset)
    require_predictable(dataset.spec)
    entries, card = dataset.entries(), dataset.card
    facts: dict[str, Any] = {
        "dataset": str(dataset.path),
        "content": content_hash(entries),
        "environment": card.get("environment", dataset.spec.name),
        "arguments": card.get("arguments", {}),
    }
    episodes = counted("episodes", "episodes", entries)
    world = fit_world(
        dataset.spec,
        map(dataset.read, episodes),
        arguments.settings,
        folder=out,
        facts=facts,
        passes=shown,
        shuffles_actions=arguments.shuffled_actions,
    )
    world.save(out)
    shutil.rmtree(out / UNDER_WAY, ignore_errors=True)
    errors = ", ".join(f"{error:.3f}" for error in sorted(world.facts["held_out_errors"]))
    seconds = time.monotonic() - started
    print(
        f"{world.facts['steps']} steps of {world.facts['episodes']} episodes, {world.facts['epochs']} passes in {seconds:.0f} s"
    )
    print(f"held-out errors of the members (2 and more if neither change nor reward is explained): {errors}")
    print(f"check it: robo-rl world check {out} --dataset OTHER --policies scripted random")
    print(f"train in it: robo-rl train RECIPE --environment world:{out}")
    return 0


def shown(numbers: Sequence[int], title: str) -> Iterable[int]:
    """Pass numbers on, showing progress."""
    return counted(title, "passes", numbers)
