"""What is said of pictures of the arm is true of the state, and the pictures are those of the environment."""

from __future__ import annotations

from itertools import pairwise

import mujoco
import numpy as np
import pytest

from robo_rl.errors import UnknownName
from robo_sims.arm.captioned_pictures import POSES, SceneRenderer, captioned_pictures, concatenate
from robo_sims.arm.captions import COLOURS, States
from robo_sims.arm.environment import ArmEnv
from robo_sims.arm.family import FAMILY, NAMES
from robo_sims.arm.pose_sampling import Pose, SceneObject
from robo_sims.arm.tasks import TASKS
from robo_sims.arm.tasks.task import ArmTask

OWN = {
    "ArmReach-v0": {("green", "point")},
    "ArmPick-v0": {("red", "cube")},
    "ArmPush-v0": {("red", "cube"), ("green", "mark")},
    "ArmPegInsert-v0": {("yellow", "peg"), ("blue", "block")},
}


def drawn(task: str, count: int = 60, seed: int = 0) -> States:
    stage, posing, random = SceneRenderer(task, "front", 32), TASKS[task], np.random.default_rng(seed)
    return concatenate([stage.show(posing.pose(posing.scene(random), random)) for _ in range(count)])


def state(task: str, gripper, **things) -> States:
    nothing = {(colour, name): np.full((1, 3), np.nan) for name, kind in TASKS[task].kinds.items() for colour in kind.colours}
    given = {tuple(name.split("_")): np.array([place], float) for name, place in things.items()}
    return States(np.array([gripper], float), nothing | given)


def true_of(task: str, states: States) -> set[str]:
    return {each.words for each in TASKS[task].sentences() if each.holds(states)[0]}


def told(task: str, words: str, states: States) -> tuple[float, bool]:
    found = next(each for each in TASKS[task].instructions() if words in each.wordings)
    return float(found.progress(states)[0]), bool(found.complete(states)[0])


def test_states_by_hand_have_the_captions_that_they_should():
    here = state("ArmReach-v0", (0.5, 0, 0.2), green_point=(0.5, 0.03, 0.2))
    assert true_of("ArmReach-v0", here) == {"the gripper is very close to the green point"}
    assert told("ArmReach-v0", "move the gripper to the green point", here) == (pytest.approx(0.94), False)
    held = state("ArmPick-v0", (0.5, 0, 0.14), red_cube=(0.5, 0, 0.13))
    assert "the red cube is high above the table" in true_of("ArmPick-v0", held)
    assert {"pick up the red cube", "lift the red cube"} < true_of("ArmPick-v0", held)
    assert told("ArmPick-v0", "pick up the red cube", held) == (pytest.approx(0.99), True)
    pushed = state("ArmPush-v0", (0.5, 0.1, 0.05), red_cube=(0.5, 0, 0.025), green_mark=(0.51, 0, 0.001))
    assert told("ArmPush-v0", "push the red cube onto the green mark", pushed)[1]
    assert "the red cube is at the green mark" in true_of("ArmPush-v0", pushed)


@pytest.mark.parametrize("task", TASKS)
def test_nothing_is_true_of_what_is_not_there(task):
    states, of = drawn(task), TASKS[task]
    present = {key: np.isfinite(places).all(-1) for key, places in states.things.items()}
    for sentence in of.sentences():
        words = sentence.words.split()
        named = [present[colour, kind] for colour, kind in pairwise(words) if (colour, kind) in present]
        assert named and not (sentence.holds(states) & ~np.logical_and.reduce(named)).any(), sentence.words
    for each in of.instructions():
        absent = ~np.logical_and.reduce([present[key] for key in each.things])
        progress = each.progress(states)
        assert (progress[absent] == 0).all() and not each.complete(states)[absent].any()
        assert ((progress >= 0) & (progress <= 1)).all() and np.isfinite(progress).all()


@pytest.mark.parametrize("task", TASKS)
def test_exactly_one_distance_word_fits_each_object(task):
    states, (name, kind) = drawn(task), next(iter(TASKS[task].kinds.items()))
    for colour in kind.colours:
        near = [each.holds(states) for each in TASKS[task].descriptions() if each.words.endswith(f"the {colour} {name}")]
        near = near[:6]  # of the gripper
        assert (np.sum(near, 0) == np.isfinite(states.things[colour, name]).all(-1)).all()


@pytest.mark.parametrize("task", TASKS)
def test_task_instruction_is_complete_at_success(task):
    own = next(each for each in TASKS[task].instructions() if TASKS[task].instruction in each.wordings)
    assert set(own.things) == OWN[task]
    env = ArmEnv(task)
    observation, _ = env.reset(seed=1)
    policy, info = env.scripted_policy(seed=0), {"success": False}
    while not info["success"]:
        observation, _, terminated, truncated, info = env.step(policy.act(observation))
        assert not (truncated or (terminated and not info["success"]))
    seen = {"cube": "object_position", "peg": "peg_position", "block": "hole_position"}
    up = {"peg": 0.05, "block": -0.05}  # from the tip to the peg's middle, from the rim to the table
    things = {
        "_".join(key): np.append(observation[seen.get(key[1], "goal_position")], 0.0)[:3]
        + np.array([0, 0, up.get(key[1], 0.0)])
        for key in OWN[task]
    }
    reached = state(task, observation["end_effector_position"], **things)
    assert own.complete(reached)[0] and own.progress(reached)[0] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_pictures_are_those_of_the_environment(task):
    env, stage = ArmEnv(task, cameras=["front"], image_size=64), SceneRenderer(task, "front", 64)
    observation, _ = env.reset(seed=4)
    stage.show(Pose(np.zeros(3), 0, 0.08))
    mine, its = stage.physics, env.physics
    mine.data.qpos[: its.model.nq] = its.data.qpos
    for name, kind in TASKS[task].kinds.items():
        colour = next(colour for colour, own in OWN[task] if own == name)
        body = its.data.body(kind.body)
        yaw = 2.0 * np.arctan2(body.xquat[3], body.xquat[0])
        stage._place(kind.body, SceneObject(name, colour, body.xpos.copy(), float(yaw)))
        if its.model.body(kind.body).mocapid[0] < 0:  # as it lies or is held, tilts included
            mine.data.joint(kind.body).qpos[:] = its.data.joint(kind.body).qpos
    mujoco.mj_forward(mine.model, mine.data)
    assert np.abs(stage.picture().astype(int) - observation["camera_front"]).max() <= 1
    env.close()
    stage.close()


def test_things_are_seen_where_the_labels_say():
    data = captioned_pictures("ArmPick-v0", count=2 * POSES, size=64, seed=3)
    assert data.firsts.tolist() == [0] * POSES + [POSES] * POSES
    assert (data.pictures.reshape(len(data), -1).std(1) > 5).all()
    assert len(np.unique(data.pictures, axis=0)) == len(data)
    assert not data.seen[np.isnan(data.positions).any(-1)].any()
    checked = 0
    for index in range(0, len(data), POSES):  # as an episode begins, nothing hides the cubes
        for slot, name in enumerate(data.slots[1:], start=1):
            if np.isfinite(data.places[index, slot]).all():
                column, row = ((data.places[index, slot, :2] + 1) * 32).astype(int)
                colour = data.pictures[index, row, column] / 255
                nearest = min(COLOURS, key=lambda each: np.abs(colour - np.array(COLOURS[each]) * colour.max()).sum())
                assert nearest == name.split()[0] and data.seen[index, slot]
                checked += 1
    assert checked >= 2


def test_every_task_is_complete():
    assert [*NAMES] == [*TASKS] and not [task for task in TASKS.values() if task.__abstractmethods__]
    assert ArmTask.__abstractmethods__ >= {
        "instructions",
        "descriptions",
        "scene",
        "pose",
        "place",
        "observe",
        "holds",
        "progress",
    }
    assert all({*vars(ArmTask)["__annotations__"]} <= {*dir(task)} for task in TASKS.values())
    for task in TASKS.values():
        kinds = {kind for each in task.instructions() for _, kind in each.things}
        assert kinds == {*task.kinds} and len({each.words for each in task.sentences()}) == len(task.sentences())


@pytest.mark.slow
def test_same_seed_draws_same_and_other_tasks_are_refused():
    first, again = (captioned_pictures("ArmReach-v0", count=4, size=32, seed=5) for _ in range(2))
    assert np.array_equal(first.pictures, again.pictures) and np.array_equal(first.truth, again.truth)
    with pytest.raises(UnknownName, match="Unknown task of family 'robo' 'ArmFold-v0'"):
        FAMILY.captioned_pictures("ArmFold-v0", camera="front", size=32, count=4, seed=0)
