"""Single environments of Gymnasium's MuJoCo tasks, version 5, whose flat observation is split into named arrays.

The named arrays keep the order of the flat observation. Units follow the documentation of each task
(https://gymnasium.farama.org/environments/mujoco/). Observations and rewards are bit-identical to Gymnasium's, apart from the
cast of observations to float32.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec
from robo_sims.simulation import Arrays, MujocoSimulation, SimulationStep, VectorLayout, actuator_names, part


def _planar_runner(joints: str, height: str, **velocity_limits: float) -> list[ArraySpec]:
    """Return the specs of a planar runner's observation.

    joints: names of the joints in the order of the model. height: meaning of the root's height.
    """
    number = len(joints.split(", "))
    return [
        part("root_height", 1, "m", frame="world", meaning=height),
        part("root_angle", 1, "rad", frame="world", meaning="turn of the torso about the y axis: its pitch"),
        part("joint_position", number, "rad", meaning=f"angles of {joints}"),
        part("root_velocity", 2, "m/s", frame="world", meaning="of the torso: forward (x), up (z)", **velocity_limits),
        part("root_angular_velocity", 1, "rad/s", meaning="rate of root_angle", **velocity_limits),
        part("joint_velocity", number, "rad/s", meaning=f"rates of {joints}", **velocity_limits),
    ]


def _free_body(joints: int) -> list[ArraySpec]:
    """Return the specs of the observation of a free body with `joints` joints; angular velocity is in the torso's frame."""
    return [
        part("root_height", 1, "m", frame="world", meaning="height (z) of the torso's origin"),
        part("root_orientation", 4, "1", frame="world", meaning="quaternion (w, x, y, z) of the torso"),
        part("joint_position", joints, "rad"),
        part("root_velocity", 3, "m/s", frame="world", meaning="x, y, z of the torso; x is forward"),
        part("root_angular_velocity", 3, "rad/s", frame="torso", meaning="about the torso's x, y, z axes"),
        part("joint_velocity", joints, "rad/s"),
    ]


def _humanoid() -> list[ArraySpec]:
    return [
        *_free_body(17),
        part("body_inertia", 130, "mixed", meaning="MuJoCo's cinert: mass and inertia of 13 bodies about the centre of mass"),
        part("body_velocity", 78, "mixed", meaning="MuJoCo's cvel: [rad/s] and [m/s] of 13 bodies about the centre of mass"),
        part("joint_actuator_torque", 17, "N m"),
        part("external_contact_force", 78, "mixed", meaning="MuJoCo's cfrc_ext: [N m] and [N] on 13 bodies"),
    ]


_CLIPPED = {"low": -10.0, "high": 10.0}
LAYOUTS: dict[str, list[ArraySpec]] = {
    "HalfCheetah-v5": _planar_runner(
        "back thigh, back shin, back foot, front thigh, front shin, front foot", "of the torso above where it started"
    ),
    "Hopper-v5": _planar_runner("thigh, leg, foot", "height (z) of the torso", **_CLIPPED),
    "Walker2d-v5": _planar_runner(
        "right thigh, right leg, right foot, left thigh, left leg, left foot", "height (z) of the torso", **_CLIPPED
    ),
    "Ant-v5": [*_free_body(8), part("external_contact_force", 78, "mixed", low=-1.0, high=1.0)],
    "Humanoid-v5": _humanoid(),
    "HumanoidStandup-v5": _humanoid(),
    "Swimmer-v5": [
        part("root_angle", 1, "rad", frame="world", meaning="heading of the front link"),
        part("joint_position", 2, "rad", meaning="angles between the three links, from the front"),
        part("root_velocity", 2, "m/s", frame="world", meaning="x (forward), y of the front link"),
        part("root_angular_velocity", 1, "rad/s", meaning="rate of root_angle"),
        part("joint_velocity", 2, "rad/s", meaning="rates of joint_position"),
    ],
    "InvertedPendulum-v5": [
        part("cart_position", 1, "m", frame="world"),
        part("pole_angle", 1, "rad", meaning="0 where the pole is upright"),
        part("cart_velocity", 1, "m/s", frame="world"),
        part("pole_angular_velocity", 1, "rad/s"),
    ],
    "InvertedDoublePendulum-v5": [
        part("cart_position", 1, "m", frame="world"),
        part("pole_sine", 2, "1"),
        part("pole_cosine", 2, "1"),
        part("cart_velocity", 1, "m/s", frame="world", **_CLIPPED),
        part("pole_angular_velocity", 2, "rad/s", **_CLIPPED),
        part("constraint_force", 1, "N", **_CLIPPED),
    ],
    "Reacher-v5": [
        part("joint_cosine", 2, "1", meaning="cosines of the two joint angles"),
        part("joint_sine", 2, "1", meaning="sines of the two joint angles"),
        part("target_position", 2, "m", frame="world", role="goal", meaning="x, y"),
        part("joint_velocity", 2, "rad/s"),
        part(
            "target_to_fingertip", 2, "m", frame="world", role="goal", meaning="x, y of the fingertip minus those of the target"
        ),
    ],
    "Pusher-v5": [
        part("joint_position", 7, "rad", meaning="angles of the arm's joints, from the shoulder to the wrist"),
        part("joint_velocity", 7, "rad/s", meaning="rates of joint_position"),
        part("fingertip_position", 3, "m", frame="world", meaning="x, y, z"),
        part("object_position", 3, "m", frame="world", role="object", meaning="x, y, z of the object to push"),
        part("target_position", 3, "m", frame="world", role="goal", meaning="x, y, z of where the object should go"),
    ],
}
_INSTRUCTIONS = {
    "HalfCheetah-v5": "run forward as fast as possible",
    "Hopper-v5": "hop forward as fast as possible without falling",
    "Walker2d-v5": "walk forward as fast as possible without falling",
    "Ant-v5": "walk forward as fast as possible without falling",
    "Humanoid-v5": "walk forward as fast as possible without falling",
    "HumanoidStandup-v5": "stand up",
    "Swimmer-v5": "swim forward as fast as possible",
    "InvertedPendulum-v5": "keep the pole upright",
    "InvertedDoublePendulum-v5": "keep both poles upright",
    "Reacher-v5": "move the fingertip to the target",
    "Pusher-v5": "push the object to the target",
}


class GymnasiumSimulation(MujocoSimulation):
    """One of Gymnasium's MuJoCo tasks."""

    def __init__(self, task: str, detail: str = "plain") -> None:
        made = gymnasium.make(task, disable_env_checker=True)
        super().__init__(made.unwrapped, detail)
        self._layout = VectorLayout(LAYOUTS[task])
        low, high = self._environment.model.actuator_ctrlrange.T
        names = actuator_names(self._environment.model)
        # Control values, as in the source; a joint's torque is the control times the motor's gear.
        action = ActionSpec(names, low, high, ("1",) * len(names), "joint_torque", float(self._environment.dt))
        self.spec = EnvironmentSpec(
            f"gymnasium/{task}",
            self._layout.observation,
            action,
            version=5,
            instruction=_INSTRUCTIONS[task],
            max_steps=made.spec.max_episode_steps if made.spec else None,
        )

    @property
    def source(self) -> Any:
        """The environment of Gymnasium itself."""
        return self._environment

    @override
    def reset(self, seed: int | None) -> Arrays:
        observation, _ = self._environment.reset(seed=seed)
        return self._layout.split(observation)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Apply control values (A,), in float32 like Gymnasium, so that rewards are identical."""
        observation, reward, terminated, _, info = self._environment.step(action.astype(np.float32))
        terms = {key.removeprefix("reward_"): float(value) for key, value in info.items() if key.startswith("reward_")}
        return SimulationStep(self._layout.split(observation), float(reward), bool(terminated), reward_terms=terms)
