"""Environment of a task with an arm of anybody's: its owner writes the objects, their places, and when the task is done.

Observations of the arm, actions and control are those of robots (robo_real.arm_spec): a policy trained here meets the same spec
on the arm's twin and on the arm.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.kinematics import Quaternion
from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation, ObservationSpec
from robo_rl.types import StateDict
from robo_sims.arm.realtime_arm import TICK
from robo_sims.cameras import CameraObservations, free_camera
from robo_sims.own_arm.model import ArmModel, OwnArm
from robo_sims.own_arm.realtime import RealtimeOwnArm
from robo_sims.simulation import Arrays, Simulation, SimulationEnvironment, SimulationStep, overview

CONTROL = "end_effector_delta"
OVERVIEW = "overview"
"""Name of the scene's camera for films; a scene without it is filmed by a free camera."""


class OwnArmTask(SimulationEnvironment):
    """Task of an arm's owner: a subclass is an environment.

    The owner writes the attributes and methods up to `expert`; `self.arm`, `self.model` and `self.data` are there in all
    of them but `build`.
    """

    described: ClassVar[ArmModel]
    """Description of the task's arm."""
    instruction: ClassVar[str]
    """The task in words."""
    success_rule: ClassVar[str]
    """When it is done, in words."""
    max_steps: ClassVar[int] = 200
    """[control periods] time limit"""
    objects: ClassVar[tuple[ArraySpec, ...]] = ()
    """Entries of the observation besides those of the arm."""
    box: ClassVar[tuple[tuple[float, float, float], tuple[float, float, float]]]
    """[m] lowest and highest position of the hand, as `box_low` and `box_high` of the arm's limits"""
    period: ClassVar[float] = 0.05
    """Control period: time [s] between two actions."""
    step_size: ClassVar[tuple[float, float]] = (0.015, 0.12)
    """Largest displacement [m] along each axis and largest turn [rad] of the hand in one control period, as in
    `robo_real.arm_spec`."""

    def build(self, scene: mujoco.MjSpec) -> None:
        """Override this to add a table, objects, lights and cameras to the model; by default nothing is added.

        Films are drawn with the camera named "overview".
        """

    @abstractmethod
    def place(self, random: np.random.Generator) -> None:
        """Set the objects' positions at the beginning of an episode; the arm is in its home posture, its fingers are open."""

    def observe(self) -> Mapping[str, npt.ArrayLike]:
        """Return values of the observation's entries in `objects`, which describe what is around the arm; {} by default."""
        return {}

    @abstractmethod
    def is_success(self) -> bool:
        """Return whether the task is done; it ends the episode."""

    def reward(self) -> float:
        """Return the reward of the present state; by default 1 at success."""
        return float(self.is_success())

    def expert(self, observation: Observation) -> npt.ArrayLike:
        """Return the scripted action (dx, dy, dz [m], turn [rad], opening [m]); the default says that there is none."""
        raise InvalidSetting(f"{type(self).__name__} has no scripted expert.", fix="write its method expert(observation)")

    def __init__(
        self,
        *,
        action_repeat: int = 1,
        max_steps: int | None = None,
        cameras: Sequence[str] = (),
        image_size: int = 84,
        control: str = CONTROL,
        render_mode: str | None = None,
        detail: str = "plain",
    ) -> None:
        """Compile the scene.

        Args:
            action_repeat: Control periods per action; a displacement is divided among them.
            max_steps: [actions] Time limit; None for the task's own.
            cameras: Cameras of the scene whose pictures are observed, as `camera_<name>`.
            image_size: [pixel] Height and width of these pictures.
            control: Control mode, "end_effector_delta".
            render_mode: None, or "rgb_array", which draws on `render`.
            detail: Quality of `render`, "plain" or "pretty".
        """
        if not isinstance(action_repeat, int) or action_repeat < 1:
            raise InvalidSetting("action_repeat is out of range.", got=action_repeat, allowed="integer from 1")
        if control != CONTROL:
            raise InvalidSetting("This control mode is none of an own arm.", got=control, allowed=CONTROL)
        scene = self.described.scene()
        self.build(scene)
        self.arm = OwnArm(self.described, scene)
        self._drawn = (tuple(cameras), image_size)
        simulation = OwnArmSimulation(self, action_repeat, max_steps, detail)
        super().__init__(simulation, cameras=cameras, image_size=image_size, render_mode=render_mode)
        if type(self).expert is not OwnArmTask.expert:
            self.scripted_policy = self._scripted

    def make_realtime_arm(self) -> RealtimeOwnArm:
        """Return this task's arm as a stand-in for a real one, with the cameras that are observed."""
        return RealtimeOwnArm(self, lambda: CameraObservations(self.model, *self._drawn))

    def _scripted(self, seed: int, noise: float = 0.0) -> ScriptedExpert:
        return ScriptedExpert(self, seed, noise)


class OwnArmSimulation(Simulation):
    """Simulation of an owner's task."""

    def __init__(self, task: OwnArmTask, repeat: int, max_steps: int | None, detail: str) -> None:
        self._task, self._arm, self._repeat = task, task.arm, repeat
        self._overview, self._random = overview(detail), np.random.default_rng()
        self.substeps = substeps(task.period, self._arm.model.opt.timestep)
        """Steps of the physics in a control period."""
        joints, width = len(task.described.joints), task.described.gripper.width
        limit = -(-task.max_steps // repeat) if max_steps is None else max_steps
        kind = type(task)
        self.spec = EnvironmentSpec(
            f"{kind.__module__}:{kind.__qualname__}",
            ObservationSpec((*arm_arrays(joints), *task.objects)),
            action_spec(task.step_size, width, task.period, repeat),
            instruction=task.instruction,
            max_steps=limit,
            success_rule=task.success_rule,
        )

    @property
    @override
    def mujoco(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        return self._arm.model, self._arm.data

    @override
    def reset(self, seed: int | None) -> Arrays:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.begin(self._random)
        return self.observation()

    def begin(self, random: np.random.Generator) -> None:
        """Set arm and objects to the beginning of an episode."""
        self._arm.reset(self._task.described.gripper.width)
        self._task.place(random)
        mujoco.mj_forward(self._arm.model, self._arm.data)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Move the hand from where it is measured, so that no hidden target builds up."""
        arm, task = self._arm, self._task
        share, (low, high) = 1 / self._repeat, np.array(task.box)
        for _ in range(self._repeat):
            place, direction, _ = arm.hand()
            target = np.clip(place + share * action[:3], low, high)
            arm.servo(arm.joint_targets(target, pointing_down(heading(direction) + share * float(action[3]))))
            arm.open_to(float(action[4]))
            arm.advance(self.substeps)
            success = bool(task.is_success())
            if success:
                break
        return SimulationStep(self.observation(), float(task.reward()), terminated=success, success=success)

    def observation(self) -> Arrays:
        """Return a new observation."""
        arm = self._arm
        place, direction, _ = arm.hand()
        measured = {
            "joint_position": arm.joint_position,
            "joint_velocity": arm.joint_velocity,
            "gripper_opening": [arm.opening],
            "end_effector_position": place,
            "end_effector_quaternion": np.array(direction) * (1.0 if direction[1] >= 0 else -1.0),
        }
        return {name: np.array(value, np.float32) for name, value in {**measured, **self._task.observe()}.items()}

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        cameras = [self._arm.model.camera(number).name for number in range(self._arm.model.ncam)]
        camera = OVERVIEW if OVERVIEW in cameras else free_camera(self._arm.data, {})
        return self._overview.picture(self._arm.data, camera)

    @override
    def close(self) -> None:
        self._overview.close()


class ScriptedExpert(Stateful):
    """Scripted expert of a task, with Gaussian noise on each element of its actions."""

    def __init__(self, task: OwnArmTask, seed: int, noise: float) -> None:
        self.environment_spec = task.environment_spec
        self._expert, self._noise, self._random = task.expert, noise, np.random.default_rng(seed)

    def reset(self) -> None:
        """Do nothing: an expert acts on the observation alone."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> npt.NDArray[np.float32]:
        """Return an action (5,) in [-1, 1], with noise unless `deterministic`."""
        spec = self.environment_spec.action
        wanted = np.clip(np.asarray(self._expert(observation), np.float64), spec.low, spec.high)
        action: npt.NDArray[Any] = spec.to_normalized(wanted)
        if self._noise > 0.0 and not deterministic:
            action = action + self._random.normal(0.0, self._noise, action.shape)
        clipped: npt.NDArray[np.float32] = np.clip(action, -1.0, 1.0).astype(np.float32)
        return clipped

    @override
    def state_dict(self) -> StateDict:
        return {"random": self._random.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._random.bit_generator.state = state["random"]


def substeps(period: float, timestep: float) -> int:
    """Return the steps of the physics in a control period [s]; raises InvalidSetting unless they fill it, and a twin's tick."""
    for duration in (period, TICK):
        if abs(duration / timestep - round(duration / timestep)) > 1e-6:
            allowed = f"a part of {period:g} s, the control period, and of {TICK:g} s, the tick of a twin"
            fix = "scene.option.timestep = 0.002 in build()"
            raise InvalidSetting("The time step of the physics does not fit.", got=f"{timestep:g} s", allowed=allowed, fix=fix)
    return round(period / timestep)


def arm_arrays(joints: int) -> tuple[ArraySpec, ...]:
    """Return the entries that every arm measures, as robo_real.arm_spec has them (a test compares them)."""
    return (
        ArraySpec("joint_position", (joints,), unit="rad"),
        ArraySpec("joint_velocity", (joints,), unit="rad/s"),
        ArraySpec("gripper_opening", (1,), unit="m"),
        ArraySpec("end_effector_position", (3,), unit="m", frame="base"),
        ArraySpec("end_effector_quaternion", (4,), unit="1", frame="base"),
    )


def action_spec(step_size: tuple[float, float], width: float, period: float, repeat: int) -> ActionSpec:
    """Return the spec of displacements of a hand that points down, and an opening, for `repeat` control periods."""
    most = repeat * np.array([*(step_size[0],) * 3, step_size[1]])
    return ActionSpec(
        names=("dx", "dy", "dz", "turn", "gripper_opening"),
        low=(*(-most).tolist(), 0.0),
        high=(*most.tolist(), width),
        units=("m", "m", "m", "rad", "m"),
        mode="end_effector_delta",
        control_period=round(period * repeat, 9),
        frame="base",
    )


def heading(quaternion: Quaternion) -> float:
    """Return the angle [rad] of a hand's x axis about the vertical."""
    w, x, y, z = quaternion
    return math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))


def pointing_down(yaw: float) -> Quaternion:
    """Return the orientation (w, x, y, z) of a hand that points straight down with a heading [rad]."""
    return (0.0, math.cos(yaw / 2), math.sin(yaw / 2), 0.0)
