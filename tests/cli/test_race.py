"""Races: recipes of methods on tasks, trainings begun once, the table; subgoals from the command line resume exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file

from robo_app.experiments.archive import Archive
from robo_app.experiments.plan import read_plan
from robo_app.experiments.race_table import race_page
from robo_app.jobs.jobs import Job
from robo_app.recipes.recipe import parse_recipe, read_recipe
from robo_cli import main
from robo_rl.errors import InvalidSetting, RunError, UnknownName
from robo_rl.runs.run import find_run

RACE: dict[str, Any] = {
    "summary": "A race to test with.",
    "recipe_of_all": {
        "environment": {"arguments": {"encoding": "one-hot"}},
        "algorithm": "ppo",
        "learner": {"num_envs": 4, "steps_per_env": 16, "batch_size": 32, "epochs": 1, "network": {"hidden": [8]}},
        "steps": 128,
        "log_every": 64,
        "checkpoint_every": 96,
        "evaluation": {"episodes": 2, "every": 64, "episodes_during": 2, "videos": 0, "stochastic": True},
    },
    "methods": {
        "plain": {},
        "taught": {
            "environment": {"arguments": {"subgoals": "position"}},
            "reward": {"name": "subgoals", "arguments": {"teaching": {"teacher": "perfect", "levels": 5}}},
        },
    },
    "tasks": {"Empty": {"environment": {"name": "minigrid/MiniGrid-Empty-5x5-v0"}}},
    "seeds": [0, 1],
}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(RACE))
    return path


@pytest.mark.parametrize(("task", "name"), [("pick", "arm-pick-hil"), ("peg", "arm-peg-hil")])
def test_recipes_of_a_person_are_those_of_the_race(task: str, name: str) -> None:
    """The best settings known are the recipe, and the race trains with them."""
    raced = parse_recipe(yaml.safe_load(read_plan("hil").recipe("perfect", task)), source="race")
    recipe = read_recipe(name)
    for part in ("environment", "algorithm", "learner", "demonstrations", "human", "steps"):
        assert getattr(recipe, part) == getattr(raced, part), part


@pytest.mark.slow
def test_a_race_trains_each_once_and_writes_a_table(
    plan: Path, tmp_path: Path, in_this_process: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    order = ["experiment", str(plan), "--out", str(tmp_path / "out")]
    assert main.dispatch(order) == 0
    assert [Path(job.commands[0][1]).stem for job in in_this_process] == ["plain--empty", "taught--empty"] * 2
    shown = capsys.readouterr().out
    rows = [line for line in shown.splitlines() if line.startswith("| Empty")]
    assert [row.split(" | ")[1] for row in rows] == ["plain", "taught"]
    archive = Archive.read(tmp_path / "out" / "archive.json")
    assert [each["seed"] for each in archive.table["rows"][1]["trainings"]] == [0, 1]
    evaluation = json.loads((find_run("latest", tmp_path / "out" / "runs").path / "evaluation.json").read_text())
    assert evaluation["deterministic"] is False and max(evaluation["returns"]) <= 1.0  # no bonus in it
    assert main.dispatch(order) == 0 and len(in_this_process) == 4  # nothing is trained twice
    changed = {**RACE, "recipe_of_all": {**RACE["recipe_of_all"], "steps": 256}}
    plan.write_text(yaml.safe_dump(changed))
    with pytest.raises(RunError, match=r"was made with other settings\."):
        main.dispatch(order)


def test_the_table_says_when_a_task_was_solved() -> None:
    trainings = [
        {"solved_at": 50_000, "final_success": 0.9, "seconds": 60.0},
        {"solved_at": None, "final_success": 0.1, "seconds": None},
    ]
    rows = [{"task": "T", "method": "plain", "trainings": trainings}, {"task": "T", "method": "other", "trainings": []}]
    lines = race_page({"success": 0.8, "seeds": [0, 1], "rows": rows}).splitlines()
    assert lines[0] == "Steps to 80% success in evaluation, seeds 0, 1; success at the end."
    assert lines[-2:] == ["| T | plain | 50,000, — | 90%, 10% | 1.0, ? |", "| T | other | not yet run |  |  |"]


def test_tasks_without_success_show_returns() -> None:
    trainings = [{"final_success": None, "final_return": value, "seconds": 60.0, "solved_at": None} for value in (300.0, 500.0)]
    page = race_page({"success": 0.8, "seeds": [0, 1], "rows": [{"task": "T", "method": "plain", "trainings": trainings}]})
    assert page.splitlines()[-1] == "| T | plain | 400 | 300, 500 | 1.0, 1.0 |" and "0%" not in page


def test_races_are_strict(plan: Path) -> None:
    with pytest.raises(UnknownName, match=r"Unknown experiment 'beacon'(.|\n)*'beacons'"):
        read_plan("beacon")
    plan.write_text(yaml.safe_dump({**RACE, "methods": {"plain": {"learner": {"epoch": 3}}}}))
    with pytest.raises(UnknownName, match=r"Unknown key of learner in plain on Empty of the experiment small: 'epoch'"):
        read_plan(str(plan))
    plan.write_text(yaml.safe_dump({**RACE, "seed": 3}))
    with pytest.raises(InvalidSetting, match=r"is not an experiment\."):
        read_plan(str(plan))


@pytest.mark.slow
def test_races_that_come_with_the_package_can_be_read() -> None:
    assert {"plain", "perfect"} <= set(read_plan("beacons").methods)
    hil = read_plan("hil")
    grippers = [yaml.safe_load(hil.recipe("perfect", task))["learner"]["gripper"] for task in ("pick", "peg")]
    assert grippers == ["gripper_opening", ""]


@pytest.mark.slow
def test_learning_with_subgoals_is_resumed_exactly(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], interrupted_at: Any
) -> None:
    recipe = tmp_path / "taught.yaml"
    recipe.write_text(read_plan(str(plan)).recipe("taught", "Empty"))
    assert main.dispatch(["train", str(recipe), "--out", str(tmp_path / "whole")]) == 0
    whole = find_run("latest", tmp_path / "whole")
    with interrupted_at(76):
        main.dispatch(["train", str(recipe), "--out", str(tmp_path / "cut")])
    cut = find_run("latest", tmp_path / "cut")
    assert main.dispatch(["resume", str(cut.path)]) == 0
    assert "resumed at step 76, exact" in capsys.readouterr().out
    states = [load_file(run.path / "checkpoints" / "0000000128" / "learner.safetensors") for run in (whole, cut)]
    assert {name: value.tobytes() for name, value in states[0].items()} == {
        name: value.tobytes() for name, value in states[1].items()
    }
