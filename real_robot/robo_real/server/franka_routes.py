"""Routes of HIL-SERL's Franka server: all POST, with its keys, units, texts and quaternion order (x, y, z, w).

Jianlan Luo, Charles Xu, Jeffrey Wu and Sergey Levine, "Precise and Dexterous Robotic Manipulation via Human-in-the-Loop
Reinforcement Learning", 2024; serl_robot_infra/robot_servers of their repository. Differences: poses pass the guard; the answer
to a pose comes when the hand is near the pose; /clearerr, which their client sends before each pose, clears nothing unless
`auto_clear` is set, since an arm that stopped itself must start again only if a person says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from robo_real.arm import ArmState, ArmTarget
from robo_real.arm_spec import plain_numbers
from robo_real.guard import LATCHED, Mode, Verdict
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import Limits
from robo_real.rotations import inverse, rotate, to_xyzw
from robo_rl.errors import RobotStopped

WIDTH = 0.08
"""[m] opening that these routes report as 1"""
POSITIONS_PER_METRE = 2550
"""[1/m] units of /move_gripper, whose positions are 0 (closed) to 255"""
JOINT_RESET = 30.0
"""[s] timeout of /jointreset"""
KINDS = ("translational", "rotational")
PARAMETERS: Mapping[str, tuple[float, float]] = {
    "translational_damping": (0.0, 400.0),
    "rotational_damping": (0.0, 30.0),
    "nullspace_stiffness": (0.0, 100.0),
    "joint1_nullspace_stiffness": (0.0, 100.0),
    **{f"{kind}_Ki": (0.0, 0.0) for kind in KINDS},
}
"""Parameter of the impedance controller -> (lowest, highest). The robot's limits bound those that set the contact force, see
`allowed_parameters`; an integral gain would raise that force during a contact."""
MOST_CLIP = 0.1
"""Largest clip of the impedance controller's error: 0.1 m for translation, 0.1 rad for rotation."""

Body = Mapping[str, Any]
Answer = dict[str, Any] | str


@dataclass(frozen=True)
class Changed:
    """Answer to a command that was carried out in a changed form, with the reasons of the change."""

    text: str
    """text of the answer, as of a command that was not changed"""
    reasons: tuple[str, ...]
    """what was changed, in words; sent as the header X-Robo-Reason"""


class Refused(Exception):
    """Refusal of a command, answered with the status 500, the only failure that Franka clients know."""


def allowed_parameters(limits: Limits) -> Mapping[str, tuple[float, float]]:
    """Return name -> (lowest, highest) of the parameters that a client may set under these limits.

    Clips are bounded by the reach, and stiffnesses by those of the limits, so that stiffness times reach stays within them.
    """
    clips = (min(MOST_CLIP, limits.reach), min(MOST_CLIP, limits.reach_turn))
    return {
        **PARAMETERS,
        **{
            f"{kind}_stiffness": (0.0, most)
            for kind, most in zip(KINDS, (limits.stiffness, limits.turn_stiffness), strict=True)
            if most is not None
        },
        **{
            f"{kind}_clip_{side}{axis}": (0.0, most)
            for kind, most in zip(KINDS, clips, strict=True)
            for side in ("", "neg_")
            for axis in "xyz"
        },
    }


class FrankaRoutes:
    """Handlers of the routes of HIL-SERL's Franka server, for one robot. `Application` calls them."""

    def __init__(self, robot: GuardedArm, *, auto_clear: bool = False, allow_joint_reset: bool = False) -> None:
        """Create the handlers.

        Args:
            robot: Robot that the requests read and move.
            auto_clear: True to let /clearerr also clear a stop that the robot's own error has caused, as Franka clients expect.
            allow_joint_reset: True to forward /jointreset to a robot whose own server moves the joints. No limit of the guard
                holds for that motion. It has no effect on a driver with a `home`, whose joints move within the limits.
        """
        self._robot, self._auto_clear, self._allow_joint_reset = robot, auto_clear, allow_joint_reset
        self._parameters = allowed_parameters(robot.limits)
        self._impedance = True
        self.readers: Mapping[str, Callable[[ArmState], dict[str, Any]]] = {
            "/getstate": state_of,
            "/getpos": lambda state: {"pose": pose_of(state)},
            "/getpos_euler": lambda state: {"pose": euler_of(state)},
            "/getvel": lambda state: {"vel": state.velocity.tolist()},
            "/getforce": lambda state: {"force": in_hand(state, state.force)},
            "/gettorque": lambda state: {"torque": in_hand(state, state.torque)},
            "/getq": lambda state: {"q": state.joint_position.tolist()},
            "/getdq": lambda state: {"dq": state.joint_velocity.tolist()},
            "/getjacobian": lambda state: {"jacobian": state.jacobian.tolist()},
            "/get_gripper": lambda state: {"gripper": reading_of(state)},
        }
        self.commands: Mapping[str, Callable[[Body], Answer | Changed]] = {
            "/pose": self._pose,
            "/open_gripper": lambda _: self._grip(WIDTH, "Opened"),
            "/close_gripper": lambda _: self._grip(0.0, "Closed"),
            "/close_gripper_slow": lambda _: self._grip(0.0, "Closed"),
            "/move_gripper": self._move_gripper,
            "/activate_gripper": lambda _: "Activated",
            "/reset_gripper": lambda _: "Reset",
            "/clearerr": self._clear,
            "/jointreset": self._joint_reset,
            "/startimp": lambda _: self._switch(True, "Started impedance"),
            "/stopimp": lambda _: self._switch(False, "Stopped impedance"),
            "/update_param": self._update_param,
            "/set_load": self._set_load,
        }

    def _pose(self, body: Body) -> Answer | Changed:
        """Move the hand to a pose, and answer when the hand is near it.

        The late answer slows a client that sends a stream of poses, as HIL-SERL's in its reset, to the speed of the limits.
        """
        pose = plain_numbers(body["arr"])
        if pose.shape != (7,):
            raise Refused("a pose has seven numbers")
        if not self._is_ready():
            return "Moved"
        x, y, z, w = pose[3:].tolist()
        verdict = self._verdict(lambda: self._robot.move(ArmTarget(pose[:3], (w, x, y, z), None)))
        if verdict is None:
            return "Moved"
        is_near = verdict.target is not None and self._robot.come_near(verdict.target)
        reasons = verdict.reasons if is_near else (*verdict.reasons, "behind")
        return Changed("Moved", reasons) if reasons else "Moved"

    def _grip(self, opening: float, answer: str) -> Answer | Changed:
        if not self._is_ready():
            return answer
        verdict = self._verdict(lambda: self._robot.grip(min(opening, self._robot.limits.opening)))
        return Changed(answer, verdict.reasons) if verdict and verdict.reasons else answer

    def _move_gripper(self, body: Body) -> Answer | Changed:
        position = int(float(plain_numbers(body["gripper_pos"])))  # raises for infinity
        return self._grip(int(np.clip(position, 0, 255)) / POSITIONS_PER_METRE, "Moved Gripper")

    def _clear(self, _: Body) -> Answer:
        self._robot.log.add("clearerr")
        self._robot.guard.counts["clearerr"] += 1
        guard = self._robot.guard
        is_latched = guard.mode in LATCHED
        seen = guard.seen_stops + is_latched  # the robot's own error, and nothing else since
        is_robots = not is_latched or guard.reason.startswith("robot: ")
        if self._auto_clear and is_robots and guard.stops == seen and self._robot.read().fault is not None:
            self._robot.recover()
            with contextlib.suppress(RobotStopped):  # stopped meanwhile, which only a person re-arms
                guard.reset(seen)
        return "Clear"

    def _joint_reset(self, _: Body) -> Answer:
        robot = self._robot
        if not self._is_ready():
            raise Refused(robot.guard.reason or "the controller is stopped")
        is_ours = getattr(robot.driver, "home", None) is not None
        if not is_ours and not self._allow_joint_reset:
            raise Refused("the joints of this robot are not moved within its limits (robot serve --allow-joint-reset)")
        try:
            why = (robot.reset_joints if is_ours else robot.forward_joint_reset)(JOINT_RESET)
        except RobotStopped as error:
            raise Refused(error.reason) from None
        if why:
            raise Refused(why)
        return "Reset Joint"

    def _switch(self, on: bool, answer: str) -> Answer:
        self._impedance = on
        self._robot.pause()
        return answer

    def _update_param(self, body: Body) -> Answer | Changed:
        wanted = {name: float(plain_numbers(value)) for name, value in dict(body).items() if name in self._parameters}
        if not np.isfinite([*wanted.values()]).all():
            raise Refused("a parameter is not finite")
        self._require_unlatched()
        clamped = {name: float(np.clip(value, *self._parameters[name])) for name, value in wanted.items()}
        changed = tuple(f"{name} {wanted[name]:g} -> {value:g}" for name, value in clamped.items() if value != wanted[name])
        stiffnesses = (f"{kind}_stiffness" for kind in KINDS)
        changed += tuple(f"{name} not set: the limits name none" for name in stiffnesses if name in set(body) - set(clamped))
        self._robot.log.add("update_param", set=clamped, changed=changed)
        if (update := getattr(self._robot.driver, "update_param", None)) is not None:
            update(clamped)
        answer = "Updated compliance parameters"
        return Changed(answer, changed) if changed else answer

    def _set_load(self, body: Body) -> Answer:
        load = {name: body[name] for name in ("mass", "F_x_center_load", "load_inertia")}
        self._require_unlatched()
        self._robot.log.add("set_load", load=load)
        if (set_load := getattr(self._robot.driver, "set_load", None)) is not None:
            set_load(load)
        return "Set Load"

    def _require_unlatched(self) -> None:
        """Raise Refused if the arm is stopped: a change of stiffness or load moves an arm in contact."""
        if self._robot.guard.mode in LATCHED:
            raise Refused(self._robot.guard.reason)

    def _is_ready(self) -> bool:
        """Arm an idle robot. Return False if commands are ignored, as a Franka ignores them after an error of its own."""
        guard = self._robot.guard
        if guard.mode is Mode.IDLE:
            self._robot.arm()
        return self._impedance and not guard.reason.startswith("robot: ")

    def _verdict(self, command: Callable[[], Verdict]) -> Verdict | None:
        """Run a command; raises Refused if the guard refuses it.

        Returns:
            The verdict; None if the command is ignored because of the robot's own error.
        """
        try:
            verdict = command()
        except RobotStopped as error:
            if error.reason.startswith("robot: "):
                return None
            raise Refused(error.reason) from None
        if verdict.target is None:
            raise Refused(", ".join(verdict.reasons))
        return verdict


def state_of(state: ArmState) -> dict[str, Any]:
    """Return the answer to the Franka route /getstate: pose, velocity, force, joint positions and opening in one dictionary."""
    return {
        "pose": pose_of(state),
        "vel": state.velocity.tolist(),
        "force": in_hand(state, state.force),
        "torque": in_hand(state, state.torque),
        "q": state.joint_position.tolist(),
        "dq": state.joint_velocity.tolist(),
        "jacobian": state.jacobian.tolist(),
        "gripper_pos": reading_of(state),
    }


def pose_of(state: ArmState) -> list[float]:
    """Return position x, y, z [m], then quaternion x, y, z, w."""
    return [*state.position.tolist(), *to_xyzw(state.quaternion)]


def euler_of(state: ArmState) -> list[float]:
    """Return position x, y, z [m], then roll, pitch, yaw [rad] about the fixed axes x, y, z."""
    angles = Rotation.from_quat(to_xyzw(state.quaternion)).as_euler("xyz")
    return [*state.position.tolist(), *angles.tolist()]


def in_hand(state: ArmState, vector: Any) -> list[float]:
    """Return a vector (3,), given in the frame of the base, in the frame of the hand, which these routes use for forces."""
    return list(rotate(inverse(state.quaternion), vector))


def reading_of(state: ArmState) -> float:
    """Return the gripper's opening in the unit of these routes: 0 for closed, 1 for an opening of WIDTH."""
    return state.opening / WIDTH
