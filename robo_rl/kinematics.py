"""Forward and inverse kinematics of an arm, for arms that measure and follow only joint positions.

The arm is described by a model in MuJoCo's MJCF format or in URDF.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.system.opengl import prefer_headless

prefer_headless()  # before MuJoCo, which reads the choice once: the same process may draw later

import mujoco  # noqa: E402

Array = npt.NDArray[np.float64]
Quaternion = tuple[float, float, float, float]
"""Orientation (w, x, y, z), a unit quaternion."""
HAND = "hand_frame"
"""Name of the site that `Hand.added_to` adds to a model."""
ORIENTATION_WEIGHT = 0.1
"""[m/rad] weight of an orientation error relative to a position error, so that an arm with too few joints keeps the position"""
DAMPING = 1e-6
"""[m^2] damping of the least squares that solve each iteration"""
ITERATIONS = 20
CONVERGED = 1e-5
"""[rad] largest change of a joint in one iteration at which the iterations end"""
STEP = 0.2
"""[rad] largest change of a joint that one iteration may make, which bounds it near singular postures"""


@dataclass(frozen=True)
class Hand:
    """Frame of a robot hand that the model does not define: z points out of the hand, x in the direction of heading 0."""

    body: str
    """Name in the model of the body to which the frame is fixed."""
    position: tuple[float, float, float]
    """[m] in the frame of the body"""
    quaternion: Quaternion = (1.0, 0.0, 0.0, 0.0)
    """(w, x, y, z) in the frame of the body"""

    def added_to(self, spec: mujoco.MjSpec) -> str:
        """Add the frame to a model as a site and return its name; raises UnknownName if the model lacks the body."""
        if spec.body(self.body) is None:
            raise UnknownName("body of the model", self.body, [body.name for body in spec.bodies])
        spec.body(self.body).add_site(name=HAND, pos=self.position, quat=self.quaternion, group=4)
        return HAND


class Kinematics:
    """Kinematics of an arm's hand as a function of the J hinge joints of a model; to be used by one thread only."""

    def __init__(self, model: Path | mujoco.MjModel, joints: Sequence[str], hand: str | Hand) -> None:
        """Take the kinematics of a file or a compiled model.

        Args:
            model: MJCF or URDF file, or a compiled model, which has its hand already.
            joints: Hinge joints from the base to the hand.
            hand: Site or body whose z axis points out of the hand, or such a frame.

        Raises:
            InvalidSetting: The file cannot be loaded, or a joint is no hinge.
            UnknownName: The model has no joint, site or body of a name.
        """
        if isinstance(model, Path):
            spec = load_model(model)
            hand = hand.added_to(spec) if isinstance(hand, Hand) else hand
            self._model = spec.compile()
        else:
            self._model = model
        self._data = mujoco.MjData(self._model)
        self._name = model.name if isinstance(model, Path) else "the model"
        kind = mujoco.mjtObj.mjOBJ_SITE
        hands = [self._model.site(i).name for i in range(self._model.nsite)]
        if hand not in hands:
            kind, bodies = mujoco.mjtObj.mjOBJ_BODY, [self._model.body(i).name for i in range(self._model.nbody)]
            if hand not in bodies:
                raise UnknownName(f"site or body of {self._name}", str(hand), [*hands, *bodies])
        is_site = kind == mujoco.mjtObj.mjOBJ_SITE
        self._hand = (self._data.site if is_site else self._data.body)(hand)
        self._jacobian = mujoco.mj_jacSite if is_site else mujoco.mj_jacBody
        found = [self._joint(name) for name in joints]
        self._positions = np.array([int(joint.qposadr[0]) for joint in found])
        self._velocities = np.array([int(joint.dofadr[0]) for joint in found])
        limited = np.array([bool(joint.limited[0]) for joint in found])
        self.low: Array = np.where(limited, [joint.range[0] for joint in found], -np.inf)
        """(J,) [rad] lowest positions of the joints in the model; -inf for a joint without a limit"""
        self.high: Array = np.where(limited, [joint.range[1] for joint in found], np.inf)
        """(J,) [rad] highest positions of the joints in the model; inf for a joint without a limit"""

    def _joint(self, name: str) -> Any:
        names = [self._model.joint(i).name for i in range(self._model.njnt)]
        if name not in names:
            raise UnknownName(f"joint of {self._name}", name, names)
        joint = self._model.joint(name)
        if joint.type[0] != mujoco.mjtJoint.mjJNT_HINGE:
            raise InvalidSetting(f"The joint {name!r} is no hinge.", got=self._name, allowed="hinge joints")
        return joint

    def hand(self, joints: Array) -> tuple[Array, Quaternion, Array]:
        """Return position (3,) [m], orientation and Jacobian (6, J) of the hand for joint positions (J,) [rad].

        All of them are in the frame of the model's world.
        """
        self._data.qpos[self._positions] = joints
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        full = np.zeros((6, self._model.nv))
        self._jacobian(self._model, self._data, full[:3], full[3:], self._hand.id)
        found = np.zeros(4)
        mujoco.mju_mat2Quat(found, self._hand.xmat)
        w, x, y, z = found.tolist()
        return self._hand.xpos.copy(), (w, x, y, z), full[:, self._velocities]

    def joints(self, position: Array, orientation: Quaternion, start: Array) -> Array:
        """Return joint positions (J,) [rad] that bring the hand to a pose, or as near to it as the joints can.

        Args:
            position: (3,) [m] Position of the hand, in the frame of the model's world.
            orientation: Orientation of the hand.
            start: (J,) [rad] Joint positions at which the search starts; the result lies near them.
        """
        found = start.copy()
        turn, weights = np.empty(3), np.array([1.0] * 3 + [ORIENTATION_WEIGHT] * 3)
        for _ in range(ITERATIONS):
            here, direction, jacobian = self.hand(found)
            mujoco.mju_subQuat(turn, np.array(orientation), np.array(direction))  # in the hand's frame
            error = weights * np.concatenate([position - here, self._hand.xmat.reshape(3, 3) @ turn])
            weighted = weights[:, None] * jacobian
            change = weighted.T @ np.linalg.solve(weighted @ weighted.T + DAMPING * np.eye(6), error)
            change *= min(1.0, STEP / max(float(np.abs(change).max()), 1e-12))
            found = np.clip(found + change, self.low, self.high)
            if np.abs(change).max() < CONVERGED:
                break
        return found


def load_model(file: Path) -> mujoco.MjSpec:
    """Load the model in an MJCF or URDF file, so that parts can be added; raises InvalidSetting if the file is none."""
    try:
        spec = mujoco.MjSpec.from_file(str(file))
        spec.copy().compile()  # some mistakes are found there only
    except ValueError as error:
        got = " ".join(str(error).split())
        raise InvalidSetting(f"The model {file} cannot be loaded.", got=got, allowed="MJCF or URDF") from None
    return spec
