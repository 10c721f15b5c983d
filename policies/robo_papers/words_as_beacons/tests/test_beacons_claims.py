"""What subgoals do for learning, in minutes: the perfect teacher's help, one that is always wrong does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from robo_app.experiments.plan import read_plan
from robo_app.experiments.race_table import solved_at
from robo_cli import main
from robo_rl.runs.run import find_run

WRONG = {"teacher": "noisy", "settings": {"accuracy": 0.0, "distance": 3.0, "deviation": 1.0}}
SEEDS = range(2)


def steps_to_success(
    folder: Path, method: str, size: int, seed: int, *, steps: int, every: int, teaching: dict[str, Any] | None = None
) -> int:
    """Returns the steps until 80 % success in evaluation on DoorKey of a size, `steps` where that many do not suffice."""
    recipe = yaml.safe_load(read_plan("beacons").recipe(method, "DoorKey-8x8"))
    recipe |= {"steps": steps, "evaluation": {**recipe["evaluation"], "every": every, "episodes_during": 10, "episodes": 1}}
    recipe["environment"]["name"] = f"minigrid/MiniGrid-DoorKey-{size}x{size}-v0"
    if teaching is not None:
        recipe["reward"]["arguments"] = {"teaching": teaching}
    folder.mkdir(exist_ok=True)
    path = folder / f"{method}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    assert main.dispatch(["train", str(path), "--seed", str(seed), "--out", str(folder)]) == 0
    return solved_at(find_run("latest", folder).path, 0.8) or steps


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_perfect_subgoals_at_least_halve_steps(tmp_path: Path) -> None:
    wanted = {"steps": 250_000, "every": 25_000}
    plain = [steps_to_success(tmp_path / f"plain-{seed}", "plain", 8, seed, **wanted) for seed in SEEDS]
    taught = [steps_to_success(tmp_path / f"taught-{seed}", "perfect", 8, seed, **wanted) for seed in SEEDS]
    assert sum(taught) <= 0.5 * sum(plain), (plain, taught)


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_a_teacher_that_is_always_wrong_does_not_help(tmp_path: Path) -> None:
    wanted = {"steps": 120_000, "every": 10_000}
    plain = [steps_to_success(tmp_path / f"plain-{seed}", "plain", 5, seed, **wanted) for seed in SEEDS]
    misled = [steps_to_success(tmp_path / f"misled-{seed}", "perfect", 5, seed, teaching=WRONG, **wanted) for seed in SEEDS]
    assert sum(misled) >= 0.9 * sum(plain), (plain, misled)
