"""The contract between environments and policies: scaling, spaces, fingerprints, differences and messages."""

import dataclasses
import json
import re

import gymnasium
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from robo_rl.errors import InvalidAction, InvalidObservation, InvalidSetting, SpecMismatch, UnknownName
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec, specification


def arm_action(**changes):
    settings = {
        "names": ("x", "y", "gripper"),
        "low": (-0.05, -0.05, 0.0),
        "high": (0.05, 0.05, 0.08),
        "units": ("m", "m", "m"),
        "mode": "end_effector_delta",
        "control_period": 0.05,
        "frame": "base",
    }
    return ActionSpec(**settings | changes)


ARRAYS = (
    ArraySpec("joint_position", (2,), low=(-1.0, -2.0), high=(1.0, 2.0), unit="rad"),
    ArraySpec("cube_position", (3,), unit="m", frame="base", role="object"),
    ArraySpec("camera_front", (4, 4, 3), "uint8", 0, 255, role="image"),
    ArraySpec("goal_position", (3,), unit="m", frame="base", role="goal"),
    ArraySpec("friction", (1,), role="privileged"),
)
GRID = ActionSpec(("left", "right", "forward"), mode="discrete")


def arm(**changes):
    settings = {"name": "test/Arm-v0", "observation": ObservationSpec(ARRAYS), "action": arm_action(), "max_steps": 50}
    return EnvironmentSpec(**settings | changes)


def sample(spec):
    return {name: np.zeros(array.shape, array.dtype) for name, array in spec.observation.items()}


# Scaling

FINITE = st.floats(-1e6, 1e6, allow_nan=False, width=32)
ACTION_SPECS = st.lists(
    st.tuples(FINITE, st.floats(2.0**-10, 2.0**20, width=32)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    min_size=1,
    max_size=6,
).map(
    lambda limits: ActionSpec(
        tuple(f"axis_{index}" for index in range(len(limits))),
        [low for low, _ in limits],
        [high for _, high in limits],
        ["m"] * len(limits),
        "joint_position",
    )
)


@pytest.mark.slow
@hypothesis.given(ACTION_SPECS, st.data())
def test_to_normalized_inverts_to_physical(spec, data):
    action = np.array(data.draw(st.lists(st.floats(-1, 1, width=32), min_size=spec.size, max_size=spec.size)), np.float32)
    physical = spec.to_physical(action)
    width = np.subtract(spec.high, spec.low)
    lost = np.maximum(np.abs(spec.low), np.abs(spec.high)) / width * 1e-15  # where the limits lie far from zero
    assert (np.abs(spec.to_normalized(physical) - action) <= 1e-6 + lost).all()
    assert spec.to_normalized(physical).dtype == np.float32


@hypothesis.given(ACTION_SPECS)
def test_minus_one_and_one_are_the_limits(spec):
    np.testing.assert_array_equal(spec.to_physical(-np.ones(spec.size)), spec.low)
    np.testing.assert_allclose(spec.to_physical(np.ones(spec.size)), spec.high, rtol=1e-12)
    np.testing.assert_array_equal(spec.to_normalized(spec.low), -np.ones(spec.size))
    np.testing.assert_array_equal(spec.to_normalized(spec.high), np.ones(spec.size))


@hypothesis.given(ACTION_SPECS, st.data())
def test_physical_values_stay_within_the_limits(spec, data):
    action = data.draw(st.lists(st.floats(-1e30, 1e30), min_size=spec.size, max_size=spec.size))
    physical = spec.to_physical(action)
    slack = 1e-12 * np.maximum(np.abs(spec.low), np.abs(spec.high))
    assert (physical >= np.subtract(spec.low, slack)).all()
    assert (physical <= np.add(spec.high, slack)).all()


@hypothesis.given(st.sampled_from([np.nan, np.inf, -np.inf]), st.integers(0, 2))
def test_one_bad_number_is_refused_before_anything_is_clipped(bad, index):
    action = np.zeros(3, np.float32)
    action[index] = bad
    with pytest.raises(InvalidAction) as caught:
        arm_action().to_physical(action)
    assert str(caught.value).splitlines() == [
        "The action holds NaN or infinity.",
        f"  got:     {action}",
        "  allowed: finite numbers in [-1, 1]",
        "  do:      look at the policy: its weights or its input are not finite",
    ]
    with pytest.raises(InvalidAction, match="physical action is not finite"):
        arm_action().to_normalized(action)


def test_wrong_shape_names_the_axes():
    with pytest.raises(InvalidAction) as caught:
        arm_action().to_physical(np.zeros((1, 3)))
    assert "got:     [1, 3]" in str(caught.value)
    assert "allowed: [3] for ('x', 'y', 'gripper')" in str(caught.value)


def test_a_policy_cannot_change_the_action_it_gave():
    action = np.array([2.0, -2.0, 0.5], np.float32)
    arm_action().to_physical(action)
    assert action.tolist() == [2.0, -2.0, 0.5]


# Discrete actions


def test_a_batch_of_actions_scales_as_each_of_them():
    action = arm_action()
    batch = np.random.default_rng(0).uniform(-1.5, 1.5, (50, action.size)).astype(np.float32)
    scaled = action.to_physical_batch(batch, 50)
    assert scaled.tobytes() == np.stack([action.to_physical(one) for one in batch]).tobytes()
    assert batch.max() > 1.0, "and the actions given are left alone"


def test_wrong_batches_of_actions_say_which_environments():
    action = arm_action()
    batch = np.zeros((4, action.size), np.float32)
    batch[1, 0], batch[3, 2] = np.nan, np.inf
    with pytest.raises(InvalidAction, match=r"The actions of environments \[1, 3\] hold NaN or infinity") as caught:
        action.to_physical_batch(batch, 4)
    assert "do:      look at the policy" in str(caught.value)
    with pytest.raises(InvalidAction, match="The actions have the wrong shape") as caught:
        action.to_physical_batch(batch[:3], 4)
    assert f"got:     [3, {action.size}]" in str(caught.value)
    assert f"allowed: [4, {action.size}]: one row for each of 4 environments" in str(caught.value)
    huge = np.full((4, action.size), 3e38, np.float32)  # finite, though its square is not
    assert np.isfinite(action.to_physical_batch(huge, 4)).all()


def test_invalid_choice_names_its_environments():
    action = ActionSpec(("left", "right"), mode="discrete")
    assert action.validate_batch([0, 1, 1], 3).tolist() == [0, 1, 1]
    with pytest.raises(InvalidAction, match=r"Unknown discrete actions of environments \[0, 2\]"):
        action.validate_batch(np.array([2, 0, -1]), 3)
    with pytest.raises(InvalidAction, match="Unknown discrete actions of every environment"):
        action.validate_batch(np.zeros(3), 3)


def test_discrete_actions_are_one_integer():
    assert (GRID.shape, GRID.dtype, GRID.size, GRID.is_discrete) == ((), "int64", 3, True)
    assert GRID.space == gymnasium.spaces.Discrete(3)
    assert GRID.to_physical(2) == 2
    assert GRID.to_physical(np.int64(1)) == 1


@pytest.mark.parametrize("bad", [3, -1, 1.0, np.nan, True])
def test_unknown_choice_lists_the_choices(bad):
    with pytest.raises(InvalidAction, match="Unknown discrete action") as caught:
        GRID.to_physical(bad)
    assert "integer 0 to 2: ('left', 'right', 'forward')" in str(caught.value)


# Spaces


def test_spaces_derive_from_the_spec():
    spec = arm()
    assert spec.action.space == gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    space = spec.observation.space
    assert list(space.keys()) == sorted(array.name for array in ARRAYS) or list(space.keys()) == [a.name for a in ARRAYS]
    assert space["joint_position"].low.tolist() == [-1, -2]
    assert space["camera_front"] == gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8)
    assert space.contains(sample(spec))


def test_subsets_by_role_keep_their_order():
    observation = arm().observation
    assert list(observation.subset("goal", "proprioception")) == ["joint_position", "goal_position"]
    assert list(observation.vectors) == ["joint_position", "cube_position", "goal_position"]
    assert len(observation) == 5
    with pytest.raises(KeyError):
        observation["cube"]


# Observations


def test_a_right_observation_passes():
    arm().observation.validate(sample(arm()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cube_position": None}, "other keys than its spec"),
        ({"extra": np.zeros(1, np.float32)}, "other keys than its spec"),
        ({"cube_position": np.zeros(4, np.float32)}, "got:     float32[4]\n  allowed: float32[3]"),
        ({"cube_position": np.zeros(3)}, "got:     float64[3]\n  allowed: float32[3]"),
        ({"cube_position": np.array([0, np.nan, 0], np.float32)}, "Observation 'cube_position' holds NaN or infinity"),
        ({"cube_position": np.array([0, np.inf, 0], np.float32)}, "nothing is replaced silently"),
    ],
    ids=["missing", "extra", "shape", "type", "nan", "infinity"],
)
def test_a_wrong_observation_says_what_is_wrong(change, words):
    observation = {name: value for name, value in (sample(arm()) | change).items() if value is not None}
    with pytest.raises(InvalidObservation) as caught:
        arm().observation.validate(observation)
    assert words in str(caught.value)


# Wrong settings


@pytest.mark.parametrize("name", ["", "Camera", "camera.front", "camera/front", "2d", "joint position"])
def test_array_names_are_flat_snake_case(name):
    with pytest.raises(InvalidSetting, match="is not flat snake_case"):
        ArraySpec(name, (1,))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ArraySpec("x", (1,), role="camera"), "Unknown role of observation 'x'"),
        (lambda: ArraySpec("x", (2, 2), low=np.array([[0, 1], [2, 3]])), "one number or one per element"),
        (lambda: ObservationSpec((ARRAYS[0], ARRAYS[0])), "share a name"),
        (lambda: arm_action(mode="torque"), "Unknown action mode"),
        (lambda: arm_action(low=(0.0, 0.0)), "differ in length"),
        (lambda: arm_action(low=(0.05, -1.0, 0.0)), "limit is empty or not finite"),
        (lambda: arm_action(high=(np.inf, 1.0, 1.0)), "limit is empty or not finite"),
    ],
)
def test_wrong_settings_are_refused_at_once(make, words):
    with pytest.raises(InvalidSetting) as caught:
        make()
    assert words in str(caught.value)


# JSON, fingerprint, differences

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
LIMITS = st.tuples(st.one_of(st.just(-np.inf), FINITE), st.one_of(st.just(np.inf), st.floats(1e6, 1e7, width=32)))
WORDS = st.one_of(st.none(), st.text(max_size=12), st.sampled_from(["inf", "-inf", "nan"]))
ARRAY_SPECS = st.builds(
    lambda name, shape, limits, unit, frame, role: ArraySpec(name, shape, "float32", *limits, unit, frame, role),
    NAMES,
    st.lists(st.integers(1, 4), min_size=0, max_size=3),
    LIMITS,
    st.sampled_from(["1", "m", "inf", "rad/s"]),
    st.sampled_from([None, "world", "inf"]),
    st.sampled_from(["proprioception", "object", "image", "goal", "privileged"]),
)
ENVIRONMENT_SPECS = st.builds(
    EnvironmentSpec,
    st.one_of(NAMES, st.just("inf")),
    st.lists(ARRAY_SPECS, max_size=4, unique_by=lambda array: array.name).map(lambda arrays: ObservationSpec(tuple(arrays))),
    st.one_of(ACTION_SPECS, st.just(GRID), st.just(ActionSpec(("inf", "-inf"), mode="discrete"))),
    st.integers(0, 9),
    WORDS,
    st.one_of(st.none(), st.integers(1, 1000)),
    WORDS,
)


@pytest.mark.slow
@hypothesis.given(ENVIRONMENT_SPECS)
def test_json_round_trip_keeps_everything(spec):
    copy = EnvironmentSpec.from_json(json.loads(json.dumps(spec.to_json(), allow_nan=False)))
    assert copy == spec
    assert copy.fingerprint == spec.fingerprint
    assert spec.differences(copy) == []


def test_json_round_trip_of_limits_per_element():
    spec = arm(observation=ObservationSpec((ArraySpec("x", (2,), low=(-np.inf, 0.0), high=(1.0, np.inf)),)))
    assert EnvironmentSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_json_of_another_shape_is_refused():
    data = arm().to_json()
    with pytest.raises(TypeError, match="unknown_field"):
        EnvironmentSpec.from_json(data | {"unknown_field": 1})


CHANGES = {
    "unit": (lambda spec: with_array(spec, unit="mm"), ["observation.cube_position.unit: 'm' here, 'mm' there"]),
    "frame": (lambda spec: with_array(spec, frame="world"), ["observation.cube_position.frame: 'base' here, 'world' there"]),
    "shape": (lambda spec: with_array(spec, shape=(2,)), ["observation.cube_position.shape: [3] here, [2] there"]),
    "low": (lambda spec: with_array(spec, low=0.0), ["observation.cube_position.low: '-inf' here, 0.0 there"]),
    "channels": (
        lambda spec: with_array(spec, channels="bgr"),
        ["observation.cube_position.channels: 'rgb' here, 'bgr' there"],
    ),
    "history": (
        lambda spec: with_array(spec, history=3),
        ["observation.cube_position.history: 1 here, 3 there"],
    ),
    "mode": (
        lambda spec: dataclasses.replace(spec, action=arm_action(mode="joint_position")),
        ["action.mode: 'end_effector_delta' here, 'joint_position' there"],
    ),
    "rate": (
        lambda spec: dataclasses.replace(spec, action=arm_action(control_period=0.1)),
        ["action.control_period: 0.05 here, 0.1 there"],
    ),
    "max_steps": (lambda spec: dataclasses.replace(spec, max_steps=51), ["max_steps: 50 here, 51 there"]),
    "version": (lambda spec: dataclasses.replace(spec, version=1), ["version: 0 here, 1 there"]),
}


def with_array(spec, **changes):
    arrays = tuple(
        dataclasses.replace(array, **changes) if array.name == "cube_position" else array for array in spec.observation.values()
    )
    return dataclasses.replace(spec, observation=ObservationSpec(arrays))


@pytest.mark.parametrize("change", CHANGES)
def test_spec_change_alters_fingerprint_and_is_named(change):
    make, lines = CHANGES[change]
    assert arm().differences(make(arm())) == lines
    assert make(arm()).fingerprint != arm().fingerprint


def test_words_are_no_part_of_the_contract():
    other = arm(instruction="pick up the cube", success_rule="the cube is 4 cm above the table")
    assert other.fingerprint == arm().fingerprint
    assert arm().differences(other) == []


def test_order_of_arrays_is_part_of_the_contract():
    turned = arm(observation=ObservationSpec(ARRAYS[::-1]))
    assert turned.fingerprint != arm().fingerprint
    assert len(arm().differences(turned)) == 1
    assert arm().differences(turned)[0].startswith("observation order: ['joint_position', ")


FINGERPRINT = "f3b056ea43072fd1"


def test_fingerprint_is_stable_between_versions_of_the_workbench():
    """A changed value means that every stored episode and checkpoint is refused: then say so in the changelog."""
    assert arm().fingerprint == FINGERPRINT


def test_policy_needs_visible_fields_but_not_privileged_ones():
    bare, blind = (arm(observation=ObservationSpec(arrays)) for arrays in (ARRAYS[:-1], ARRAYS[1:]))
    arm().require_interface(bare, what="told")
    bare.require_interface(arm(), what="told")
    with pytest.raises(SpecMismatch, match="joint_position"):
        arm().require_interface(blind, what="told")


def test_policy_acts_where_there_is_more_than_it_reads():
    reads = arm().without_pictures()
    assert list(reads.observation) == ["joint_position", "cube_position", "goal_position", "friction"]
    assert arm().without_pictures(but=["camera_front"]) == arm()
    further = ArraySpec("torque", (7,), unit="N*m")
    reads.require_interface(arm(observation=ObservationSpec((further, *ARRAYS))), what="told")
    with pytest.raises(SpecMismatch, match=r"1 field\(s\) differ(.|\n)*cube_position.unit: 'm' here, 'mm' there"):
        reads.require_interface(with_array(arm(), unit="mm"), what="told")
    with pytest.raises(SpecMismatch, match="camera_front: '\\(absent\\)' here"):
        reads.require_interface(arm(), what="told", exactly=True)
    with pytest.raises(SpecMismatch, match="camera_front"):
        arm().require_interface(reads, what="told")


@pytest.mark.parametrize(
    ("period", "told"),
    [
        (0.15, "--environment.arguments.action_repeat 3, or ?action_repeat=3 behind the address of a robot"),
        (0.07, "the control rate of the training (action_repeat): a policy"),
        (0.025, "the control rate of the training (action_repeat): a policy"),
    ],
)
def test_other_control_rate_is_told_with_its_action_repeat(period, told):
    trained = arm(action=arm_action(control_period=period))
    with pytest.raises(SpecMismatch, match=re.escape(f"do:      make the environment with {told}")):
        trained.require_interface(arm(), what="The policy and the robot disagree")


def test_require_lists_every_difference():
    other = with_array(arm(max_steps=51), unit="mm")
    with pytest.raises(SpecMismatch) as caught:
        arm().require(other, what="The checkpoint and the environment disagree")
    assert str(caught.value).splitlines() == [
        "The checkpoint and the environment disagree: 2 field(s) differ.",
        "    - observation.cube_position.unit: 'm' here, 'mm' there",
        "    - max_steps: 50 here, 51 there",
        "  do:      use the environment of the checkpoint, or train again on this one",
    ]
    assert len(caught.value.differences) == 2
    arm().require(arm(), what="The checkpoint and the environment disagree")


def test_a_missing_array_is_named_once():
    less = arm(observation=ObservationSpec(ARRAYS[:-1]))
    lines = arm().differences(less)
    assert [line.partition(":")[0] for line in lines] == ["observation.friction", "observation order"]
    assert lines[0].endswith("there: it is absent") or "'(absent)' there" in lines[0]


def test_limits_are_plain_numbers_whatever_they_came_as():
    spec = arm_action(low=np.array([-0.05, -0.05, 0.0]))
    assert spec == arm_action()
    assert all(type(limit) is float for limit in spec.low)
    assert ArraySpec("x", (2,), low=np.zeros(2)).low == 0.0
    assert ArraySpec("x", (2,), low=np.array([0, 1])).low == (0.0, 1.0)


# Looking a spec up


class Plain(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Box(0, 1, (1,))


def test_specification_looks_through_wrappers():
    environment = Plain()
    environment.environment_spec = arm()
    assert specification(gymnasium.wrappers.TimeLimit(environment, 5)) is environment.environment_spec


def test_specification_of_a_foreign_environment_says_what_to_do():
    with pytest.raises(UnknownName) as caught:
        specification(Plain())
    assert "'environment_spec'" in str(caught.value)
    assert "do:      make it with robo_rl.make_environment, by its name or class" in str(caught.value)
