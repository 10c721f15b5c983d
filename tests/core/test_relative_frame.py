"""Observations from where the episode began, actions along the axes of the hand; compared with rotations computed by hand."""

import gymnasium
import numpy as np
import pytest

from factories import make_spec
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.relative_frame import RelativeFrame
from robo_rl.errors import InvalidSetting, SpecMismatch
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import ActionSpec, ArraySpec, ObservationSpec

HALF = np.sqrt(0.5)
DOWN = (0.0, 1.0, 0.0, 0.0)  # half a turn about x: the hand's y is -y of the base, its z is -z
LEFT = (HALF, 0.0, 0.0, HALF)  # a quarter turn about z: the hand's x is y of the base, its y is -x


class Hand(gymnasium.Env):
    """Shows poses as they are listed, and remembers what it was told."""

    def __init__(self, *poses, low=(-0.01, -0.01, -0.01, -0.1)):
        arrays = (
            ArraySpec("end_effector_position", (3,), unit="m", frame="base"),
            ArraySpec("end_effector_quaternion", (4,), unit="1", frame="base"),
            ArraySpec("goal_position", (3,), unit="m", frame="base", role="goal"),
            ArraySpec("goal_from_gripper", (3,), unit="m", frame="base", role="goal"),
            ArraySpec("joint_position", (2,), unit="rad"),
        )
        action = ActionSpec(
            ("dx", "dy", "dz", "turn"),
            low,
            (0.01, 0.01, 0.01, 0.1),
            ("m", "m", "m", "rad"),
            "end_effector_delta",
            0.1,
            frame="base",
        )
        self.environment_spec = make_spec("a/Hand", *arrays, action=action)
        self.observation_space, self.action_space = ObservationSpec(arrays).space, action.space
        self._poses, self.told = list(poses), []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        self.told.append(action)
        return self._seen(), 0.0, False, False, {"executed_action": np.asarray(action) * 0.5}

    def _seen(self):
        position, quaternion = self._poses.pop(0)
        return {
            "end_effector_position": np.array(position, np.float32),
            "end_effector_quaternion": np.array(quaternion, np.float32),
            "goal_position": np.array([0.5, 0.2, 0.1], np.float32),
            "goal_from_gripper": np.array([0.5, 0.2, 0.1], np.float32) - np.array(position, np.float32),
            "joint_position": np.array([1.0, 2.0], np.float32),
        }


def test_what_is_observed_is_relative_to_where_the_episode_began():
    environment = RelativeFrame(Hand(((0.4, 0.1, 0.3), LEFT), ((0.4, 0.2, 0.3), DOWN)))
    first, _ = environment.reset()
    np.testing.assert_allclose(first["end_effector_position"], [0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(first["end_effector_quaternion"], [1, 0, 0, 0], atol=1e-6)
    # goal - start = (0.1, 0.1, -0.2); with x' = y, y' = -x: (0.1, -0.1, -0.2)
    np.testing.assert_allclose(first["goal_position"], [0.1, -0.1, -0.2], atol=1e-6)
    np.testing.assert_allclose(first["goal_from_gripper"], [0.1, -0.1, -0.2], atol=1e-6)
    second = environment.step(np.zeros(4, np.float32))[0]
    np.testing.assert_allclose(second["end_effector_position"], [0.1, 0, 0], atol=1e-6)  # it went along y, which is x'
    # conj(LEFT) * DOWN = (h, 0, 0, -h)(0, 1, 0, 0) = (0, h, -h, 0)
    assert np.abs(np.abs(second["end_effector_quaternion"]) - [0, HALF, HALF, 0]).max() < 1e-3
    assert second["end_effector_quaternion"][1] * second["end_effector_quaternion"][2] < 0
    # goal - hand = (0.1, 0, -0.2), seen from a hand that points down: y and z change their sign
    np.testing.assert_allclose(second["goal_from_gripper"], [0.1, 0, 0.2], atol=1e-6)
    np.testing.assert_allclose(second["goal_position"], [0.1, -0.1, -0.2], atol=1e-6)
    np.testing.assert_allclose(second["joint_position"], [1, 2])


@pytest.mark.parametrize(
    ("quaternion", "told"),
    [(DOWN, [0.2, -0.4, -0.6, -0.8]), (LEFT, [-0.4, 0.2, 0.6, 0.8])],
)
def test_an_action_is_along_the_axes_of_the_hand_as_it_is_now(quaternion, told):
    hand = Hand(((0, 0, 0), (1, 0, 0, 0)), ((0, 0, 0), quaternion), ((0, 0, 0), quaternion))
    environment = RelativeFrame(hand)
    environment.reset()
    environment.step(np.zeros(4, np.float32))
    info = environment.step(np.array([0.2, 0.4, 0.6, 0.8], np.float32))[-1]
    np.testing.assert_allclose(hand.told[-1], told, atol=1e-6)
    np.testing.assert_allclose(info["executed_action"], [0.1, 0.2, 0.3, 0.4], atol=1e-6)  # half of it, back in the hand's frame


def test_spec_rejects_policy_of_another_frame():
    base, relative = make_environment("robo/ArmReach-v0"), make_environment("robo/ArmReach-v0", relative_frame=True)
    told = "\n".join(relative.get_wrapper_attr("environment_spec").differences(base.environment_spec))
    assert "action.frame: 'end_effector' here, 'base' there" in told
    assert "end_effector_position" in told and "'start'" in told and "goal_from_gripper" in told
    with pytest.raises(SpecMismatch, match="frame"):
        evaluate(base.scripted_policy(0), relative, seeds=range(1))


@pytest.mark.parametrize("name", ["robo/ArmPick-v0", "robo/ArmPegInsert-v0"])
def test_the_expert_succeeds_in_the_frame_of_the_hand(name):
    environment = make_environment(name, relative_frame=True)
    episodes = [rollout(environment, environment.scripted_policy(seed), seed=seed) for seed in range(2)]
    assert [episode.success for episode in episodes] == [True, True]
    np.testing.assert_allclose([episode.observations["end_effector_position"][0] for episode in episodes], 0, atol=1e-6)


def test_a_place_further_along_the_table_looks_the_same():
    seen = []
    for shift in ([0, 0, 0], [0.05, -0.1, 0]):
        poses = [(np.array([0.4, 0.1, 0.3]) + shift, LEFT), (np.array([0.42, 0.1, 0.28]) + shift, DOWN)]
        environment = RelativeFrame(Hand(*poses))
        environment.reset()
        seen.append(environment.step(np.zeros(4, np.float32))[0]["end_effector_position"])
    np.testing.assert_allclose(*seen, atol=1e-6)


def test_the_same_frame_over_a_robot():
    environment = make_environment("robot/Fake-v0", relative_frame=True)
    observation, _ = environment.reset(seed=0)
    start = environment.seen["end_effector_position"].copy()
    observation, *_, info = environment.step(np.array([0, 0, 0.4, 0, 1], np.float32))  # out of a hand that points down
    assert environment.seen["end_effector_position"][2] < start[2] and observation["end_effector_position"][2] > 0
    np.testing.assert_allclose(info["executed_action"], [0, 0, 0.4, 0, 1], atol=1e-5)


def test_many_at_once_are_stepped_one_after_the_other():
    environments = make_vector_environment("robo/ArmReach-v0", 2, relative_frame=True)
    assert environments.environment_spec.action.frame == "end_effector"
    environments.close()


def test_an_environment_without_such_a_hand_is_refused():
    with pytest.raises(InvalidSetting, match="no frame of a hand"):
        make_environment("robo/ArmReach-v0", control="joint_position", relative_frame=True)
    with pytest.raises(InvalidSetting, match="other limits"):
        RelativeFrame(Hand(low=(-0.02, -0.01, -0.01, -0.1)))
