"""The arm in a mirror that stands on the plane y = 0: left is right."""

from __future__ import annotations

import numpy as np

from robo_papers.gr_rl.mirror import Mirror, Reflection
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import EnvironmentSpec

VECTOR = (1, -1, 1)
JOINT_SIGNS = (-1, 1, -1, 1, -1, 1, -1)
JOINT_OFFSETS = (*(0.0,) * 6, np.pi / 2)
"""[rad] added to mirrored joint angles: the hand is mounted at an eighth of a turn, so that pi / 4 is its own image."""
TURN = (1, -1)
"""Reflection of a rotation that is given as the cosine and sine of its angle."""
VELOCITY = (*VECTOR, -1, 1, -1)
"""Signs of a mirrored velocity: linear, then angular, which is turned round once more, as axial vectors are."""

ENTRIES = {
    "joint_position": Reflection(JOINT_SIGNS, JOINT_OFFSETS),
    "joint_velocity": Reflection(JOINT_SIGNS),
    "gripper_opening": Reflection((1,)),
    "end_effector_position": Reflection(VECTOR),
    "end_effector_quaternion": Reflection((-1, 1, -1, 1)),  # (w, -x, y, -z), with x not negative
    "object_position": Reflection(VECTOR),
    "object_from_gripper": Reflection(VECTOR),
    "object_turn": Reflection(TURN),
    "object_velocity": Reflection(VELOCITY),
    "goal_from_gripper": Reflection(VECTOR),
    "peg_position": Reflection(VECTOR),
    "peg_axis": Reflection(VECTOR),
    "peg_velocity": Reflection(VELOCITY),
    "hole_position": Reflection(VECTOR),
    "hole_from_peg": Reflection(VECTOR),
    "hole_turn": Reflection(TURN),
}
ON_TABLE = {"goal_position", "goal_from_object"}
"""Observations that are vectors of two or three numbers, depending on the task."""
ACTIONS = {
    "end_effector_delta": Reflection((*VECTOR, -1, 1)),
    "end_effector_delta_closed": Reflection((*VECTOR, -1)),
    "joint_position": Reflection((*JOINT_SIGNS, 1), (*JOINT_OFFSETS, 0.0)),
}
"""Name of a control mode -> reflection that turns its actions into their mirror images."""


def arm_mirror(spec: EnvironmentSpec) -> Mirror:
    """Return the mirror of an arm task; raises InvalidSetting for entries or commands that have no known image."""
    if spec.action.mode not in ACTIONS:
        raise InvalidSetting("The commands have no mirror image.", got=spec.action.mode, allowed=", ".join(ACTIONS))
    entries = {name: ENTRIES[name] for name in spec.observation if name in ENTRIES}
    for name in ON_TABLE & set(spec.observation):
        entries[name] = Reflection(VECTOR[: spec.observation[name].size])
    reflection = ACTIONS[spec.action.mode]
    if len(reflection.signs) != spec.action.size:  # without fingers
        reflection = Reflection(reflection.signs[: spec.action.size], reflection.offsets[: spec.action.size])
    return Mirror(spec, reflection, entries)
