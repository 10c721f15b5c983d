"""A recipe whose learner has a process of its own: trained, killed, interrupted, resumed; refused where it cannot be."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robo_cli import main
from robo_cli.learner_process import learns_apart
from robo_cli.recipe import parse_recipe
from robo_rl.errors import InvalidSetting
from robo_rl.record import RunRecord
from robo_rl.runs import Run, find_run

RECIPE: dict[str, Any] = {
    "name": "apart",
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"action_repeat": 3, "max_steps": 15}},
    "algorithm": "hil-serl",
    "learner": {"hidden": [8], "batch_size": 8, "learning_starts": 10, "gripper": "gripper_opening"},
    "demonstrations": {"episodes": 2},
    "human": {"kind": "perfect"},
    "learner_process": "on",
    "steps": 90,
    "log_every": 30,
    "checkpoint_every": 40,
    "evaluation": {"episodes": 1, "every": 60, "episodes_during": 1, "films": 0},
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "apart.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


def assert_all_was_learnt_from(run: Run) -> None:
    parts = run.load().parts
    assert parts["training"]["step"] == 90
    assert int(np.sum(parts["replay"]["rows"]["starts"])) == 90
    assert parts["learner"]["arm"]["updates"] == 90 - 10 + 1
    human = int(np.sum(parts["offline"]["corrections"]["rows"]["starts"]))
    assert human == int(np.sum(parts["replay"]["rows"]["is_human"]))
    assert (run.path / "evaluation.json").exists()


def test_a_killed_run_goes_on_behind_its_last_step(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).with_name("train_and_die.py")
    died = subprocess.run([sys.executable, script, recipe, tmp_path, "step", "57"], timeout=200, check=False)
    assert died.returncode == -signal.SIGKILL
    assert main.dispatch(["resume", "latest", "--runs", str(tmp_path)]) == 0
    assert "resumed at step 57, warm" in capsys.readouterr().out
    run = find_run("latest", tmp_path)
    assert_all_was_learnt_from(run)
    steps = [line["step"] for line in run.metrics()]
    assert steps == sorted(steps) and steps[-1] == 90
    assert main.dispatch(["resume", "latest", "--runs", str(tmp_path)]) == 0
    assert "is finished: 90 steps" in capsys.readouterr().out


def test_an_interrupted_run_has_saved_everything_before_it_ends(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = RunRecord.on_step

    def interrupted(self: RunRecord, step: int, training: Any) -> None:
        if step == 47:
            signal.raise_signal(signal.SIGINT)
        original(self, step, training)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RunRecord, "on_step", interrupted)
        main.dispatch(["train", str(recipe), "--record-episodes", "--out", str(tmp_path)])
    run = find_run("latest", tmp_path)
    checkpoint = run.load()
    assert checkpoint.step == 47 and checkpoint.parts["learner"]["arm"]["updates"] == 47 - 10 + 1
    assert {"acting", "record"} <= set(checkpoint.parts)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"learner_process": "auto"}, False),
        ({"learner_process": "auto", "environment": {"name": "robot:http://127.0.0.1:5000"}}, True),
        ({"learner_process": "off", "environment": {"name": "robot:http://127.0.0.1:5000"}}, False),
        ({"learner_process": "auto", "environment": {"name": "robot:http://h:1"}, "algorithm": "bc", "learner": {}}, False),
    ],
)
def test_robots_have_it_by_themselves(changes: dict[str, Any], expected: bool) -> None:
    assert learns_apart(parse_recipe({**RECIPE, **changes}, source="a test")) is expected


@pytest.mark.parametrize("algorithm", ["bc", "hg-dagger", "ppo", "sb3-sac"])
def test_a_learner_that_does_not_act_step_by_step_is_refused(algorithm: str) -> None:
    recipe = parse_recipe({**RECIPE, "algorithm": algorithm, "learner": {}}, source="a test")
    with pytest.raises(InvalidSetting, match=rf"The learner {algorithm} cannot have a process of its own"):
        learns_apart(recipe)
