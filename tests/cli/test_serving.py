"""An environment with more than a policy reads serves it, whatever learner trained it; any other difference is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import robo_rl
from factories import rest_slow
from robo_rl.environments.make import make_environment
from robo_rl.errors import SpecMismatch
from robo_rl.runs.run import Run
from robo_rl.spec.environment import ObservationSpec, specification

TASK, ARGUMENTS = "robo/ArmReach-v0", {"max_steps": 4, "action_repeat": 2}
CAMERAS: dict[str, Any] = {"cameras": ["front", "wrist"], "image_size": 16}
SMALL = {"network": {"hidden": [8]}, "batch_size": 4}
LEARNERS: dict[str, dict[str, Any]] = {
    "sac": SMALL | {"replay": {"learning_starts": 4}},
    "rlpd": SMALL | {"replay": {"learning_starts": 4}, "critics": 2, "target_critics": 2, "updates_per_step": 1},
    "ppo": SMALL | {"num_envs": 2, "steps_per_env": 4, "epochs": 1},
    "sb3-ppo": {"n_steps": 8, "batch_size": 4, "n_epochs": 1},
    "iql": SMALL,
    "act": {"batch_size": 4},
    "flow-bc": SMALL,
}
FROM_DATA = ("rlpd", "iql", "act", "flow-bc")


def trained(algorithm: str, out: Path, learner: dict[str, Any] | None = None, **more: Any) -> Run:
    """Return a run of eight steps; what is no key of a recipe is an argument of the environment."""
    keys = {name: more.pop(name) for name in ("initial", "record_episodes") if name in more}
    recipe = keys | {
        "name": algorithm,
        "environment": {"name": TASK, "arguments": ARGUMENTS | more},
        "algorithm": algorithm,
        "learner": LEARNERS[algorithm] | (learner or {}),
        "demonstrations": {"episodes": int(algorithm in FROM_DATA), "seed": 3},
        "steps": 8,
        "threads": 1,
        "evaluation": {"episodes": 1, "videos": 0},
    }
    return robo_rl.train(recipe, out=out)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", rest_slow(LEARNERS))
def test_cameras_that_are_not_read_change_no_action(algorithm: str, tmp_path: Path) -> None:
    run = trained(algorithm, tmp_path)
    own, there = run.evaluate(2), run.evaluate(2, arguments=CAMERAS, videos=0)
    assert there.returns == own.returns
    policy, environment = robo_rl.load_policy(run), make_environment(TASK, **ARGUMENTS, **CAMERAS)
    seen, _ = environment.reset(seed=0)
    policy.reset()
    assert policy.act(seen, deterministic=True).shape == (5,)
    assert not [name for name in policy.environment_spec.observation if "camera" in name]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["act", "flow-bc"])
def test_chunks_keep_the_rate_of_their_training(algorithm: str, tmp_path: Path) -> None:
    run = trained(algorithm, tmp_path)
    with pytest.raises(SpecMismatch, match=r"control_period: 0.1 here, 0.05 there(.|\n)*rate it was trained at") as refused:
        run.evaluate(1, arguments={"action_repeat": 1})
    assert str(refused.value).count("\n  do:") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"channels": "bgr"}, "channels: 'rgb' here, 'bgr' there"),
        ({"shape": (8, 8, 3)}, r"shape: \[16, 16, 3\] here, \[8, 8, 3\]"),
    ],
)
def test_other_pictures_are_refused_by_name(change: dict[str, Any], said: str) -> None:
    seen = specification(make_environment(TASK, cameras=["front"], image_size=16))
    arrays = tuple(replace(array, **change) if array.role == "image" else array for array in seen.observation.arrays)
    other = replace(seen, observation=ObservationSpec(arrays))
    with pytest.raises(SpecMismatch, match=rf"1 field\(s\) differ.\n +- observation.camera_front.{said}"):
        seen.require_interface(other, what="The policy")


@pytest.mark.slow
def test_training_goes_on_with_the_camera_it_began_with(tmp_path: Path) -> None:
    first = trained("rlpd", tmp_path, cameras=["wrist"], image_size=16, learner={"network": {"convolutions": [4]}})
    more = {"initial": {"run": str(first.path)}, "record_episodes": True, "learner": {"network": {"convolutions": [4]}}}
    second = trained("rlpd", tmp_path, cameras=["front", "wrist"], image_size=16, **more)
    assert second.policy().environment_spec.observation == first.policy().environment_spec.observation
    rows, before = second.load().parts["replay"]["rows"], first.load().parts["replay"]["rows"]
    assert "observation.camera_wrist" in rows and rows.keys() == before.keys()
    kept = robo_rl.open_dataset(second.path / "episodes").spec.observation
    assert {"camera_front", "camera_wrist"} <= set(kept)
    assert len(second.evaluate(1).returns) == 1
