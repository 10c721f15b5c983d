"""Domain randomisation of the arm, and tasks whose objects are seen in pictures alone."""

from __future__ import annotations

import numpy as np
import pytest

from robo_policies.learners.bc import BCConfig
from robo_policies.learners.offline import OfflineNetwork
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rollout.episode import rollout as run_episode
from robo_sims.arm.randomization import PRESETS, Randomization

SIZE = 32
OBJECTS = {"object_position", "object_from_gripper", "object_turn"}


def make(name="ArmPick-v0", **arguments):
    return make_environment(f"robo/{name}", image_size=SIZE, **arguments)


def same(first, second) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


# ------------------------------------------------------------------------------------------------ pictures in place of places
@pytest.mark.parametrize(("sees", "cameras"), [("front", ["front"]), ("wrist", ["wrist"]), ("both", ["front", "wrist"])])
def test_seeing_hides_objects_from_the_policy(sees, cameras):
    environment = make(sees=sees)
    spec = environment.environment_spec
    assert list(spec.observation.subset("image")) == [f"camera_{name}" for name in cameras]
    assert set(spec.observation.subset("privileged")) >= OBJECTS
    assert not spec.observation.subset("object") and not OBJECTS & set(spec.observation.vectors)
    policy = BCConfig(network=OfflineNetwork(hidden=(8,), convolutions=(4,))).build(spec, 0).policy
    observation = environment.reset(seed=0)[0]
    blind = observation | {name: np.full_like(observation[name], 7.0) for name in OBJECTS}
    action = policy.act(observation, deterministic=True)
    np.testing.assert_array_equal(policy.act(blind, deterministic=True), action)
    dark = observation | {f"camera_{name}": np.zeros_like(observation[f"camera_{name}"]) for name in cameras}
    assert not np.array_equal(policy.act(dark, deterministic=True), action)


def test_seeing_hides_the_goal():
    assert not make("ArmReach-v0", sees="front").environment_spec.observation.subset("goal")


def test_other_cameras_are_added_behind_those_seen():
    spec = make(sees="wrist", cameras=["front", "wrist"]).environment_spec
    assert list(spec.observation.subset("image")) == ["camera_wrist", "camera_front"]


def test_unknown_sees_is_one_error():
    with pytest.raises(UnknownName, match="value of sees"):
        make(sees="back")


@pytest.mark.slow
def test_seeing_changes_neither_task_nor_batch():
    """The single environment without cameras, the one that sees and a batch of them agree to the bit."""
    plain, single = make(), make(sees="front")
    batch = make_vector_environment("robo/ArmPick-v0", 2, sees="front", image_size=SIZE)
    assert batch.environment_spec == single.environment_spec
    observations = plain.reset(seed=5)[0], single.reset(seed=5)[0], batch.reset(seed=[5, 6])[0]
    for _ in range(3):
        for name, values in observations[0].items():
            np.testing.assert_array_equal(values, observations[1][name])
        for name, values in observations[1].items():
            np.testing.assert_array_equal(values, observations[2][name][0])
        action = plain.action_space.sample()
        observations = plain.step(action)[0], single.step(action)[0], batch.step(np.stack([action, action]))[0]


# ------------------------------------------------------------------------------------------------ randomisation
@pytest.mark.slow
def test_randomization_follows_from_the_seed():
    environment = make(sees="both", randomization="all")
    first, other, again = (environment.reset(seed=seed)[0] for seed in (3, 4, 3))
    assert same(first, again) and not same(first, other)
    episodes = [run_episode(environment, environment.unwrapped.scripted_policy(seed=0), seed=3) for _ in range(2)]
    np.testing.assert_array_equal(episodes[0].observations["joint_position"], episodes[1].observations["joint_position"])


@pytest.mark.slow
def test_randomization_leaves_the_task_of_a_seed_alone():
    """Without noise the places are those of the plain task; pictures differ."""
    plain = make(sees="front").reset(seed=1)[0]
    drawn = make(sees="front", randomization={"colours": 0.3, "light": 0.5, "camera_position": 0.05}).reset(seed=1)[0]
    different = [name for name in plain if not np.array_equal(plain[name], drawn[name])]
    assert different == ["camera_front"]


@pytest.mark.slow
def test_randomization_is_off_in_one_episode():
    environment, plain = make(sees="both", randomization="all"), make(sees="both")
    environment.reset(seed=9)
    observation, info = environment.reset(seed=0, options={"randomization": False})
    assert same(observation, plain.reset(seed=0)[0]) and info["metadata"] == {"randomization": {}}
    action = plain.action_space.sample()
    assert same(environment.step(action)[0], plain.step(action)[0])
    assert environment.reset(seed=0)[1]["metadata"]["randomization"]


RANGES = {
    "colours": ("geom_rgba", "mat_rgba"),
    "light": ("light_diffuse", "light_dir"),
    "camera_position": ("cam_pos",),
    "camera_rotation": ("cam_quat",),
    "camera_fov": ("cam_fovy",),
    "friction": ("geom_friction",),
    "mass": ("body_mass", "body_inertia"),
}
ALL_FIELDS = [field for names in RANGES.values() for field in names]


@pytest.mark.parametrize("name", RANGES)
def test_each_range_changes_its_own_part_alone(name):
    environment = make(randomization={name: 0.2})
    model = environment.unwrapped.physics.model
    before = {field: getattr(model, field).copy() for field in ALL_FIELDS}
    environment.reset(seed=0)
    for field in ALL_FIELDS:
        assert np.allclose(getattr(model, field), before[field], atol=1e-12) == (field not in RANGES[name]), field
    assert np.abs(model.light_diffuse / before["light_diffuse"] - 1).max() <= 0.2
    assert np.abs(model.body_mass - before["body_mass"]).max() <= 0.2 * before["body_mass"].max()
    np.testing.assert_array_equal(model.cam_pos[0], before["cam_pos"][0])  # the camera of people
    assert model.camera(0).name == "overview"


@pytest.mark.slow
def test_patterns_lie_on_the_table_in_their_share_of_episodes():
    environment = make(sees="front", randomization={"textures": 0.5})
    found = [environment.reset(seed=seed)[1]["metadata"]["randomization"]["pattern"] for seed in range(40)]
    assert 10 <= sum(number is not None for number in found) <= 30 and len(set(found)) > 4
    pictures = {environment.reset(seed=seed)[0]["camera_front"][-1, 0].tobytes() for seed in range(12)}
    assert len(pictures) > 2


@pytest.mark.slow
def test_noise_has_the_stated_deviation():
    environment = make(sees="front", randomization={"noise": 1.0})
    plain = make(sees="front").reset(seed=0)[0]
    level = environment.reset(seed=0)[1]["metadata"]["randomization"]["noise"]
    samples = [environment.unwrapped._observe() for _ in range(200)]
    for name, deviation in {"joint_position": 0.001, "end_effector_position": 0.001, "camera_front": 4.0}.items():
        errors = np.stack([sample[name] for sample in samples]).astype(float) - plain[name]
        assert np.std(errors) == pytest.approx(level * deviation, rel=0.15), name
    assert np.array_equal(samples[0]["object_position"], plain["object_position"])


def test_latency_delays_a_command():
    """After one control period the joints have followed the command for a shorter time."""
    moved = []
    for ranges in (None, {"latency": 0.04}):
        environment = make(control="joint_position", randomization=ranges)
        observation, info = environment.reset(seed=2)
        action = np.zeros(environment.action_space.shape, np.float32)
        after = environment.step(action)[0]
        moved.append(np.abs(after["joint_position"] - observation["joint_position"]).max())
    assert info["metadata"]["randomization"]["latency"] > 0.005
    assert 0 < moved[1] < 0.95 * moved[0]


def test_values_are_in_the_metadata_of_a_recorded_episode():
    environment = make(randomization="physical")
    episode = run_episode(environment, environment.unwrapped.scripted_policy(seed=0), seed=4)
    values = episode.metadata["randomization"]
    assert 0.7 <= values["friction"] <= 1.3 and 0 <= values["latency"] <= 0.03


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("task", ["ArmReach-v0", "ArmPush-v0", "ArmPick-v0", "ArmPegInsert-v0"])
def test_experts_solve_randomized_tasks(task, preset):
    environment = make(task, randomization=preset)
    episodes = [run_episode(environment, environment.unwrapped.scripted_policy(seed=seed), seed=seed) for seed in range(3)]
    assert all(episode.success for episode in episodes)


@pytest.mark.parametrize(
    ("setting", "error", "text"),
    [
        ("everything", UnknownName, "preset of randomization"),
        ({"color": 0.1}, UnknownName, "range of randomization"),
        ({"colours": float("nan")}, InvalidSetting, "randomization.colours is out of range"),
        ({"colours": -0.1}, InvalidSetting, "0 to 1"),
        ({"mass": 1.0}, InvalidSetting, "below 1"),
        ({"latency": 0.05}, InvalidSetting, "0 to 0.048"),
        ({"noise": True}, InvalidSetting, "randomization.noise"),
        ([0.1], InvalidSetting, "no mapping"),
    ],
)
def test_wrong_randomization_is_one_error(setting, error, text):
    with pytest.raises(error, match=text):
        make(randomization=setting)


def test_ranges_of_zero_randomize_nothing():
    assert Randomization.of({"colours": 0.0}) is None and Randomization.of(None) is None


@pytest.mark.slow
def test_randomized_environments_side_by_side_equal_single_ones():
    arguments = {"sees": "front", "image_size": SIZE, "randomization": "all"}
    several = make_vector_environment("robo/ArmPick-v0", 2, **arguments).reset(seed=[3, 4])[0]
    for index, seed in enumerate((3, 4)):
        single = make_environment("robo/ArmPick-v0", **arguments).reset(seed=seed)[0]
        assert same(single, {name: values[index] for name, values in several.items()})
