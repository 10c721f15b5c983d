"""Motion to the goal that the guard accepted last, tick by tick, if measurements allow it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from robo_real.arm import HOLD, ArmDriver, ArmState, ArmTarget, Array, SetPoint
from robo_real.guard import Guard
from robo_real.joint_set_points import JointSetPoints
from robo_real.rotations import between
from robo_real.set_points import PoseSetPoints

THERE = (0.002, 0.02)
"""[m] and [rad] from a goal within which the hand has arrived"""
MOST_LATE = 3
"""ticks that a late one makes up for at most"""
PERIOD = 0.02
"""[s] between two set points of a driver that states none"""


@dataclass(frozen=True)
class _Pose:
    target: ArmTarget
    until: float
    """[s] from which on the arm holds unless a newer goal has come"""
    stretch: object
    """Goals of one stretch follow each other without a rest."""


@dataclass
class _Joints:
    home: Array
    stretch: object
    path: JointSetPoints | None = None


class Course:
    """Implements SetPoints. `tick` belongs to one thread; goals come and go from any, and no lock keeps a stop waiting."""

    def __init__(self, guard: Guard, driver: ArmDriver) -> None:
        self._guard, self._limits = guard, guard.limits
        self.period: float = getattr(driver, "period", PERIOD)
        self._poses = PoseSetPoints(guard.limits, guard.box, guard.cone, getattr(driver, "response", None))
        self._goal: _Pose | _Joints | None = None
        self._stretch = object()
        self._led: object = None  # the stretch of the tick before
        self._ticked, self._measured = -np.inf, np.inf
        self.ended = ""
        """Why the newest joint motion ended before its posture; "" if it did not."""
        self.changed = threading.Event()
        """Set with each goal."""

    # any thread

    @property
    def goal(self) -> ArmTarget | None:
        """Goal of the hand; None if the arm stands or its joints move."""
        goal = self._goal
        return goal.target if isinstance(goal, _Pose) else None

    @property
    def is_under_way(self) -> bool:
        """True while the arm follows a goal."""
        return self._goal is not None

    @property
    def moves_joints(self) -> bool:
        """True while its joints move to a posture."""
        return isinstance(self._goal, _Joints)

    def go(self, target: ArmTarget, until: float) -> None:
        """Lead the hand to a pose; until: [s] at which the arm holds if nothing newer has come."""
        self._goal = _Pose(target, until, self._stretch)
        self.changed.set()

    def go_joints(self, home: Array) -> None:
        """Lead the joints to a posture (J,) [rad]."""
        self.ended = "another command"
        self._goal = _Joints(home, object())
        self.changed.set()

    def rest(self) -> None:
        """The arm is told to hold: no set point comes any more."""
        self._goal, self._stretch = None, object()

    def arrived(self, state: ArmState) -> bool:
        """Return whether the hand is where it was sent."""
        goal = self.goal
        if goal is None:
            return not self.moves_joints
        turn = np.linalg.norm(between(state.quaternion, goal.quaternion))
        return bool(np.linalg.norm(goal.position - state.position) < THERE[0] and turn < THERE[1])

    def patience(self, target: ArmTarget, state: ArmState) -> float:
        """Return how long [s] the way to a pose may take."""
        way = float(np.linalg.norm(target.position - state.position)) / self._limits.speed
        turn = float(np.linalg.norm(between(state.quaternion, target.quaternion))) / self._limits.turn_speed
        return self._limits.stop_after + 2 * (way + turn)

    # the thread that drives the arm

    def displaced(self) -> None:
        """The arm was put elsewhere by hand."""
        self.rest()
        self._guard.displaced()

    def tick(self, state: ArmState, now: float) -> SetPoint | None:
        """Judge a measurement and return where the arm goes next: HOLD if it forbids that, None if there is nothing to do."""
        goal = self._goal
        try:
            return self._tick(goal, state, now)
        except Exception as error:  # unforeseen: neither the arm nor the thread that drives it may go on as if nothing were
            self._guard.fault(f"set points: {type(error).__name__}: {error}"[:200])
            return self._end(goal, self._guard.reason) or HOLD

    def _tick(self, goal: _Pose | _Joints | None, state: ArmState, now: float) -> SetPoint | None:
        since = now - self._ticked if np.isfinite(self._ticked) else self.period
        duration, self._ticked = round(float(np.clip(since, 0.0, MOST_LATE * self.period)), 9), now
        stretch = None if goal is None else goal.stretch
        if stretch is not self._led:
            self._poses.rest()
        self._led = stretch
        if not self._guard.watch(state, self._poses.sent if goal is not None else None, now):
            self._measured = now
            return self._end(goal, self._guard.reason)
        if why := self._interruption(goal, state, now):
            return self._end(goal, why)
        if isinstance(goal, _Joints):
            return self._tick_joints(goal, state, duration)
        return None if goal is None else self._poses.next(goal.target, state, duration)

    def _interruption(self, goal: _Pose | _Joints | None, state: ArmState, now: float) -> str:
        """Return why an arm may not go on this time, "" if it may; measurements that stay away stop it for good."""
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
        return path.next(state, duration)

    def _end(self, goal: _Pose | _Joints | None, why: str) -> SetPoint | None:
        """Hold an arm that was under way."""
        if goal is None:
            return None
        if isinstance(goal, _Joints):
            self.ended = why
        if self._goal is goal:
            self.rest()
        return HOLD
