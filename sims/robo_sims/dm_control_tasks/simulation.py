"""Single environments of the dm_control suite and of dm_control.manipulation.

Units follow the observation methods of each domain (https://arxiv.org/abs/2006.12983 and the source); entries with several
units have the unit "mixed". Task names are "cheetah-run" for the suite and "manipulation-reach_site_features".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from dm_control import manipulation, suite
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import ActionMode, ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec, Role
from robo_sims.simulation import Arrays, Simulation, SimulationStep, actuator_names, overview

MANIPULATION = "manipulation-"
_UNITS: dict[str, tuple[str, str | None]] = {
    # name, or domain.name for a domain that differs: (unit, frame)
    "orientation": ("1", "world"),
    "orientations": ("1", "world"),
    "upright": ("1", "world"),
    "torso_upright": ("1", "world"),
    "torso_vertical": ("1", "world"),
    "z_projection": ("1", "world"),
    "joint_angles": ("rad", None),
    "joints": ("rad", None),
    "joint_velocites": ("rad/s", None),  # spelt so by the source
    "arm_pos": ("1", None),  # sine and cosine of each joint
    "arm_vel": ("rad/s", None),
    "touch": ("1", None),  # log(1 + force)
    "height": ("m", "world"),
    "head_height": ("m", "world"),
    "torso_pelvis_height": ("m", "world"),
    "extremities": ("m", "ego"),
    "com_velocity": ("m/s", "world"),
    "torso_com_velocity": ("m/s", "ego"),
    "torso_velocity": ("m/s", "ego"),
    "foot_forces": ("N", None),
    "force_torque": ("1", "ego"),  # arcsinh
    "touch_sensors": ("N", None),
    "actuator_state": ("1", None),
    "rangefinder": ("1", "ego"),  # tanh
    "target": ("m", "ego"),
    "to_target": ("m", "ego"),
    "target_position": ("m", "ego"),
    "origin": ("m", "ego"),
    "target_pos": ("mixed", "world"),
    "hand_pos": ("mixed", "world"),
    "dist_to_target": ("m", None),
    "acrobot.velocity": ("rad/s", None),
    "pendulum.velocity": ("rad/s", None),
    "finger.velocity": ("rad/s", None),
    "reacher.position": ("rad", None),
    "reacher.velocity": ("rad/s", None),
    "reacher.to_target": ("m", "world"),
    "finger.target_position": ("m", "world"),
    "ball_in_cup.position": ("m", "world"),
    "ball_in_cup.velocity": ("m/s", "world"),
    "point_mass.position": ("m", "world"),
    "point_mass.velocity": ("m/s", "world"),
    "stacker.target_pos": ("m", "world"),
    # manipulation, by the last part of the name
    "joints_pos": ("1", None),  # sine and cosine of each joint
    "joints_vel": ("rad/s", None),
    "joints_torque": ("N m", None),
    "jaco_hand_joints_pos": ("rad", None),
    "pinch_site_pos": ("m", "world"),
    "pinch_site_rmat": ("1", "world"),
    "angular_velocity": ("rad/s", "world"),
    "linear_velocity": ("m/s", "world"),
    "manipulation.orientation": ("1", "world"),  # quaternion (w, x, y, z)
    "manipulation.position": ("m", "world"),
    "manipulation.target_position": ("m", "world"),
    "desired_order": ("1", None),
}
_GOALS = ("target", "dist_to_target", "to_target", "desired_order", "pedestal")
_OBJECTS = ("ball_", "object_", "box_", "duplo")


class DMControlSimulation(Simulation):
    """One task of dm_control; a reset with a seed determines the episode."""

    def __init__(self, task: str, action_repeat: int = 1, hides_state: bool = False, detail: str = "plain") -> None:
        """Make the task.

        Args:
            task: Name, such as cheetah-run or manipulation-reach_site_features.
            action_repeat: Number of dm_control's control steps per action; their rewards are summed.
            hides_state: True to make all vectors privileged, so that policies see only the pictures of `cameras`.
            detail: Quality of `render`, as in robo_sims.cameras.
        """
        self._domain, _, name = task.partition("-")
        self._environment: Any = _load(self._domain, name)
        limit = _max_steps(self._environment)
        if not 1 <= action_repeat <= limit:
            raise InvalidSetting("action_repeat is out of range.", got=action_repeat, allowed=f"1 to {limit}")
        self.action_repeat = action_repeat
        self._overview = overview(detail)
        self._random: np.random.RandomState = _random_state(self._environment)
        first = self._environment.reset().observation
        self._names = {key: _flat_name(key) for key in first}
        self.spec = EnvironmentSpec(
            f"dm_control/{task}",
            _observation_spec(self._domain, self.flat(first), hides_state),
            self._action_spec(),
            instruction=task.removeprefix(MANIPULATION).removesuffix("_features").replace("-", " ").replace("_", " "),
            max_steps=limit // action_repeat,
        )
        self._random.seed(None)  # the model has a fixed seed; episodes without a seed must differ

    @property
    @override
    def mujoco(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """MuJoCo model and data; manipulation compiles new ones for every episode."""
        physics = self._environment.physics
        return physics.model.ptr, physics.data.ptr

    @property
    def source(self) -> Any:
        """The environment of dm_control itself."""
        return self._environment

    @override
    def reset(self, seed: int | None) -> Arrays:
        if seed is not None:
            self._random.seed(seed)
        order = getattr(self._environment.task, "_initial_order", None)
        if order is not None:  # the reassemble tasks shuffle the previous episode's order
            order[:] = np.arange(len(order))
        return self.flat(self._environment.reset().observation)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Apply control values (A,). A last step of the source is a termination if its discount is 0, else a time limit."""
        total = 0.0
        for _ in range(self.action_repeat):
            step = self._environment.step(action)
            total += float(step.reward)
            if step.last():
                break
        terminated = bool(step.last() and step.discount == 0.0)
        return SimulationStep(self.flat(step.observation), total, terminated, bool(step.last()))

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        return self._overview.picture(self.mujoco[1], 0)

    @override
    def close(self) -> None:
        """Free physics and renderers, including those of dm_control, which would raise errors at exit."""
        self._overview.close()
        if self._domain == "manipulation":
            self._environment.close()
        else:
            self._environment.physics.free()

    def flat(self, observation: Mapping[str, Any]) -> Arrays:
        """Return new float32 arrays by name; scalars become (1,), and manipulation's leading axis of 1 is dropped."""
        composed = self._domain == "manipulation"
        values = {name: np.array(observation[key], np.float32) for key, name in self._names.items()}
        return {name: np.atleast_1d(value[0] if composed else value) for name, value in values.items()}

    def _action_spec(self) -> ActionSpec:
        limits = self._environment.action_spec()
        model = self.mujoco[0]
        mode = _action_mode(model)
        names = tuple(_flat_name(name) for name in actuator_names(model))
        unit = "rad/s" if mode == "joint_velocity" else "1"
        low, high = (np.broadcast_to(value, limits.shape).tolist() for value in (limits.minimum, limits.maximum))
        period = float(self._environment.control_timestep()) * self.action_repeat
        return ActionSpec(names, low, high, (unit,) * len(names), mode, period)


def _load(domain: str, name: str) -> Any:
    """Return the environment, built with a fixed seed, because some tasks draw parts of their model while loading."""
    if domain != "manipulation":
        return suite.load(domain, name, task_kwargs={"random": 0})
    return manipulation.load(name, seed=0)


def _random_state(environment: Any) -> np.random.RandomState:
    composed = hasattr(environment, "random_state")
    random: np.random.RandomState = environment.random_state if composed else environment.task.random
    return random


def _max_steps(environment: Any) -> int:
    """Return the time limit [steps], and remove the source's own limit of manipulation tasks.

    That limit is compared with a sum of time steps, so that rounding decides between 250 and 251 steps.
    """
    if hasattr(environment, "_step_limit"):
        return math.ceil(float(environment._step_limit))
    limit, environment._time_limit = environment._time_limit, math.inf
    return round(float(limit / environment.control_timestep()))


def _action_mode(model: mujoco.MjModel) -> ActionMode:
    if (model.actuator_biastype == mujoco.mjtBias.mjBIAS_NONE).all():
        return "joint_torque"
    follows_position = model.actuator_biasprm[:, 1] != 0.0
    return "joint_position" if follows_position.all() else "joint_velocity"


def _observation_spec(domain: str, observation: Arrays, hides_state: bool) -> ObservationSpec:
    arrays = []
    for name, value in observation.items():
        unit, frame = _unit_and_frame(domain, name)
        arrays.append(ArraySpec(name, value.shape, unit=unit, frame=frame, role="privileged" if hides_state else _role(name)))
    return ObservationSpec(tuple(arrays))


def _unit_and_frame(domain: str, name: str) -> tuple[str, str | None]:
    """Return unit and frame of the longest suffix of a name in the table; entries of the domain come first."""
    parts = name.split("_")
    for start in range(len(parts)):
        ending = "_".join(parts[start:])
        for key in (f"{domain}.{ending}", ending):
            if key in _UNITS:
                return _UNITS[key]
    return "mixed", None


def _role(name: str) -> Role:
    if name.startswith(_GOALS):
        return "goal"
    return "object" if name.startswith(_OBJECTS) else "proprioception"


def _flat_name(name: str) -> str:
    return name.replace("/", "_").replace("unnamed_model", "box").lower()  # the large box is unnamed in the source


def task_names() -> list[str]:
    """Return all suite tasks but lqr, whose controls have no limits, and the manipulation tasks with state observations."""
    names = [f"{domain}-{task}" for domain, task in suite.ALL_TASKS if domain != "lqr"]
    return names + [MANIPULATION + name for name in manipulation.ALL if name.endswith("_features")]
