"""Set a simulation to the state that an observation shows, for drawing."""

from __future__ import annotations

import mujoco
import numpy as np

from robo_rl.errors import RenderingUnavailable
from robo_rl.spec.environment import Observation
from robo_sims.arm.physics import ArmPhysics

BODIES = ("object", "goal")
"""Bodies whose positions are observed as `<name>_position`."""
MARK_HEIGHT = 0.001
"""Height [m] at which a goal is drawn of which only x and y are observed."""


def pose_as_observed(physics: ArmPhysics, observation: Observation) -> None:
    """Pose arm, fingers, cube and goal as observed; raises RenderingUnavailable for a task with other bodies."""
    if unknown := [name for name in observation if name.endswith("_position") and name.startswith(("peg", "hole"))]:
        raise RenderingUnavailable("A state cannot be drawn from these observations.", got=", ".join(unknown), allowed=BODIES)
    physics.reset()
    physics.joint_position[:] = observation["joint_position"]
    physics.set_opening(float(np.clip(observation["gripper_opening"][0], 0.0, None)))
    physics.update_kinematics()
    for name in BODIES:
        if (position := observation.get(f"{name}_position")) is None:
            continue
        yaw = 0.0
        if (turn := observation.get(f"{name}_turn")) is not None:  # (cos 4a, sin 4a) from hand to cube
            yaw = float(np.arctan2(turn[1], turn[0])) / 4 + float(physics.gripper_yaw)
        physics.place(name, (*position, MARK_HEIGHT)[:3], yaw)
    mujoco.mj_forward(physics.model, physics.data)
