"""An arm that does something else than it is told: a driver around the twin, for tests and `python -m robo_bench.robot_motion`.

The guard sees this driver alone; what the plant does is read from the twin inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from robo_real.arm import ArmState, ArmTarget, SetPoint, SetPoints
from robo_real.clock import Clock, ManualClock
from robo_real.rotations import between, turned
from robo_real.twin import Twin

RUN_OFF = 0.02
"""Distance [m] by which the set points of an arm that runs off move away."""
OFFSET = np.array([0.0, 0.015, 0.0])
"""[m] by which a measured hand is off from one moment on"""
SWAPPED = [4, 1, 6, 3, 0, 5, 2]
"""order of the joints with 1 and 5, and 3 and 7, in each other's place"""
NOISE = 1e-6
"""Noise [rad] on joint angles that an otherwise frozen measurement shows."""

Mislead = Callable[[ArmTarget, ArmState], ArmTarget]


def _run_off(point: ArmTarget, state: ArmState) -> ArmTarget:
    lead = point.position - state.position
    size = float(np.linalg.norm(lead))
    away = -lead / size if size > 1e-4 else np.array([0.0, -1.0, 0.0])
    return replace(point, position=state.position + RUN_OFF * away)


def _mirror(point: ArmTarget, state: ArmState) -> ArmTarget:
    return replace(point, position=state.position + (point.position - state.position) * [1.0, -1.0, 1.0])


def _turn_frame(point: ArmTarget, state: ArmState) -> ArmTarget:
    x, y, z = point.position - state.position
    return replace(point, position=np.add(state.position, [-y, x, z]))


def _turn_back(point: ArmTarget, state: ArmState) -> ArmTarget:
    lead = np.array(between(state.quaternion, point.quaternion))
    return replace(point, quaternion=turned(state.quaternion, -lead))


def _overshoot(gain: float) -> Mislead:
    def mislead(point: ArmTarget, state: ArmState) -> ArmTarget:
        return replace(point, position=state.position + gain * (point.position - state.position))

    return mislead


MISLED: Mapping[str, Mislead] = {
    "runs off against the command": _run_off,
    "mirrors y": _mirror,
    "mirrors the turn": _turn_back,
    "frame turned by 90 degrees": _turn_frame,
    "overshoots, gain 3": _overshoot(3.0),
    "overshoots, gain 8": _overshoot(8.0),
}
"""Name -> the target that the arm takes for a set point"""
MISMEASURED = ("joints swapped", "frozen with noise", "measured place off by 15 mm")
KINDS = (*MISLED, *MISMEASURED)


class MisbehavingArm:
    """Driver of a twin that follows its set points faithfully until `begin`."""

    name, has_gripper, is_simulated = "test/Misbehaving", True, True

    def __init__(self, kind: str, *, knows_response: bool = False) -> None:
        """Create an arm that misbehaves in a given way after `begin`.

        Args:
            kind: Way of misbehaving.
            knows_response: True to give the guard the twin's response to set points; False for a robot with an unknown one.
        """
        self.clock: Clock = ManualClock()
        self.twin = Twin(clock=self.clock)
        self.twin._plant.clip[:3] = 0.2  # no controller of ours bounds what this arm does
        self.kind, self.period, self.home = kind, 0.02, self.twin.home  # as of a robot behind HTTP
        if knows_response:
            self.response, self.period = self.twin.response, self.twin.period
        self._every = round(self.period / self.twin.period)
        self._ticks = 0
        self._points: SetPoints | None = None
        self._misbehaves = False
        self._frozen: ArmState | None = None
        self._random = np.random.default_rng(0)

    def begin(self) -> None:
        """Misbehave from now on."""
        self._misbehaves = True

    # the driver

    def attach(self, set_points: SetPoints) -> None:
        """Take the guard's set points, and give the twin this arm in their place, so that it can falsify them."""
        self._points = set_points
        self.twin.attach(self)

    def connect(self) -> None:
        """Connect the twin that this arm falsifies."""
        self.twin.connect()

    def read(self) -> ArmState:
        """Return a measurement that the misbehaving arm reports, which need not be true."""
        return self._shown(self.twin.read())

    def move(self, target: ArmTarget) -> None:
        """Send a target; not used, since the set points come by `tick`."""
        self.twin.move(target)

    def hold(self) -> None:
        """Hold the twin: even a misbehaving arm obeys a stop."""
        self.twin.hold()

    def recover(self) -> None:
        """Clear the twin's error."""
        self.twin.recover()

    def close(self) -> None:
        """Stop the twin."""
        self.twin.close()

    # the set points on their way to the twin

    def displaced(self) -> None:
        """Pass on that the scene was reset."""
        if self._points is not None:
            self._points.displaced()

    def tick(self, state: ArmState, now: float) -> SetPoint | None:
        """Return what the plant does instead of the set point."""
        assert self._points is not None
        self._ticks += 1
        if self._ticks % self._every:
            return None
        point = self._points.tick(self._shown(state), now)
        mislead = MISLED.get(self.kind)
        if not self._misbehaves or mislead is None or not isinstance(point, ArmTarget):
            return point
        return mislead(point, state)

    def _shown(self, state: ArmState) -> ArmState:
        if not self._misbehaves:
            return state
        if self.kind == "joints swapped":
            return replace(state, joint_position=state.joint_position[SWAPPED], joint_velocity=state.joint_velocity[SWAPPED])
        if self.kind == "frozen with noise":
            self._frozen = self._frozen or state
            noise: npt.NDArray[np.float64] = self._random.normal(0, NOISE, len(state.joint_position))
            return replace(self._frozen, stamp=state.stamp, joint_position=self._frozen.joint_position + noise)
        return replace(state, position=state.position + OFFSET) if self.kind.startswith("measured place") else state
