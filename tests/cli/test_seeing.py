"""HIL-SERL with a camera on the simulated arm: trained with a person, resumed exactly, learnt in two processes, evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from robo_cli import main
from robo_rl.runs.run import Run, find_run

RECIPE: dict[str, Any] = {
    "name": "seeing",
    "environment": {
        "name": "robo/ArmPick-v0",
        "arguments": {"action_repeat": 3, "max_steps": 30, "cameras": ["wrist"], "image_size": 32},
    },
    "algorithm": "hil-serl",
    "learner": {
        "hidden": [8],
        "batch_size": 8,
        "learning_starts": 10,
        "gripper": "gripper_opening",
        "convolutions": [4, 4],
    },
    "demonstrations": {"episodes": 1},
    "human": {"kind": "perfect"},
    "steps": 45,
    "checkpoint_every": 15,
    "threads": 1,
    "evaluation": {"episodes": 1, "videos": 0},
}

pytestmark = pytest.mark.slow


def written(folder: Path, **changes: Any) -> str:
    path = folder / "seeing.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, **changes}))
    return str(path)


def learnt(run: Run, step: int) -> dict[str, Any]:
    return load_file(run.path / "checkpoints" / f"{step:010d}" / "learner.safetensors")


def test_a_person_corrects_a_policy_that_learns_from_a_camera(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], interrupted_at: Any
) -> None:
    path = written(tmp_path)
    assert main.dispatch(["train", path, "--out", str(tmp_path / "whole")]) == 0
    whole = find_run("latest", tmp_path / "whole")

    with interrupted_at(36):
        main.dispatch(["train", path, "--out", str(tmp_path / "cut")])
    cut = find_run("latest", tmp_path / "cut")
    assert main.dispatch(["resume", str(cut.path)]) == 0
    assert "resumed at step 36, exact" in capsys.readouterr().out

    early, late, again = learnt(whole, 30), learnt(whole, 45), learnt(cut, 45)
    assert late.keys() == again.keys() and all(late[name].tobytes() == again[name].tobytes() for name in late)
    convolutions = [name for name in late if name.startswith(("/encoder", "/target_encoder")) and "towers" in name]
    assert len(convolutions) == 12, "three layers with their biases, and those of the target"
    assert all((early[name] != late[name]).any() for name in convolutions), "pictures are learnt from"
    assert main.dispatch(["evaluate", str(whole.path), "--episodes", "1"]) == 0


def test_its_learner_may_have_a_process_of_its_own(tmp_path: Path) -> None:
    assert main.dispatch(["train", written(tmp_path, learner_process="on"), "--out", str(tmp_path / "apart")]) == 0
    run = find_run("latest", tmp_path / "apart")
    parts = run.load().parts
    assert parts["learner"]["updates"] == 45 - 10 + 1
    assert parts["replay"]["rows"]["observation.camera_wrist"].shape[1:] == (32, 32, 3)
    encoder, target = parts["learner"]["encoder"], parts["learner"]["target_encoder"]
    assert not np.array_equal(encoder["network.towers.camera_wrist.0.weight"], target["network.towers.camera_wrist.0.weight"])
    assert (run.path / "evaluation.json").exists()
