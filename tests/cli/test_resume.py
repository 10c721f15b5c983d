"""A run killed with SIGKILL and resumed in another process ends with the parameters of the uninterrupted run, bit for bit."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from robo_app.training import finalisation
from robo_cli import main
from robo_rl.errors import RunError
from robo_rl.runs.checkpoints import load_checkpoint, save_checkpoint
from robo_rl.runs.observer import RunRecord
from robo_rl.runs.run import Run, find_run

RECIPE = """
environment: {name: robo/ArmReach-v0, arguments: {max_steps: 20}}
algorithm: rlpd
learner:
  network: {hidden: [8, 8], normalization_rows: 100}
  replay: {learning_starts: 10}
  batch_size: 16
  critics: 2
  updates_per_step: 2
demonstrations: {episodes: 2}
steps: 60
log_every: 10
checkpoint_every: 20
evaluation: {episodes: 2, every: 30, episodes_during: 1, videos: 0}
"""
# Episodes end at steps 20, 40 and 60, as long as none succeeds: the reach takes 20 steps at least for this policy.
DEATHS = {
    "before the first checkpoint": ("step", "5"),
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


ALIKE = (
    "before a checkpoint's first byte",
    "episode start",
    "last step",
    "before the first checkpoint",
    "between a checkpoint's files",
    "before a checkpoint's rename",
)
"""Deaths that only the slow tests try: the others pass through the same code, and each takes some 15 seconds."""


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "death",
    [pytest.param(death, id=name, marks=[pytest.mark.slow] if name in ALIKE else []) for name, death in DEATHS.items()],
)
def test_killed_and_resumed_equals_uninterrupted(
    recipe: Path, uninterrupted: Run, tmp_path: Path, death: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    script = Path(__file__).with_name("train_and_die.py")
    killed = subprocess.run([sys.executable, script, recipe, tmp_path, *death], capture_output=True, timeout=200, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert main.dispatch(["resume", "latest", "--runs", str(tmp_path)]) == 0  # in another process than it began in
    assert "exact" in capsys.readouterr().out
    run = find_run("latest", tmp_path)
    expected, got = parameters(uninterrupted), parameters(run)
    assert expected.keys() == got.keys()
    assert all(expected[name].tobytes() == got[name].tobytes() for name in expected)
    assert [line["step"] for line in run.metrics()] == [line["step"] for line in uninterrupted.metrics()]
    assert run.description["resumes"][0]["kind"] == "exact"
    assert (run.path / "report.html").exists()
    assert json.loads((run.path / "evaluation.json").read_text())["returns"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_saved_first_and_loses_no_step(
    recipe: Path,
    uninterrupted: Run,
    tmp_path: Path,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    original = RunRecord.on_step

    def interrupted(self: RunRecord, step: int, training: Any) -> None:
        if step == 33:
            signal.raise_signal(number)
        original(self, step, training)

    usual = signal.getsignal(number)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RunRecord, "on_step", interrupted)
        main.dispatch(["train", str(recipe), "--out", str(tmp_path)])
    assert signal.getsignal(number) is usual
    run = find_run("latest", tmp_path)
    assert f"interrupted at step 33; go on with: robo-rl resume {run.path}" in capsys.readouterr().out
    assert main.dispatch(["resume", str(run.path)]) == 0
    assert "resumed at step 33, exact" in capsys.readouterr().out
    expected, got = parameters(uninterrupted), parameters(run)
    assert all(expected[name].tobytes() == got[name].tobytes() for name in expected)


@pytest.mark.slow
def test_ctrl_c_in_the_final_evaluation_says_how_to_go_on(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(finalisation, "judge", interrupted)
        main.dispatch(["train", str(recipe), "--out", str(tmp_path)])
    run = find_run("latest", tmp_path)
    assert f"the training is saved; go on with: robo-rl resume {run.path}" in capsys.readouterr().out
    assert main.dispatch(["resume", str(run.path)]) == 0
    assert run.evaluation is not None


def test_a_finished_run_is_left_as_it_is(uninterrupted: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.path.rglob("*") if path.name != "lock"}
    assert main.dispatch(["resume", str(uninterrupted.path)]) == 0
    assert "is finished: 60 steps, and evaluated. Nothing was changed." in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in uninterrupted.path.rglob("*") if path.name != "lock"} == before


def test_a_state_with_other_keys_is_one_error(uninterrupted: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(uninterrupted.path, tmp_path / "other")))
    checkpoint = load_checkpoint(run.path / "checkpoints")
    del checkpoint.parts["training"]["waiting"]
    save_checkpoint(run.path / "checkpoints", checkpoint)
    with pytest.raises(RunError, match=r"(?s)does not fit this training: another version.*KeyError: 'waiting'.*train again"):
        main.dispatch(["resume", str(run.path), "--steps", "80"])


def test_the_log_holds_each_value_once(uninterrupted: Run) -> None:
    lines = uninterrupted.metrics()
    assert [line["step"] for line in lines] == [10, 20, 30, 40, 50, 60]
    assert [line["step"] for line in lines if "eval/mean_reward" in line] == [30, 60], "not repeated where none was made"
