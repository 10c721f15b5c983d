"""What a reward program may read: the text that prompts show, and the columns of recorded and of running steps."""

from dataclasses import replace

import numpy as np
import pytest

from factories import axes, choices, make_spec, picture_spec
from robo_rl.errors import InvalidObservation, InvalidSetting
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from robo_rl.types import Episode
from robo_sims.arm.family import FAMILY as ARM
from robo_sims.gymnasium_mujoco import FAMILY as GYMNASIUM

ARM_TEXT = """\
class Batch:  # N steps, a row each; every column is a numpy array of float64
    # One step lasts 0.05 s.
    # After the step. Each column x below has a twin previous_x of the same kind: the value before the step.
    # Of the robot itself
    joint_position: (N, 7)  # [rad]; angles of the arm's joints, from the base to the hand
    joint_velocity: (N, 7)  # [rad/s]; their rates of change
    gripper_opening: (N, 1)  # [m]; distance between the two finger pads: 0 closed, 0.08 open; a held thing's width
    end_effector_position: (N, 3)  # [m]; frame base; x (forward), y (left), z (up) of the point between the finger pads; \
the table's top is at z = 0
    end_effector_quaternion: (N, 4)  # no unit; frame base; orientation of the hand, (w, x, y, z) with x not negative
    # Of things around it
    object_position: (N, 3)  # [m]; frame base; x (forward), y (left), z (up) of the cube's middle; \
z is 0.025 where it rests on the table
    object_from_gripper: (N, 3)  # [m]; frame base; from the point between the finger pads to the cube's middle: \
object_position - end_effector_position
    object_turn: (N, 2)  # no unit; frame hand; from -1 to 1; (cos 4a, sin 4a) of the heading a from hand to cube: \
all four faces of a cube look alike
    # Of the goal
    goal_position: (N, 2)  # [m]; frame base; x (forward), y (left) of the middle of the mark on the table
    goal_from_object: (N, 2)  # [m]; frame base; from the cube's middle to the mark along the table: \
goal_position - object_position[:2]
    # Privileged: the reward may read it, a deployed policy cannot
    object_velocity: (N, 6)  # several units; of the cube: linear x, y, z [m/s] in the frame base, \
then angular [rad/s] in the cube's own frame
    # What was executed between the two
    action: (N, 5)  # from -1 to 1; how far the end effector is sent from where it is; frame base; -1 and 1 stand for:
    #   action[:, 0] dx: -0.015 to 0.015 m
    #   action[:, 1] dy: -0.015 to 0.015 m
    #   action[:, 2] dz: -0.015 to 0.015 m
    #   action[:, 3] turn: -0.12 to 0.12 rad
    #   action[:, 4] gripper_opening: 0 to 0.08 m"""

PENDULUM_TEXT = """\
class Batch:  # N steps, a row each; every column is a numpy array of float64
    # One step lasts 0.05 s.
    # After the step. Each column x below has a twin previous_x of the same kind: the value before the step.
    # Of the robot itself
    cart_position: (N, 1)  # [m]; frame world; meaning not stated
    pole_sine: (N, 2)  # no unit; meaning not stated
    pole_cosine: (N, 2)  # no unit; meaning not stated
    cart_velocity: (N, 1)  # [m/s]; frame world; from -10 to 10; meaning not stated
    pole_angular_velocity: (N, 2)  # [rad/s]; from -10 to 10; meaning not stated
    constraint_force: (N, 1)  # [N]; from -10 to 10; meaning not stated
    # What was executed between the two
    action: (N, 1)  # from -1 to 1; torques (or efforts) of joints; -1 and 1 stand for:
    #   action[:, 0] slide: -1 to 1"""


def task(*arrays, action=None, **changes):
    return make_spec("test/Task-v0", *arrays, action=action or axes("x", unit="m"), **changes)


def make_episode(spec, steps=3):
    random = np.random.default_rng(0)
    observations = {
        array.name: (random.uniform(0, 200, (steps + 1, *array.shape))).astype(array.dtype) for array in spec.observation.arrays
    }
    actions = np.zeros((steps, *spec.action.shape), spec.action.dtype)
    return Episode(
        observations, actions, actions, np.full(steps, 7.0, np.float32), np.zeros(steps, np.int8), np.arange(steps + 1.0),
        False, True, "time_limit", True, 0, spec.fingerprint, reward_terms={"success": np.ones(steps, np.float32)},
    )  # fmt: skip


def test_the_text_of_an_arm_task_is_stable():
    assert EnvAbstraction.of(ARM.make("ArmPush-v0").environment_spec).text == ARM_TEXT


def test_foreign_task_text_admits_missing_facts():
    assert EnvAbstraction.of(GYMNASIUM.make("InvertedDoublePendulum-v5").environment_spec).text == PENDULUM_TEXT


def test_text_hides_simulator_task_and_success_rule():
    spec = ARM.make("ArmPush-v0").environment_spec
    other = replace(spec, name="real/Table-v3", instruction="something", success_rule="another rule", max_steps=7)
    assert EnvAbstraction.of(other) == EnvAbstraction.of(spec)


def test_choices_are_numbered():
    text = EnvAbstraction.of(task(ArraySpec("cell", (), "int64"), action=choices("left", "go"))).text
    assert "    cell: (N,)  # no unit; meaning not stated" in text
    assert text.endswith("    action: (N,)  # number of a choice: 0 left, 1 go")
    assert "One step lasts" not in text


def test_columns_exclude_reward_success_and_optional_pictures():
    image = picture_spec("camera", (2, 2, 3))
    spec = task(ArraySpec("x", (1,)), ArraySpec("is_success", (1,)), ArraySpec("reward", ()), image)
    assert list(EnvAbstraction.of(spec).columns) == ["x", "previous_x", "action"]
    assert list(EnvAbstraction.of(spec, images=True).columns) == ["x", "camera", "previous_x", "previous_camera", "action"]
    columns = EnvAbstraction.of(spec).batch(make_episode(spec))
    assert list(columns) == ["x", "previous_x", "action"]


@pytest.mark.parametrize(
    "name",
    [
        "succeeded",
        "task_solved",
        "score",
        "rewarded",
        "successes",
        "return_so_far",
        "reward2",
        "done",
    ],
)
def test_columns_leave_out_what_gives_the_goal_away(name):
    assert list(EnvAbstraction.of(task(ArraySpec("x", (1,)), ArraySpec(name, ()))).columns) == [
        "x",
        "previous_x",
        "action",
    ]


@pytest.mark.parametrize("name", ["achieved_goal", "resolved_force", "object_returned", "underscore_x", "donut"])
def test_columns_keep_what_only_sounds_like_it(name):
    assert name in EnvAbstraction.of(task(ArraySpec(name, (1,)))).columns


def test_own_previous_entries_keep_meaning_of_name():
    spec = task(ArraySpec("hand", (1,)), ArraySpec("previous_hand", (1,)), ArraySpec("previous_only", (1,)))
    episode = make_episode(spec)
    columns = EnvAbstraction.of(spec).batch(episode)
    assert list(columns) == ["hand", "previous_only", "previous_hand", "previous_previous_only", "action"]
    np.testing.assert_array_equal(columns["previous_hand"], episode.observations["hand"][:-1])


def test_an_entry_called_action_is_refused():
    with pytest.raises(InvalidSetting, match="An entry of the observation of test/Task-v0 has the name of a column"):
        EnvAbstraction.of(task(ArraySpec("action", (1,))))


def test_columns_are_what_holds_after_and_before_each_step():
    spec = task(ArraySpec("x", (2,)), ArraySpec("count", (), "uint8"))
    episode = make_episode(spec)
    columns = EnvAbstraction.of(spec).batch(episode)
    np.testing.assert_array_equal(columns["x"], episode.observations["x"][1:])
    np.testing.assert_array_equal(columns["previous_x"], episode.observations["x"][:-1])
    assert {values.dtype for values in columns.values()} == {np.dtype(np.float64)}
    signed = columns["count"] - columns["previous_count"]
    assert (signed < 0).any()  # unsigned numbers would have wrapped round
    view = EnvAbstraction.of(spec)
    rows = view.batch_of(
        {name: values[1:2] for name, values in episode.observations.items()},
        episode.actions[1:2],
        {name: values[2:3] for name, values in episode.observations.items()},
    )
    assert all((rows[name] == columns[name][1:2]).all() for name in columns)


def test_steps_that_lack_an_entry_say_which():
    spec = task(ArraySpec("x", (2,)), ArraySpec("friction", (1,), role="privileged"))
    episode = make_episode(spec)
    view = EnvAbstraction.of(spec)
    blind = replace(episode, observations={"x": episode.observations["x"]})
    with pytest.raises(InvalidObservation, match="have no 'friction' as a reward program expects it") as caught:
        view.batch(blind)
    assert "got:     nothing of that name" in str(caught.value) and "allowed: [3, 1]" in str(caught.value)
    with pytest.raises(InvalidObservation, match=r"got:     \[2, 2\]"):
        view.batch_of({}, np.zeros((3, 1)), {"x": np.zeros((2, 2)), "friction": np.zeros((3, 1))})


def test_meanings_are_no_part_of_the_contract():
    plain, explained = task(ArraySpec("x", (1,))), task(ArraySpec("x", (1,), meaning="of the cart"))
    assert plain == explained and plain.fingerprint == explained.fingerprint and not plain.differences(explained)
    assert "meaning" not in plain.to_json()["observation"]["arrays"][0]
    assert EnvironmentSpec.from_json(explained.to_json()).observation["x"].meaning == "of the cart"
