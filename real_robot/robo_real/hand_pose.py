"""Pose of a hand, read from a served robot without its lease: nothing is moved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robo_real.arm import Array
from robo_real.http_client import RobotClient
from robo_real.rotations import Quaternion, quaternion
from robo_rl.errors import RobotUnavailable


@dataclass(frozen=True)
class HandPose:
    """Measured pose of a hand, in the frame of the base."""

    stamp: float
    """[s] time of the measurement by the robot's clock"""
    position: Array
    """Position (3,) [m] of the hand, frame base."""
    quaternion: Quaternion
    """(w, x, y, z) orientation of the hand, norm 1"""
    joints: Array
    """(J,) [rad] positions of the joints"""


def read_hand_pose(client: RobotClient) -> HandPose:
    """Request the newest pose of the hand; raises RobotUnavailable if the robot reports none."""
    answer = client.json("/robo/observe", {})
    seen = answer["observation"]
    try:
        direction = quaternion(seen["end_effector_quaternion"])
        place, joints = (np.array(seen[name], np.float64) for name in ("end_effector_position", "joint_position"))
    except (KeyError, ZeroDivisionError) as error:
        raise RobotUnavailable("The robot reports no pose of its hand.", got=f"{type(error).__name__}: {error}") from None
    return HandPose(float(answer["stamp"]), place, direction, joints)
