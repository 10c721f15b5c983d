"""Learners from two cameras on the simulated arm, critics that know where the cube is: trained, resumed exactly, evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from robo_app.robots.twin_process import twin_process
from robo_cli import main
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.runs.checkpoints import checkpoint_steps
from robo_rl.runs.run import Run, find_run
from robo_rl.spec.environment import specification

RECIPE: dict[str, Any] = {
    "name": "seeing",
    "environment": {
        "name": "robo/ArmPick-v0",
        "arguments": {"action_repeat": 3, "max_steps": 30, "sees": "both", "image_size": 32},
    },
    "steps": 45,
    "checkpoint_every": 15,
    "threads": 1,
    "evaluation": {"episodes": 1, "videos": 0},
}

SEES = {
    "network": {"hidden": [8], "convolutions": [4, 4]},
    "batch_size": 8,
    "replay": {"learning_starts": 10},
    "privileged_critic": True,
}
HIL = {
    "algorithm": "hil-serl",
    "learner": SEES | {"gripper": "gripper_opening"},
    "demonstrations": {"episodes": 1},
    "human": {"kind": "perfect"},
}
ROLLOUTS = {"num_envs": 2, "steps_per_env": 6, "batch_size": 12, "epochs": 1}
TRAININGS: dict[str, dict[str, Any]] = {
    "hil-serl": HIL,
    "rlpd": {"algorithm": "rlpd", "learner": SEES | {"updates_per_step": 2}, "demonstrations": {"episodes": 1}},
    "drq": {"algorithm": "drq", "learner": SEES},
    "ppo": {
        "algorithm": "ppo",
        "learner": {name: SEES[name] for name in ("network", "privileged_critic")} | ROLLOUTS,
        "steps": 48,
        "checkpoint_every": 12,
    },
}

pytestmark = pytest.mark.slow


def written(folder: Path, **changes: Any) -> str:
    path = folder / "seeing.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, **changes}))
    return str(path)


def learnt(run: Run, step: int) -> dict[str, Any]:
    return load_file(run.path / "checkpoints" / f"{step:010d}" / "learner.safetensors")


@pytest.mark.parametrize("name", TRAININGS)
def test_training_from_two_cameras_resumes_exactly(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], interrupted_at: Any
) -> None:
    path = written(tmp_path, **TRAININGS[name])
    assert main.dispatch(["train", path, "--out", str(tmp_path / "whole")]) == 0
    whole = find_run("latest", tmp_path / "whole")

    with interrupted_at(36):
        main.dispatch(["train", path, "--out", str(tmp_path / "cut")])
    cut = find_run("latest", tmp_path / "cut")
    assert main.dispatch(["resume", str(cut.path)]) == 0
    assert "resumed at step 36, exact" in capsys.readouterr().out

    steps = checkpoint_steps(whole.path / "checkpoints")
    early, late, again = learnt(whole, steps[-2]), learnt(whole, steps[-1]), learnt(cut, steps[-1])
    assert late.keys() == again.keys() and all(late[name].tobytes() == again[name].tobytes() for name in late)
    towers = [name for name in late if "towers" in name and "encoder" in name and "optim" not in name]
    assert len(towers) >= 12 and all((early[name] != late[name]).any() for name in towers), "both cameras are learnt from"
    assert main.dispatch(["evaluate", str(whole.path), "--episodes", "1"]) == 0

    policy = whole.policy()
    assert set(policy.environment_spec.observation.subset("image")) == {"camera_front", "camera_wrist"}
    cell = make_environment("robo/ArmPick-v0", action_repeat=3, max_steps=5, cameras=["front", "wrist"], image_size=32)
    assert specification(cell).observation.subset("privileged") != policy.environment_spec.observation.subset("privileged")
    assert evaluate(policy, cell, seeds=range(1)).lengths == (5,)


def test_its_learner_may_have_a_process_of_its_own(tmp_path: Path) -> None:
    assert main.dispatch(["train", written(tmp_path, **HIL, learner_process="on"), "--out", str(tmp_path / "apart")]) == 0
    run = find_run("latest", tmp_path / "apart")
    parts = run.load().parts
    assert parts["learner"]["updates"] == 45 - 10 + 1
    assert parts["replay"]["rows"]["observation.camera_wrist"].shape[1:] == (32, 32, 3)
    encoder, target = parts["learner"]["encoder"], parts["learner"]["target_encoder"]
    assert not np.array_equal(encoder["network.towers.camera_wrist.0.weight"], target["network.towers.camera_wrist.0.weight"])
    assert (run.path / "evaluation.json").exists()


def test_policy_of_a_privileged_critic_acts_on_the_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robo_real.remote_robot.MOST_AGE", 60.0)  # a busy machine draws late, which stops the arm
    recipe = TRAININGS["rlpd"] | {"steps": 20, "checkpoint_every": 20}
    assert main.dispatch(["train", written(tmp_path, **recipe), "--out", str(tmp_path / "runs")]) == 0
    run = find_run("latest", tmp_path / "runs")
    settings: Any = {"task": "robo/ArmPick-v0", "cameras": ["front", "wrist"], "image_size": 32}
    with twin_process(tmp_path / "audit.jsonl", **settings) as url:
        cell = make_environment(f"robot:{url}", action_repeat=3, max_steps=4)
        hidden = {"object_position", "object_from_gripper", "object_turn"}
        assert not hidden & set(specification(cell).observation.subset("privileged"))
        assert evaluate(run.policy(), cell, seeds=range(1)).lengths == (4,)
        cell.close()
