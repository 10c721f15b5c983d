"""The mirror: an involution, the arm's own kinematics, and datasets that are doubled."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import axes, make_spec, random_episode
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_papers.gr_rl.mirror import Mirror, Reflection, mirrored_words
from robo_papers.gr_rl.mirror_command import mirror_of
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import ArraySpec, specification
from robo_sims.arm.environment import observe

TASKS = ("ArmReach-v0", "ArmPush-v0", "ArmPick-v0", "ArmPegInsert-v0")


@given(st.text(alphabet="leftrigh LEFTRIGHT.,", max_size=40))
def test_words_come_back(text):
    assert mirrored_words(mirrored_words(text)).lower() == text.lower()


def test_words_keep_their_spelling():
    assert mirrored_words("Left of the RIGHT cube, leftover to the right") == "Right of the LEFT cube, leftover to the left"


@pytest.mark.parametrize("control", ["end_effector_delta", "joint_position"])
@pytest.mark.parametrize("task", TASKS)
def test_the_image_of_the_image_is_the_episode(task, control):
    environment = make_environment(f"robo/{task}", control=control)
    expert = environment.get_wrapper_attr("scripted_policy")(seed=0, noise=0.1)
    episode = rollout(environment, expert, seed=0)
    mirror = mirror_of(environment, task)
    once, twice = mirror.episode(episode), mirror.episode(mirror.episode(episode))
    for name, values in episode.observations.items():
        np.testing.assert_allclose(twice.observations[name], values, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(twice.actions, episode.actions, atol=1e-5)
    assert once.seed is None and once.metadata["mirrored"] and not twice.metadata["mirrored"]
    np.testing.assert_array_equal(once.rewards, episode.rewards)
    assert not np.allclose(once.actions, episode.actions)
    environment.close()


@pytest.mark.parametrize("task", TASKS)
def test_a_mirrored_state_is_observed_mirrored(task):
    here, there = (make_environment(f"robo/{task}").unwrapped for _ in range(2))
    mirror, random = mirror_of(here, task), np.random.default_rng(0)
    worst = 0.0
    here.reset(seed=3)
    there.reset(seed=4)
    one, other = here.physics, there.physics
    place(one, other, mirror)
    first = {name: np.array(values) for name, values in observe(one, here.task).items()}
    image = mirror.observation(first)
    found = observe(other, there.task)
    for name, values in image.items():
        np.testing.assert_allclose(found[name], values, atol=1e-7, err_msg=name)
    for _ in range(10):  # links are not symmetric to the gram, so that motions agree to a fraction of a millimetre
        action = random.uniform(-1, 1, here.environment_spec.action.size).astype(np.float32)
        action[-1] = 1.0 if task != "ArmPegInsert-v0" else -1.0
        here.step(action)
        there.step(mirror.acted(action))
        seen = mirror.observation({"end_effector_position": np.array(one.gripper_position)})["end_effector_position"]
        worst = max(worst, float(np.abs(seen - other.gripper_position).max()))
    assert worst < 1e-3
    still = np.abs(first["end_effector_position"] - one.gripper_position).max()
    assert still > 10 * worst  # it has moved, and much further than the two differ


def place(one, other, mirror) -> None:
    """Put the mirror image of one simulation's state into another one."""
    model, reflected = one.model, mirror.observations
    qpos, qvel = one.qpos.copy(), one.qvel.copy()
    qpos[:7], qvel[:7] = reflected["joint_position"].of(qpos[:7]), reflected["joint_velocity"].of(qvel[:7])
    qpos[7:9], qvel[7:9] = qpos[[8, 7]], qvel[[8, 7]]
    for joint in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE):
        at, rate = model.jnt_qposadr[joint], model.jnt_dofadr[joint]
        qpos[at : at + 7] *= [1, -1, 1, 1, -1, 1, -1]
        qvel[rate : rate + 6] *= [1, -1, 1, -1, 1, -1]
    other.qpos[:], other.qvel[:] = qpos, qvel
    other.data.mocap_pos[:] = one.data.mocap_pos * [1, -1, 1]
    other.data.mocap_quat[:] = one.data.mocap_quat * [1, -1, 1, -1]
    mujoco.mj_forward(model, other.data)


def test_pictures_are_turned_over():
    spec = make_spec("seeing", ArraySpec("camera_front", (2, 3, 3), dtype="uint8", role="image"), action=axes("dx", "dy"))
    mirror = Mirror(spec, Reflection((1, -1)))
    picture = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(1, 2, 3, 3)
    seen = mirror.observation({"camera_front": picture})["camera_front"]
    np.testing.assert_array_equal(seen[0, :, 0], picture[0, :, 2])
    np.testing.assert_array_equal(mirror.observation({"camera_front": seen})["camera_front"], picture)


@pytest.mark.slow
def test_a_dataset_is_doubled_with_its_labels(tmp_path, capsys):
    data, both = str(tmp_path / "data"), tmp_path / "both"
    assert dispatch(["record", "robo/ArmReach-v0", "--episodes", "3", "--out", data]) == 0
    assert dispatch(["label", data, "--reward", "oracle", "--name", "own"]) == 0
    assert dispatch(["data", "mirror", data, "--out", str(both)]) == 0
    assert "3 episodes and 3 mirror images" in capsys.readouterr().out
    dataset = Dataset(both)
    labels = LabelSet.existing(dataset, "own")
    entries = dataset.entries()
    assert len(entries) == 6 and labels.labelled == {entry.identity for entry in entries}
    originals, images = ([e for e in dataset if bool(e.metadata.get("mirrored")) is wanted] for wanted in (False, True))
    assert len(images) == 3
    for episode, image in zip(originals, images, strict=True):
        np.testing.assert_allclose(
            image.observations["goal_position"][0] * [1, -1, 1], episode.observations["goal_position"][0]
        )
    assert "mirrored_from" in dataset.card


def test_what_has_no_mirror_is_refused(tmp_path):
    spec = make_spec("strange", ArraySpec("position", (2,)), action=axes("a"))
    with pytest.raises(InvalidSetting, match="no reflection of position"):
        Mirror(spec, Reflection((1,)))
    episode = random_episode(spec)
    environment = make_environment("robo/ArmReach-v0")
    with pytest.raises(InvalidSetting, match="The mirror is of"):
        mirror_of(environment, "reach").episode(episode)
    assert specification(environment).name == "robo/ArmReach-v0"
    data = str(tmp_path / "data")
    assert dispatch(["record", "gymnasium/Reacher-v5", "--policy", "random", "--episodes", "1", "--out", data]) == 0
    with pytest.raises(InvalidSetting, match="not known to be symmetric"):
        dispatch(["data", "mirror", data, "--out", str(tmp_path / "both")])
    assert not (tmp_path / "both").exists()
