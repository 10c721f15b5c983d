"""robo-rl world check: compare a world with recorded episodes, and policies in it with the environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.recipes.recipe import require_at_least
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash
from robo_papers.world_models.check import check_world
from robo_papers.world_models.check_page import write_check
from robo_papers.world_models.film import film_beside
from robo_papers.world_models.trials import policy_trials
from robo_papers.world_models.world import load_world
from robo_rl.errors import InvalidSetting, RoboRLError
from robo_rl.runs.run import write_text
from robo_rl.system.threads import fitting

EXAMPLES = "robo-rl world check worlds/push --dataset data/held-out --policies scripted random --out checks/push"


@dataclass(frozen=True)
class CheckWorld:
    """Say how far to believe a world: errors, calibration, use of actions, policies beside the environment, verdict, film."""

    world: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="WORLD")]
    """Folder of a world (`robo-rl world fit`)."""
    dataset: Path
    """Episodes that it is compared with; best ones that it was not fitted to."""
    out: Path | None = None
    """Folder of check.html, check.json and beside.mp4; by default WORLD/check."""
    policies: tuple[str, ...] = ()
    """Policies that act in the environment and in the world: scripted, random, RUN, RUN@STEP; from three on their order is
    compared, too."""
    episodes: int = 20
    """Episodes of each policy, real and imagined."""
    noise: float = 0.0
    """Standard deviation of the noise on the scripted expert's action, in [-1, 1] units."""
    stochastic: bool = False
    """Sample a run's actions instead of taking the most likely one."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    film: bool = True
    """Draw one of the episodes, real and imagined side by side, if the environment can draw observations."""
    seed: int = 0
    """Reset seed of the first episode, and seed of the compared stretches."""

    def __post_init__(self) -> None:
        require_at_least(self, {"episodes": 1, "noise": 0, "seed": 0})


@fitting
def run(arguments: CheckWorld) -> int:
    """Check, write the page, the figures and the film, and print the verdict."""
    world, dataset = load_world(arguments.world), Dataset(arguments.dataset)
    world.require(dataset.spec, f"The world {arguments.world} was fitted to another environment than {dataset.path}")
    entries = [entry for entry in dataset.entries() if entry.steps]
    if not entries:
        raise InvalidSetting(f"{dataset.path} has no episodes.", fix="record some: robo-rl record")
    trials = policy_trials(arguments.world, dataset, arguments)
    content = content_hash(entries)
    facts = {"world": str(arguments.world), "dataset": str(dataset.path), "content": content, "seed": arguments.seed}
    if content == world.facts.get("content"):
        print("warning: the world was fitted to these very episodes: errors on others are larger")
    found = check_world(world, map(dataset.read, entries), trials, seed=arguments.seed, facts=facts)
    out = arguments.out or arguments.world / "check"
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "check.json", json.dumps(found.to_json(), indent=1, allow_nan=False))
    print("\n".join(found.lines()))
    print(f"{arguments.world}: {found.verdict.headline}")
    print("".join(f"  - {reason}\n" for reason in found.verdict.reasons), end="")
    film = None
    if arguments.film:
        try:
            longest = max(entries, key=lambda entry: entry.steps)
            film = film_beside(world, dataset.read(longest), out / "beside.mp4")
        except RoboRLError as error:
            print(f"no film: {str(error).splitlines()[0]}")
    print(write_check(found, world, out / "check.html", film))
    return 0
