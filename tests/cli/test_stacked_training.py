"""Trainings with frame stacks, from the recipe to the evaluation, by every loop that learns from pictures."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robo_rl
from robo_app.robots.twin_process import twin_process
from robo_cli.main import dispatch
from robo_rl.errors import SpecMismatch
from robo_rl.runs.run import Run

TASK, PLAIN = "robo/ArmReach-v0", {"max_steps": 4, "action_repeat": 2, "cameras": ["front"], "image_size": 16}
STACKS = [{"name": "frame_stack", "count": 3}]
VECTORS = [{"name": "frame_stack", "count": 2, "stacks": "vectors"}]
WORDS = [word for name, value in PLAIN.items() for word in (f"--environment.arguments.{name}", str(value))]
SMALL = {"network": {"hidden": [8], "convolutions": [4]}, "batch_size": 4}
RLPD = SMALL | {"replay": {"learning_starts": 4}, "critics": 2, "target_critics": 2, "updates_per_step": 1}
LEARNERS: dict[str, dict[str, Any]] = {
    "rlpd": RLPD,
    "ppo": SMALL | {"num_envs": 2, "steps_per_env": 4, "epochs": 1},
    "act": {"batch_size": 4, "network": {"convolutions": [4]}},
}


def recipe(name: str, **changes: Any) -> dict[str, Any]:
    """Return a recipe of twelve steps or updates with one of the learners."""
    return {
        "name": name,
        "environment": {"name": TASK, "arguments": PLAIN, "wrappers": STACKS},
        "algorithm": name,
        "learner": LEARNERS[name],
        "demonstrations": {"episodes": int(name != "ppo"), "seed": 3},
        "steps": 12,
        "checkpoint_every": 8,
        "threads": 1,
        "evaluation": {"episodes": 1, "videos": 0},
    } | changes


def learnt(run: Run) -> bytes:
    state = run.load().parts["learner"]
    state = state.get("networks", state)
    return b"".join(np.asarray(value).tobytes() for _, value in sorted(_flat(state).items()))


def _flat(state: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in state.items():
        found |= _flat(value, f"{prefix}/{name}") if isinstance(value, dict) else {f"{prefix}/{name}": value}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", LEARNERS)
def test_stacks_are_learnt_from_and_resumed_exactly(algorithm: str, tmp_path: Path, interrupted_at: Any) -> None:
    run = robo_rl.train(recipe(algorithm), out=tmp_path / "whole")
    assert run.spec.observation["camera_front"].shape == (16, 16, 9)
    with interrupted_at(8):
        robo_rl.train(recipe(algorithm), out=tmp_path / "cut")
    cut = robo_rl.resume("latest", runs=tmp_path / "cut")
    assert learnt(cut) == learnt(run)
    with pytest.raises(SpecMismatch, match=r"camera_front.history: 3 here, 1 there"):
        run.evaluate(1, arguments={"wrappers": [{"name": "frame_stack", "count": 1}]})
    assert run.evaluate(1, environment="robo/ArmReach-v0", videos=0).returns == run.evaluate(1).returns


@pytest.mark.slow
@pytest.mark.parametrize("process", ["off", pytest.param("on", marks=pytest.mark.slow)])
def test_memory_log_and_recording_hold_each_picture_once(process: str, tmp_path: Path) -> None:
    changes = {"record_episodes": True, "learner_process": process}
    run = robo_rl.train(recipe("rlpd", **changes), out=tmp_path)
    rows = run.load().parts["replay"]["rows"]
    assert rows["observation.camera_front"].shape[1:] == (16, 16, 3)
    kept = robo_rl.open_dataset(run.path / "episodes")
    assert kept.spec.observation["camera_front"].shape == (16, 16, 3)
    assert all(episode.observations["camera_front"].shape[1:] == (16, 16, 3) for episode in kept)
    first = next(iter(kept)).observations["camera_front"]
    assert rows["observation.camera_front"][: len(first)].tobytes() == first.tobytes()


def test_stack_is_added_to_the_environment_of_a_dataset(tmp_path: Path) -> None:
    order = ["record", "robo/ArmReach-v0", "--policy", "random", "--episodes", "1", "--out", str(tmp_path / "data")]
    assert dispatch([*order, "--environment.arguments.max_steps", "4"]) == 0
    changes = {
        "environment": {"wrappers": VECTORS},
        "demonstrations": {},
        "learner": {"network": {"hidden": [8]}, "batch_size": 4},
    }
    run = robo_rl.train(recipe("act", **changes | {"algorithm": "bc"}), dataset=tmp_path / "data", out=tmp_path / "runs")
    assert run.recipe["environment"] == {"name": TASK, "arguments": {"max_steps": 4}, "wrappers": VECTORS}
    assert run.spec.observation["joint_position"].history == 2


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["rlpd", "act"])
@pytest.mark.parametrize("recorded", [[], STACKS], ids=["plain", "stacked"])
def test_recorded_data_serve_with_and_without_stacks(algorithm: str, recorded: list[dict[str, Any]], tmp_path: Path) -> None:
    words = [*WORDS, "--environment.wrappers", json.dumps(recorded)]
    assert dispatch(["record", TASK, "--episodes", "2", "--out", str(tmp_path / "data"), *words]) == 0
    assert robo_rl.open_dataset(tmp_path / "data").spec.observation["camera_front"].shape == (16, 16, 3)
    for around in ([], STACKS):
        changes = {"environment": {"name": TASK, "arguments": PLAIN, "wrappers": around}, "demonstrations": {}}
        run = robo_rl.train(recipe(algorithm, **changes), dataset=tmp_path / "data", out=tmp_path / "runs")
        assert len(run.evaluate(1).returns) == 1


def test_stable_baselines_start_from_stacked_demonstrations(tmp_path: Path) -> None:
    arguments = {"max_steps": 4, "action_repeat": 2}
    learner = {"learning_starts": 4, "batch_size": 4, "policy_kwargs": {"net_arch": [8]}}
    made = {
        "name": "sb3-sac",
        "environment": {"name": TASK, "arguments": arguments, "wrappers": VECTORS},
        "algorithm": "sb3-sac",
        "learner": learner,
    }
    more = {"demonstrations": {"episodes": 1, "seed": 3}, "steps": 8, "threads": 1, "evaluation": {"episodes": 1, "videos": 0}}
    run = robo_rl.train(made | more, out=tmp_path)
    assert run.spec.observation["joint_position"].history == 2 and len(run.evaluate(1).returns) == 1


@pytest.mark.slow
def test_stacks_go_on_at_a_robot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robo_real.remote_robot.MOST_AGE", 60.0)  # a loaded machine draws late
    run = robo_rl.train(recipe("rlpd"), out=tmp_path / "runs")
    with twin_process(tmp_path / "audit.jsonl", cameras=["front", "wrist"], image_size=16) as url:
        there = f"robot:{url}?action_repeat=2&max_steps=4"
        assert len(run.evaluate(1, environment=there, videos=0).returns) == 1
        words = [*WORDS, "--environment.wrappers.frame_stack.count", "3"]
        assert dispatch(["record", TASK, "--episodes", "1", "--out", str(tmp_path / "data"), *words]) == 0
        order = [
            "refine",
            str(run.path),
            "--robot",
            url,
            "--dataset",
            str(tmp_path / "data"),
            "--runs",
            str(tmp_path / "refined"),
        ]
        assert dispatch([*order, "--steps", "8", "--episodes", "1"]) == 0
    refined = robo_rl.open_run(runs=tmp_path / "refined")
    assert refined.spec.observation["camera_wrist"].history == 3, "the robot stacks all of its pictures"
    assert refined.policy().environment_spec.observation == run.policy().environment_spec.observation
    kept = robo_rl.open_dataset(refined.path / "episodes").spec.observation
    assert kept["camera_front"].shape == kept["camera_wrist"].shape == (16, 16, 3)


@pytest.mark.slow
def test_person_corrects_a_policy_with_stacks(tmp_path: Path, interrupted_at: Any) -> None:
    arguments = {"max_steps": 24, "action_repeat": 2}
    changes = {
        "environment": {"name": TASK, "arguments": arguments, "wrappers": VECTORS},
        "human": {"kind": "delayed"},
        "record_episodes": True,
    }
    changes |= {"learner": {name: value for name, value in RLPD.items() if name != "convolutions"}, "steps": 48}
    run = robo_rl.train(recipe("rlpd", **changes), out=tmp_path / "whole")
    with interrupted_at(40):
        robo_rl.train(recipe("rlpd", **changes), out=tmp_path / "cut")
    assert learnt(robo_rl.resume("latest", runs=tmp_path / "cut")) == learnt(run)
    assert run.load().parts["training"]["supervisor"]["steps"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sac", "ppo"])
def test_reward_programs_read_the_newest(algorithm: str, tmp_path: Path) -> None:
    program = files("robo_app") / "rewards" / "programs" / "arm_reach.py"
    learner = {"network": {"hidden": [8]}, "batch_size": 4} | (
        {"replay": {"learning_starts": 4}} if algorithm == "sac" else {"num_envs": 2, "steps_per_env": 4}
    )
    changes = {
        "environment": {"name": TASK, "arguments": {"max_steps": 4}, "wrappers": VECTORS},
        "demonstrations": {},
        "reward": {"name": f"program:{program}", "probation": False},
    }
    run = robo_rl.train(recipe("ppo", **changes, algorithm=algorithm, learner=learner), out=tmp_path)
    assert run.spec.observation["joint_position"].shape == (14,) and run.load().step == 12
