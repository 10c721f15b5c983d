"""Gymnasium-Robotics: the Fetch arm (reach, push, slide, pick and place), the Franka kitchen, and Adroit's hand at a door.

The order of arrays is that of the documentation (https://robotics.farama.org). Two units are those of the code, from which the
documentation differs: velocities of Fetch are metres (or radians) per control step, and actions of the kitchen are scaled by
two.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import UnknownName, optional
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_sims.simulation import (
    Arrays,
    MujocoSimulation,
    Simulation,
    SimulationStep,
    VectorLayout,
    actuator_names,
    part,
    source_camera,
)
from robo_sims.task_family import TaskFamily

with optional("Gymnasium-Robotics", "gymnasium_robotics", "gymnasium-robotics"):
    with contextlib.redirect_stderr(io.StringIO()):  # the import prints messages about other tasks
        import gymnasium_robotics
    from gymnasium_robotics.envs.franka_kitchen.kitchen_env import OBS_ELEMENT_GOALS

_INSTRUCTIONS = {
    "FetchReach": "move the gripper to the target",
    "FetchPush": "push the block to the target",
    "FetchSlide": "slide the puck to the target",
    "FetchPickAndPlace": "pick the block up and hold it at the target",
}
_FETCH = tuple(f"{task}{kind}-v4" for task in _INSTRUCTIONS for kind in ("", "Dense"))
_KITCHEN = "FrankaKitchen-v1"
_DOOR = "AdroitHandDoorSparse-v1"
"""Only the sparse version: up to Gymnasium-Robotics 1.4.2 the dense one rewards a hand far from the handle."""
DOOR_STEPS = 200
"""Default time limit of the door, as in Gymnasium-Robotics; recorded human demonstrations have up to 300 steps."""


_GRIPPER = part("gripper_position", 3, "m", frame="world")
_GRIPPER_VELOCITY = part("gripper_velocity", 3, "m", frame="world", meaning="metres per control period")
_FINGERS = part("finger_position", 2, "m")
_FINGER_VELOCITY = part("finger_velocity", 2, "m")
_FETCH_REACH = VectorLayout([_GRIPPER, _FINGERS, _GRIPPER_VELOCITY, _FINGER_VELOCITY])
_FETCH_OBJECT = VectorLayout(
    [
        _GRIPPER,
        part("object_position", 3, "m", frame="world", role="object"),
        part("gripper_to_object", 3, "m", frame="world", role="object"),
        _FINGERS,
        part("object_rotation", 3, "rad", frame="world", role="object", meaning="Euler angles about x, y, z"),
        part("object_relative_velocity", 3, "m", frame="world", role="object"),
        part("object_angular_velocity", 3, "rad", frame="world", role="object"),
        _GRIPPER_VELOCITY,
        _FINGER_VELOCITY,
    ]
)
_KITCHEN_LAYOUT = VectorLayout(
    [
        part("joint_position", 7, "rad"),
        part("finger_position", 2, "m"),
        part("joint_velocity", 7, "rad/s"),
        part("finger_velocity", 2, "m/s"),
        part("burner_position", 8, "mixed", role="object", meaning="knob [rad] and burner [m], four times"),
        part("light_position", 2, "mixed", role="object", meaning="switch [m], light [rad]"),
        part("slide_cabinet_position", 1, "m", role="object"),
        part("hinge_cabinet_position", 2, "rad", role="object"),
        part("microwave_position", 1, "rad", role="object"),
        part("kettle_position", 3, "m", frame="world", role="object"),
        part("kettle_orientation", 4, "1", frame="world", role="object"),
        part("burner_velocity", 8, "mixed", role="object"),
        part("light_velocity", 2, "mixed", role="object"),
        part("slide_cabinet_velocity", 1, "m/s", role="object"),
        part("hinge_cabinet_velocity", 2, "rad/s", role="object"),
        part("microwave_velocity", 1, "rad/s", role="object"),
        part("kettle_velocity", 3, "m/s", frame="world", role="object"),
        part("kettle_angular_velocity", 3, "rad/s", frame="kettle", role="object"),
    ]
)
_DOOR_LAYOUT = VectorLayout(
    [
        part("arm_rotation", 3, "rad", meaning="about x, y, z; the arm's own slide along z is not observed"),
        part("wrist_position", 2, "rad"),
        part("finger_position", 22, "rad", meaning="forefinger 4, middle 4, ring 4, little 5, thumb 5, each from its base"),
        part("latch_position", 1, "rad", role="object"),
        part("door_position", 1, "rad", role="object", meaning="angle of the hinge, 0 where the door is shut"),
        part("palm_position", 3, "m", frame="world"),
        part("handle_position", 3, "m", frame="world", role="object"),
        part("handle_to_palm", 3, "m", frame="world", role="object"),
        part("door_is_open", 1, "1", role="object", meaning="1 beyond 1 rad, else -1"),
    ]
)
_KITCHEN_UNITS = {"slide cabinet": "m", "hinge cabinet": "rad", "microwave": "rad"}


class FetchSimulation(MujocoSimulation):
    """One task of the Fetch arm: the gripper moves an object, or itself, to a goal."""

    def __init__(self, task: str, detail: str = "plain") -> None:
        gymnasium.register_envs(gymnasium_robotics)
        made = gymnasium.make(task, disable_env_checker=True)
        super().__init__(made.unwrapped, detail)
        self._layout = _FETCH_OBJECT if self._environment.has_object else _FETCH_REACH
        goals = (
            part("achieved_goal", 3, "m", frame="world", role="object"),
            part("desired_goal", 3, "m", frame="world", role="goal"),
        )
        # 0.05 m per step is a constant of the source's `_set_action`; the finger command is added to their position.
        self._limits = np.array([0.05, 0.05, 0.05, 1.0])
        self.spec = EnvironmentSpec(
            f"gymnasium_robotics/{task}",
            ObservationSpec((*self._layout.observation.arrays, *goals)),
            ActionSpec(
                ("x", "y", "z", "fingers"),
                tuple(-self._limits),
                tuple(self._limits),
                ("m", "m", "m", "m"),
                "end_effector_delta",
                float(self._environment.dt),
                frame="world",
            ),
            version=4,
            instruction=_INSTRUCTIONS[task.removesuffix("-v4").removesuffix("Dense")],
            max_steps=made.spec.max_episode_steps if made.spec else None,
            success_rule=f"achieved and desired goal are less than {self._environment.distance_threshold} m apart",
        )

    @override
    def reset(self, seed: int | None) -> Arrays:
        observation, _ = self._environment.reset(seed=seed)
        self._show_goal()
        return self._flat(observation)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Move the gripper by (x, y, z) [m] and the fingers [m]; as in Gymnasium-Robotics an episode never terminates."""
        command = (action / self._limits).astype(np.float32)
        observation, reward, _, _, info = self._environment.step(command)
        self._show_goal()
        return SimulationStep(self._flat(observation), float(reward), success=bool(info["is_success"]))

    def _show_goal(self) -> None:
        """Move the marker of the goal for pictures; Gymnasium-Robotics would need a simulation step for it."""
        self._environment.data.site("target0").xpos[:] = self._environment.goal

    def _flat(self, observation: dict[str, Any]) -> Arrays:
        goals = {name: observation[name].astype(np.float32) for name in ("achieved_goal", "desired_goal")}
        return self._layout.split(observation["observation"]) | goals


class KitchenSimulation(MujocoSimulation):
    """Franka arm in a kitchen with one or more goals in an episode."""

    def __init__(self, goals: Sequence[str], detail: str = "plain") -> None:
        for goal in goals:
            if goal not in OBS_ELEMENT_GOALS:
                raise UnknownName("goal of the kitchen", goal, OBS_ELEMENT_GOALS)
        gymnasium.register_envs(gymnasium_robotics)
        made = gymnasium.make(_KITCHEN, tasks_to_complete=list(goals), disable_env_checker=True)
        super().__init__(made.unwrapped, detail)
        self._goals = tuple(goals)
        robot = self._environment.robot_env
        self._limits = np.asarray(robot.act_rng, np.float64)  # velocity of an action of 1
        self.spec = EnvironmentSpec(
            f"gymnasium_robotics/{_KITCHEN}",
            ObservationSpec((*_KITCHEN_LAYOUT.observation.arrays, *_kitchen_goals(self._goals))),
            ActionSpec(
                (*(f"joint_{number}" for number in range(1, 8)), "right_finger", "left_finger"),
                tuple(-self._limits),
                tuple(self._limits),
                ("rad/s",) * 7 + ("m/s",) * 2,
                "joint_velocity",
                float(robot.dt),
            ),
            version=1,
            instruction=", ".join(_KITCHEN_INSTRUCTIONS[goal] for goal in self._goals),
            max_steps=made.spec.max_episode_steps if made.spec else None,
            success_rule="every goal was within 0.3 (norm over its joints) at some step of the episode",
        )

    @override
    def reset(self, seed: int | None) -> Arrays:
        observation, _ = self._environment.reset(seed=seed)
        return self._flat(observation)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Command joint velocities (7,) [rad/s] and finger velocities (2,) [m/s].

        The reward is the number of goals that are reached for the first time in this step; the episode ends when all are.
        """
        observation, reward, terminated, _, _ = self._environment.step(action / self._limits)
        return SimulationStep(self._flat(observation), float(reward), bool(terminated), success=bool(terminated))

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        return self._overview.picture(self._environment.data, source_camera(self._environment.robot_env))

    def _flat(self, observation: dict[str, Any]) -> Arrays:
        arrays = _KITCHEN_LAYOUT.split(observation["observation"])
        for kind in ("achieved", "desired"):
            for goal in self._goals:
                arrays[_goal_name(kind, goal)] = observation[f"{kind}_goal"][goal].astype(np.float32)
        return arrays


class DoorSimulation(MujocoSimulation):
    """Adroit's hand with five fingers, which opens a door with a latch (Rajeswaran et al. 2018, arXiv:1709.10087)."""

    def __init__(self, max_steps: int, detail: str = "plain") -> None:
        gymnasium.register_envs(gymnasium_robotics)
        made = gymnasium.make(_DOOR, disable_env_checker=True)
        super().__init__(made.unwrapped, detail)
        self._start: Arrays | None = None
        self._middle, self._range = self._environment.act_mean, self._environment.act_rng
        low, high = self._environment.model.actuator_ctrlrange.T
        names = actuator_names(self._environment.model)
        self.spec = EnvironmentSpec(
            f"gymnasium_robotics/{_DOOR}",
            _DOOR_LAYOUT.observation,
            ActionSpec(names, low, high, ("m", *("rad",) * (len(names) - 1)), "joint_position", float(self._environment.dt)),
            version=1,
            instruction="open the door",
            max_steps=max_steps,
            success_rule="the door is open by 1.35 rad",
        )

    def start_from(self, state: Arrays) -> None:
        """Let the next episode, and only this one, begin in a given state: qpos (30,), qvel (30,), door_body_pos (3,)."""
        self._start = {name: np.asarray(value, np.float64) for name, value in state.items()}

    @override
    def reset(self, seed: int | None) -> Arrays:
        options = None if self._start is None else {"initial_state_dict": self._start}
        self._start = None
        observation, _ = self._environment.reset(seed=seed, options=options)
        return _DOOR_LAYOUT.split(observation)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Command joint positions (A,) in the units of the spec; as in Gymnasium-Robotics an episode never terminates."""
        command = ((action - self._middle) / self._range).astype(np.float32)
        observation, reward, _, _, info = self._environment.step(command)
        return SimulationStep(_DOOR_LAYOUT.split(observation), float(reward), success=bool(info["success"]))


_KITCHEN_INSTRUCTIONS = {
    "bottom burner": "turn the bottom burner on",
    "top burner": "turn the top burner on",
    "light switch": "switch the light on",
    "slide cabinet": "open the slide cabinet",
    "hinge cabinet": "open the hinge cabinet",
    "microwave": "open the microwave",
    "kettle": "move the kettle to the top burner",
}


def _goal_name(kind: str, goal: str) -> str:
    return f"{kind}_{goal.replace(' ', '_')}"


def _kitchen_goals(goals: Sequence[str]) -> list[ArraySpec]:
    return [
        part(_goal_name(kind, goal), len(OBS_ELEMENT_GOALS[goal]), _KITCHEN_UNITS.get(goal, "mixed"), role=role)
        for kind, role in (("achieved", "object"), ("desired", "goal"))
        for goal in goals
    ]


def _simulate(
    task: str, goals: Sequence[str] = tuple(OBS_ELEMENT_GOALS), detail: str = "plain", max_steps: int = DOOR_STEPS
) -> Simulation:
    """Return the simulation of a task; `goals` hold for the kitchen alone, `max_steps` for the door alone."""
    if task == _DOOR:
        return DoorSimulation(max_steps, detail)
    return KitchenSimulation(goals, detail) if task == _KITCHEN else FetchSimulation(task, detail)


FAMILY = TaskFamily("gymnasium_robotics", lambda: (*_FETCH, _KITCHEN, _DOOR), _simulate)
"""Family `gymnasium_robotics`: Fetch, kitchen and door."""
