"""A training that makes no update says so: on the terminal, in its report, by its exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import robo_rl
from factories import rest_slow
from robo_cli.main import dispatch
from robo_rl.training.updates import learns_too_late
from robo_rl.workbench import NothingLearnt

SMALL = {"network": {"hidden": [8]}, "batch_size": 4}
SB3 = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 4}
NONE: list[tuple[str, dict[str, Any], str]] = [
    ("sac", SMALL, "No update was made: replay.learning_starts 5000 &gt;= steps 20; train for more --steps, or with"),
    ("sb3-sac", SB3, "No update was made: learning_starts 100 &gt;= steps 20"),
    ("sb3-sac", SB3 | {"learning_starts": 5, "train_freq": [1, "episode"]}, "No update was made in 20 of 20 steps"),
    ("group-ppo", {"network": {"hidden": [8]}, "episodes": 8, "group": 8}, "No update was made in 0 of 20 steps"),
]
SOME: list[tuple[str, dict[str, Any]]] = [
    ("sac", SMALL | {"replay": {"learning_starts": 10}}),
    ("sb3-sac", SB3 | {"learning_starts": 10}),
    ("ppo", SMALL | {"num_envs": 2, "steps_per_env": 5, "batch_size": 5}),
]


def trained(algorithm: str, learner: dict[str, Any], folder: Path, **arguments: Any) -> int:
    recipe = {
        "environment": {
            "name": "robo/ArmReach-v0",
            "arguments": {"max_steps": 5 if "train_freq" not in learner else 40} | arguments,
        },
        "algorithm": algorithm,
        "learner": learner,
        "steps": 20,
        "threads": 1,
        "evaluation": {"episodes": 1, "videos": 0},
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(recipe))
    return dispatch(["train", str(folder / "mine.yaml"), "--out", str(folder / "runs")])


@pytest.mark.parametrize(("algorithm", "learner", "said"), rest_slow(NONE, fast=2))
def test_no_update_is_said_everywhere(
    algorithm: str, learner: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(algorithm, learner, tmp_path) == 1
    assert f"WARNING  {said[0].lower()}{said[1:]}".replace("&gt;", ">") in capsys.readouterr().out
    run = robo_rl.open_run("latest", runs=tmp_path / "runs")
    assert said in run.report.read_text()


@pytest.mark.slow
def test_python_warns_of_a_training_without_an_update(tmp_path: Path) -> None:
    reach = {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 5}}
    few = {"threads": 1, "evaluation": {"episodes": 1, "videos": 0}}
    with pytest.warns(NothingLearnt, match="no update was made: replay.learning_starts 5000 >= steps 6"):
        run = robo_rl.train("sac", environment=reach, steps=6, out=tmp_path, learner=SMALL, **few)
    with pytest.warns(NothingLearnt, match="steps 12"):
        robo_rl.resume(run, steps=12)


@pytest.mark.parametrize(("algorithm", "learner"), rest_slow(SOME))
def test_a_training_with_updates_says_nothing_of_them(
    algorithm: str, learner: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(algorithm, learner, tmp_path) == 0
    assert "no update" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_is_trained_longer_learns(tmp_path: Path) -> None:
    assert trained("sac", SMALL | {"replay": {"learning_starts": 30}}, tmp_path) == 1
    assert dispatch(["resume", "latest", "--runs", str(tmp_path / "runs"), "--steps", "40"]) == 0
    description = json.loads((robo_rl.open_run("latest", runs=tmp_path / "runs").path / "run.json").read_text())
    assert description["no_update"] == ""


def test_the_reason_names_both_numbers() -> None:
    said = learns_too_late(10_000, 3_000, "learning_starts")
    assert said.startswith("no update was made: learning_starts 10000 >= steps 3000; ")
    assert learns_too_late(99, 100, "") == "" == learns_too_late(0, 0, "")


@pytest.mark.slow
def test_replay_is_told_for_the_steps_asked_for_without_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"max_steps": 5, "cameras": ["front"], "image_size": 64}
    assert trained("sac", SMALL | {"replay": {"learning_starts": 10}}, tmp_path, **arguments) == 0
    form = r"replay memory: 0\.00 GB for 20 steps, at most [\d.]+ GB in RAM \(\d+ rows of (\d+) bytes\)"
    said = re.search(form, capsys.readouterr().out)
    assert said is not None and int(said[1]) < 1_000, "a picture has 12,288 bytes"
