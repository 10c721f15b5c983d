"""A run killed with SIGKILL and resumed in another process ends with the parameters of the uninterrupted run, bit for bit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from robo_rl.runs import Run, find_run

RECIPE = """
environment: {name: robo/ArmReach-v0, arguments: {max_steps: 20}}
algorithm: rlpd
learner: {hidden: [8, 8], batch_size: 16, critics: 2, updates_per_step: 2, learning_starts: 10, normalization_rows: 100}
demonstrations: {episodes: 2}
steps: 60
log_every: 10
checkpoint_every: 20
evaluation: {episodes: 2, every: 30, episodes_during: 1}
"""
# Episodes end at steps 20, 40 and 60, as long as none succeeds: the reach takes 20 steps at least for this policy.
DEATHS = {
    "episode start": ("step", "21"),
    "middle of an episode": ("step", "47"),
    "last step": ("step", "60"),
    "before a checkpoint's first byte": ("writing", "40", "1"),
    "between a checkpoint's files": ("writing", "40", "4"),
    "before a checkpoint's rename": ("writing", "40", "12"),
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def uninterrupted(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = robo_rl("train", str(recipe), "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return find_run("latest", folder)


def robo_rl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "robo_cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def parameters(run: Run) -> dict[str, np.ndarray]:
    return dict(load_file(run.path / "checkpoints" / "0000000060" / "learner.safetensors"))


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS.keys())
def test_killed_and_resumed_equals_uninterrupted(
    recipe: Path, uninterrupted: Run, tmp_path: Path, death: tuple[str, ...]
) -> None:
    script = Path(__file__).with_name("train_and_die.py")
    killed = subprocess.run([sys.executable, script, recipe, tmp_path, *death], capture_output=True, timeout=200, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = robo_rl("resume", "latest", "--runs", str(tmp_path))
    assert resumed.returncode == 0, resumed.stderr
    assert "exact" in resumed.stdout
    run = find_run("latest", tmp_path)
    expected, got = parameters(uninterrupted), parameters(run)
    assert expected.keys() == got.keys()
    assert all(expected[name].tobytes() == got[name].tobytes() for name in expected)
    assert [line["step"] for line in run.metrics()] == [line["step"] for line in uninterrupted.metrics()]
    assert run.description["resumes"][0]["kind"] == "exact"
    assert (run.path / "report.html").exists()
    assert json.loads((run.path / "evaluation.json").read_text())["returns"]


def test_a_run_that_never_saved_says_so(recipe: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("train_and_die.py")
    subprocess.run([sys.executable, script, recipe, tmp_path, "step", "5"], capture_output=True, timeout=200, check=False)
    resumed = robo_rl("resume", "latest", "--runs", str(tmp_path))
    assert resumed.returncode == 1
    assert "No checkpoint in" in resumed.stderr and "train again" in resumed.stderr
