"""Simplest simulated arm: the hand follows its target with a lag. For tests and first experiments."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from robo_real.arm import ArmDriver, ArmState, ArmTarget, Array, SetPoint, SetPoints
from robo_real.clock import Clock, MonotonicClock
from robo_real.limits import TWIN
from robo_real.rotations import DOWN, between, turned
from robo_rl.errors import RobotUnavailable

START = (0.46, 0.0, 0.24)
"""(3,) [m] position of the hand at the start"""
LAG = 0.04
"""[s] time constant of the hand's position"""
TICK = 0.01
"""[s] period of the set points"""
MOST_BEHIND = 2.0
"""[s] largest time that the simulation makes up for after a pause; the hand has arrived by then"""
JOINTS = np.array([0.0, -0.3, 0.0, -2.3, 0.0, 2.0, math.pi / 4])
"""[rad] measured joint positions at the start"""


@dataclass(frozen=True)
class FakeOptions:
    """Options of the fake arm."""

    speed: float = 1.0
    """speed of simulated time, as a multiple of real time"""


class FakeArm(ArmDriver):
    """Simulated arm without physics: the hand follows its target with a lag. For tests and first experiments.

    Its seven joints turn as the hand moves, so that the checks of the guard do not take it for frozen.
    """

    name = "robot/Fake"
    options = FakeOptions
    limits = TWIN
    is_simulated = True
    period = TICK
    width = TWIN.opening

    def __init__(self, options: FakeOptions | None = None, clock: Clock | None = None) -> None:
        self.clock = clock or MonotonicClock((options or FakeOptions()).speed)
        self.force = np.zeros(3)
        """(3,) [N] force on the hand; set by tests"""
        self._zero = np.zeros(3)
        self.fault: str | None = None
        self.sent: list[ArmTarget] = []
        """all targets that were followed, for tests"""
        self._lock = threading.Lock()
        self._is_open = False
        self._set_points: SetPoints | None = None
        self.reset()

    def attach(self, set_points: SetPoints) -> None:
        """Follow these set points from now on; one is read every TICK."""
        self._set_points = set_points

    def reset(self) -> None:
        """Put the hand back to its start pose, without a motion."""
        if self._set_points is not None:
            self._set_points.displaced()
        self._position, self._direction, self._opening = np.array(START), DOWN, 0.08
        self._velocity = np.zeros(6)
        self._target: ArmTarget | None = None
        self._moved_at = self.clock.now()

    @override
    def connect(self) -> None:
        self._is_open, self._moved_at = True, self.clock.now()

    @override
    def read(self) -> ArmState:
        self._require_open()
        with self._lock:
            self._advance()
            return self._state()

    @override
    def move(self, target: ArmTarget) -> None:
        """Set the target of the hand; does nothing if the arm has a fault."""
        self._require_open()
        with self._lock:
            self._advance()
            self._follow(target)

    @override
    def hold(self) -> None:
        with self._lock:
            self._advance()
            self._target = None

    def tare(self) -> None:
        """Take the present force as zero: later measurements are relative to it."""
        self._zero = self.force.copy()

    @override
    def recover(self) -> None:
        self.fault = None

    @override
    def close(self) -> None:
        self._is_open = False

    def _require_open(self) -> None:
        if not self._is_open:
            raise RobotUnavailable("The fake arm is not connected.", fix="connect() first")

    def _advance(self) -> None:
        now = self.clock.now()
        self._moved_at = max(self._moved_at, now - MOST_BEHIND)
        while self._set_points is not None and self._moved_at + TICK <= now + 1e-9:
            self._obey(self._set_points.tick(self._state(), self._moved_at))
            self._pass(TICK)
        if self._set_points is None and now > self._moved_at:
            self._pass(now - self._moved_at)

    def _obey(self, point: SetPoint | None) -> None:
        if isinstance(point, ArmTarget):
            self._follow(point)
        elif point is not None:
            self._target = None

    def _follow(self, target: ArmTarget) -> None:
        if self.fault is None:
            self._target = target
            self.sent.append(target)

    def _pass(self, duration: float) -> None:
        self._moved_at += duration
        before = self._position
        if self._target is not None:
            share = 1 - math.exp(-duration / LAG)
            away: Array = np.array(between(self._direction, self._target.quaternion))
            self._position = before + share * (self._target.position - before)
            self._direction = turned(self._direction, share * away)
            if self._target.opening is not None:
                self._opening += share * (self._target.opening - self._opening)
        self._velocity = np.concatenate([(self._position - before) / duration, np.zeros(3)])

    def _state(self) -> ArmState:
        return ArmState(
            stamp=self._moved_at,
            position=self._position.copy(),
            quaternion=self._direction,
            velocity=self._velocity.copy(),
            force=self.force - self._zero,
            torque=np.zeros(3),
            joint_position=JOINTS + np.resize(self._position - START, 7),
            joint_velocity=np.resize(self._velocity[:3], 7),
            jacobian=np.zeros((6, 7)),
            opening=self._opening,
            fault=self.fault,
        )
