"""Motion of an arm to the newest goal that the guard has accepted, as one set point per control tick."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from robo_real.arm import HOLD, ArmDriver, ArmState, ArmTarget, Array, JointTarget, SetPoint, SetPoints
from robo_real.guard import Guard
from robo_real.rotations import between
from robo_real.set_points import JointSetPoints, PoseSetPoints

THERE = (0.002, 0.02)
"""[m] and [rad] tolerance of arrival at a goal"""
ASLEEP = 0.5
"""[s] between two ticks, above which the motion ends: this machine was asleep, and the measurements cannot tell for how long"""
MOST_LATE = 3
"""number of ticks that one late tick may catch up on"""
PERIOD = 0.02
"""Default time [s] between two set points that a driver is sent."""


@dataclass(frozen=True)
class _Pose:
    target: ArmTarget
    until: float
    """[s] time at which the arm is held, unless a newer goal comes first"""
    stretch: object
    """Identity of a sequence of goals without a hold between them."""


@dataclass
class _Joints:
    home: Array
    stretch: object
    path: JointSetPoints | None = None


class MotionGenerator(SetPoints):
    """Source of the set points that lead an arm to its present goal.

    The thread that drives the arm calls `tick`. Any thread may set a goal or cancel it; there is no lock that could delay a
    stop.
    """

    def __init__(self, guard: Guard, driver: ArmDriver) -> None:
        self._guard, self._limits = guard, guard.limits
        self.period: float = getattr(driver, "period", PERIOD)
        self._clock = driver.clock
        self._poses = PoseSetPoints(guard.limits, guard.box, guard.cone, getattr(driver, "response", None))
        self._goal: _Pose | _Joints | None = None
        self._stretch = object()
        self._led: object = None  # the stretch of the tick before
        self._sent: ArmTarget | JointTarget | None = None  # set point in force, None if the arm is held
        self._ticked, self._measured = -np.inf, np.inf
        self.ended = ""
        """Reason of an early end of the newest joint motion, "" if completed."""
        self.changed = threading.Event()
        """Set with each new goal"""

    # any thread

    @property
    def goal(self) -> ArmTarget | None:
        """Goal of the hand; None if the arm stands, and during a motion of the joints."""
        goal = self._goal
        return goal.target if isinstance(goal, _Pose) else None

    @property
    def is_moving(self) -> bool:
        """True while there is a goal."""
        return self._goal is not None

    @property
    def is_moving_joints(self) -> bool:
        """True while the arm moves to a joint posture, rather than to a pose of the hand."""
        return isinstance(self._goal, _Joints)

    def move_to(self, target: ArmTarget, until: float) -> None:
        """Set a pose of the hand as the goal; until: [s] time at which the arm is held, unless a newer goal comes first."""
        self._goal = _Pose(target, until, self._stretch)
        self.changed.set()

    def move_joints(self, home: Array) -> None:
        """Set a posture of the joints (J,) [rad] as the goal."""
        self.ended = "another command"
        self._goal = _Joints(home, object())
        self.changed.set()

    def cancel(self) -> None:
        """Drop the goal, so that no more set points follow."""
        self._goal, self._stretch = None, object()

    def arrived(self, state: ArmState) -> bool:
        """Return whether the hand is at its goal within THERE. Without a goal: whether no motion of the joints is under way."""
        goal = self.goal
        if goal is None:
            return not self.is_moving_joints
        turn = np.linalg.norm(between(state.quaternion, goal.quaternion))
        return bool(np.linalg.norm(goal.position - state.position) < THERE[0] and turn < THERE[1])

    def time_limit(self, target: ArmTarget, state: ArmState) -> float:
        """Return the time [s] allowed for the motion to a pose."""
        way = float(np.linalg.norm(target.position - state.position)) / self._limits.speed
        turn = float(np.linalg.norm(between(state.quaternion, target.quaternion))) / self._limits.turn_speed
        return self._limits.stop_after + 2 * (way + turn)

    # the thread that drives the arm

    @override
    def displaced(self) -> None:
        self.cancel()
        self._guard.displaced()

    @override
    def tick(self, state: ArmState, now: float) -> SetPoint | None:
        """Check a measurement and return the next set point; HOLD to end a motion, None if there is no goal."""
        goal = self._goal
        try:
            return self._tick(goal, state, now)
        except Exception as error:  # unforeseen: the arm must hold, and its thread must go on
            self._guard.fault(f"set points: {type(error).__name__}: {error}"[:200])
            return self._end(goal, self._guard.reason) or HOLD

    def _tick(self, goal: _Pose | _Joints | None, state: ArmState, now: float) -> SetPoint | None:
        since = now - self._ticked if np.isfinite(self._ticked) else self.period
        duration, self._ticked = round(float(np.clip(since, 0.0, MOST_LATE * self.period)), 9), now
        stretch = None if goal is None else goal.stretch
        slept = stretch is self._led and since > ASLEEP * getattr(self._clock, "speed", 1.0)
        if stretch is not self._led:
            self._poses.rest()
            self._sent = None
        self._led = stretch
        if not self._guard.watch(state, self._sent, now):
            self._measured = now
            return self._end(goal, self._guard.reason)
        if why := "asleep" if slept and goal is not None else self._interruption(goal, state, now):
            return self._end(goal, why)
        if goal is None:
            return None
        if isinstance(goal, _Joints):
            return self._tick_joints(goal, state, duration)
        self._sent = self._poses.next(goal.target, state, duration)
        return self._sent

    def _interruption(self, goal: _Pose | _Joints | None, state: ArmState, now: float) -> str:
        """Return the reason to interrupt the motion, "" to go on. No measurement for `stop_after` enters the mode FAULT."""
        is_late = now - state.stamp > self._limits.state_age
        if not is_late or self._measured == np.inf:
            self._measured = now
        elif now - self._measured > self._limits.stop_after and self._guard.is_ready:
            self._guard.fault("state_late")
        if goal is None:
            return ""
        if is_late:
            return "state_late"
        if not self._guard.is_enabled(now):
            return "dead_man"
        return "silence" if isinstance(goal, _Pose) and now > goal.until else ""

    def _tick_joints(self, goal: _Joints, state: ArmState, duration: float) -> SetPoint | None:
        path = goal.path = goal.path or JointSetPoints(self._limits, self._guard.box, state.joint_position.copy(), goal.home)
        if path.arrived(state):
            return self._end(goal, "")
        if why := path.blocked(state):
            return self._end(goal, why)
        self._sent = path.next(state, duration)
        return self._sent

    def _end(self, goal: _Pose | _Joints | None, why: str) -> SetPoint | None:
        """End the motion to a goal; return HOLD, or None if there is no goal."""
        if goal is None:
            return None
        if isinstance(goal, _Joints):
            self.ended = why
        if self._goal is goal:
            self.cancel()
        return HOLD
