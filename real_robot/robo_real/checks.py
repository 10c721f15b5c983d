"""Checks of the measurements at each control tick; each check returns a reason to stop the arm, or "".

Set points are placed near the measured hand, so they follow an arm that runs away, and checks of commands alone would not
notice. Therefore the motion itself is judged, with every driver. The arm must stop if it is faster than the limits, moves away
from its set point without slowing down, stands still although its set point is ahead, or contradicts its measured velocities.
Above the share `PUSHED` of the soft force something may push the hand or hold it back: motion away from the set point and
standing still are then no reasons to stop.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from robo_real.arm import ArmState, ArmTarget, Array, JointTarget
from robo_real.limits import Limits
from robo_real.rotations import OrientationCone, between

NARROWEST, WIDEST = -0.005, 1.1
"""[m] smallest opening that a measurement may report; the largest one is `WIDEST` times the gripper's width, plus 5 mm"""
CLOSE_TO_A_TURN = 0.5
"""[rad] a change of a joint that differs from a whole turn by less is a jump of its encoder, not a motion"""
UNDER_WAY = 0.004
"""[m] distance between hand and set point above which measurements must change"""
WINDOW = 0.06
"""[s] time over which a speed is measured"""
FASTER = 1.3
"""multiple of a speed limit above which the arm must stop"""
NOISE = (0.002, 0.05, 0.03)
"""largest error of a measurement at either end of the window: [m] and [rad] of the hand, [rad] of a joint"""
AWAY = 0.5
"""share of the reach that an arm may move away from its set point without slowing down"""
AWAY_JOINT = 0.1
"""[rad] that a joint may move away from its set point without slowing down"""
SPEEDING_UP = 0.4
"""share of the distances of `AWAY` and `AWAY_JOINT` that an arm may move away while it speeds up, which no delay explains"""
GROWN = 1.4
"""multiple of the speed at which an arm began to move away; above it the arm counts as speeding up"""
OPPOSED = 0.1
"""share of the distances of `AWAY` and `AWAY_JOINT`, by which an arm that counts as speeding up must be off its set point"""
ASTRAY = 0.5
"""cosine of the angle between the motion and the way to the set point; above it the arm as a whole goes where it was sent"""
LEAST_TIME = 0.06 - 1e-6
"""[s] shortest motion away from the set point that stops the arm"""
SLOWED = 0.7
"""share of its fastest speed below which an arm that moves away is slowing down, as after a reversal"""
RECENT = 0.3
"""[s] time constant with which the fastest speed is forgotten: an arm of steady speed is not slowing down"""
OUTRUN = 1.5
"""largest ratio of two lengths over `WINDOW`: the way of the hand, to and fro included, and the way of its set points plus
their distance ahead of the hand at the beginning"""
PUSHED = 0.4
"""share of the soft force above which something touches the hand"""
AHEAD, STILL = 0.004, (2e-4, 5e-4)
"""[m] distance to the set point above which the hand must move; largest changes of the hand [m] and of a joint [rad] that count
as noise and not as motion"""
CONTRADICTION = 0.5
"""share of the reach by which the way of the hand and its integrated measured velocity may differ, summed up over `MEMORY`"""
MEMORY = 0.3
"""[s] time constant with which older differences are forgotten"""
FROZEN = 0.2
"""share of the reach that a hand may report to move, at a steady velocity, while it stays in place"""
STEADY = 0.1
"""share by which a velocity may change and still count as steady"""

SetPoint = ArmTarget | JointTarget | None
"""Set point in force; None if the arm is held"""


class MeasurementChecks:
    """Checks of each measurement by itself, and of its change since the measurement before. Used by one thread."""

    def __init__(self, limits: Limits, low: Array, high: Array, cone: OrientationCone, width: float | None = None) -> None:
        """Create the checks; there is no measurement before yet.

        Args:
            limits: Limits of the arm.
            low: (3,) [m] Lowest x, y, z of the workspace box.
            high: (3,) [m] Highest x, y, z.
            cone: Orientations that the hand may have.
            width: [m] Opening of the open gripper; None if it is unknown.
        """
        self._widest = np.inf if width is None else WIDEST * width - NARROWEST
        self._limits, self._low, self._high, self._cone = limits, low, high, cone
        self._joint_low, self._joint_high = np.asarray(limits.joint_low), np.asarray(limits.joint_high)
        self.forget()

    def forget(self) -> None:
        """Forget earlier measurements, so that the next one is not compared with the one before."""
        self._same: tuple[bytes, float] = (b"", -np.inf)
        self._before: ArmState | None = None

    def fault(self, state: ArmState, sent: ArmTarget | None, now: float) -> str:
        """Check a measurement by itself and against the one before.

        Args:
            state: The newest measurement.
            sent: Present target of the arm; None if it stands.
            now: [s] Present time, by the clock of the measurements.

        Returns:
            The reason to stop the arm, such as "hard_force"; "" if there is none.
        """
        if state.fault is not None:
            return f"robot: {state.fault}"
        if not state.is_finite:
            return "state_not_finite"
        if np.linalg.norm(state.force) > self._limits.hard_force or np.linalg.norm(state.torque) > self._limits.hard_torque:
            return "hard_force"
        if not NARROWEST <= state.opening <= self._widest:
            return "opening_out_of_range"
        return self._fault_of_pose(state) or self._fault_since_before(state, sent, now)

    def _fault_of_pose(self, state: ArmState) -> str:
        joints = state.joint_position
        if len(joints) != len(self._joint_low):
            return "other_number_of_joints"
        if self._before is not None:
            change = np.abs(joints - self._before.joint_position)
            if (np.abs(change - 2 * np.pi) < CLOSE_TO_A_TURN).any():
                return "joint_jumped_by_a_whole_turn"
        if (joints < self._joint_low).any() or (joints > self._joint_high).any():
            return "joint_beyond_limit"
        outside = np.maximum(np.maximum(self._low - state.position, state.position - self._high), 0.0)
        is_inside = outside.max() <= self._limits.reach and self._cone.excess(state.quaternion) <= self._limits.reach_turn
        return "" if is_inside else "outside_workspace"

    def _fault_since_before(self, state: ArmState, sent: ArmTarget | None, now: float) -> str:
        before, self._before = self._before, state
        if before is not None and state.stamp > before.stamp:
            most = 3 * (state.stamp - before.stamp) * self._limits.speed + self._limits.reach
            if np.linalg.norm(state.position - before.position) > most:
                return "state_jumped"
        elif before is not None and state.stamp < before.stamp:
            return "state_from_the_past"
        shown = state.joint_position.tobytes() + state.joint_velocity.tobytes()
        if shown != self._same[0]:
            self._same = (shown, now)
        is_under_way = sent is not None and bool(np.abs(sent.position - state.position).max() > UNDER_WAY)
        return "state_frozen" if is_under_way and now - self._same[1] > self._limits.state_age else ""


@dataclass
class _Away:
    """Way (N,) that each of N coordinates has gone away from its set point without a turn."""

    most: float
    way: Array = field(default_factory=lambda: np.zeros(0))
    _side: Array = field(default_factory=lambda: np.zeros(0))
    _since: Array = field(default_factory=lambda: np.zeros(0))
    _speed: Array = field(default_factory=lambda: np.zeros(0))
    _first: Array = field(default_factory=lambda: np.zeros(0))
    _fastest: Array = field(default_factory=lambda: np.zeros(0))

    def forget(self) -> None:
        self.way = np.zeros(0)

    def include(self, step: Array, lead: Array, duration: float) -> bool:
        """Add the motion between two measurements.

        Args:
            step: (N,) motion of each coordinate.
            lead: (N,) set point minus the coordinate, before the motion.
            duration: [s] between the measurements.

        Returns:
            True if a coordinate has gone too far, for too long, to be explained by a delay.
        """
        if len(self.way) != len(step):
            self.way, self._side, self._since, self._speed, self._first, self._fastest = np.zeros((6, len(step)))
        away = np.where(lead == 0, np.abs(step), -step * np.sign(lead))
        turns = (away > 0) & (np.sign(step) != self._side)  # trembling to and fro is no way
        begins = (self.way <= 0) | turns
        self._side = np.where(away > 0, np.sign(step), self._side)
        self.way = np.maximum(np.where(turns, 0.0, self.way) + away, 0.0)
        speed = away / duration
        share = 1.0 - np.exp(-duration / 0.02)
        self._speed = np.where(begins, speed, self._speed + share * (speed - self._speed))
        self._first = np.where(begins, speed, self._first)
        self._fastest = np.where(begins, speed, np.maximum(np.exp(-duration / RECENT) * self._fastest, self._speed))
        self._since = np.where(begins, duration, self._since + duration)
        goes = (self.way > self.most) & (self._speed >= SLOWED * self._fastest)
        is_astray = float(step @ lead) < ASTRAY * float(np.linalg.norm(step) * np.linalg.norm(lead))
        grows = (self._speed >= self._fastest) & (self._speed >= GROWN * self._first) & (np.abs(lead) > OPPOSED * self.most)
        speeds_up = grows & (self.way > SPEEDING_UP * self.most) & is_astray
        return bool(((goes | speeds_up) & (self._since >= LEAST_TIME)).any())


class MotionChecks:
    """Checks of the motion between measurements, for the thread that drives the arm."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._joint_speed = np.asarray(limits.joint_speed)
        self._place, self._turn, self._joints = _Away(AWAY * limits.reach), _Away(AWAY * limits.reach_turn), _Away(AWAY_JOINT)
        self.forget()

    def forget(self) -> None:
        """Forget earlier measurements, because something other than a set point moved the arm."""
        self._seen: deque[ArmState] = deque()
        self._held: ArmTarget | None = None  # place of an arm that is held
        self._kind: type | None = None  # of the set point in force
        self._still: tuple[ArmState, float] | None = None
        self._contradiction = np.zeros((2, 3))
        self._by_word = 0.0  # [s]
        self._forget_ways()

    def _forget_ways(self) -> None:
        self._ways: deque[tuple[float, float, float, float]] = deque()  # [s], then [m] of hand, set point and lead of each tick
        self._point: Array | None = None  # of the tick before
        for away in (self._place, self._turn, self._joints):
            away.forget()

    def fault(self, state: ArmState, sent: SetPoint, now: float) -> str:
        """Check the motion since the last measurement.

        Args:
            state: The newest measurement.
            sent: Set point that was in force since the measurement before; None if the arm is held.
            now: [s] Present time, by the clock of the measurements.

        Returns:
            The reason to stop the arm, such as "moves_too_fast"; "" if there is none.
        """
        before = self._seen[-1] if self._seen else None
        if before is not None and state.stamp <= before.stamp:
            return ""  # no new measurement
        self._seen.append(state)
        while len(self._seen) > 2 and state.stamp - self._seen[1].stamp >= WINDOW:
            self._seen.popleft()
        if before is None:
            return ""
        found = self._too_fast(state, now - state.stamp) or self._contradictory(before, state)
        return found or self._away(before, state, sent) or self._standing(state, sent, now)

    def _too_fast(self, state: ArmState, age: float) -> str:
        """Return the reason if the arm was too fast over `WINDOW`, else "".

        age: [s] by which the measurement may be newer than its stamp.
        """
        then, limits = self._seen[0], self._limits
        most = FASTER * (state.stamp - then.stamp + max(age, 0.0))
        steps = np.diff([seen.position for seen in self._seen], axis=0)  # to and fro is fast, too
        if np.linalg.norm(steps, axis=1).sum() > most * limits.speed + NOISE[0]:
            return "moves_too_fast"
        if np.linalg.norm(between(then.quaternion, state.quaternion)) > most * limits.turn_speed + NOISE[1]:
            return "turns_too_fast"
        is_fast = np.abs(state.joint_position - then.joint_position) > most * self._joint_speed + NOISE[2]
        return "joint_too_fast" if is_fast.any() else ""

    def _contradictory(self, before: ArmState, state: ArmState) -> str:
        """Return the reason if the way, the velocity and the joint velocities contradict each other, else "".

        An arm that reports no velocities passes.
        """
        duration = state.stamp - before.stamp
        velocity = (before.velocity[:3] + state.velocity[:3]) / 2
        if not velocity.any():
            return ""
        if self._moves_by_word_alone(before, state):
            return "velocity_contradicts_position"
        errors = np.zeros((2, 3))
        errors[0] = state.position - before.position - velocity * duration
        if state.jacobian.any():
            errors[1] = (state.jacobian[:3] @ state.joint_velocity - state.velocity[:3]) * duration
        self._contradiction = np.exp(-duration / MEMORY) * self._contradiction + errors
        most = max(CONTRADICTION * self._limits.reach, 2 * NOISE[0])
        off = np.linalg.norm(self._contradiction, axis=1) > most
        return "velocity_contradicts_position" if off[0] else "joints_contradict_velocity" if off[1] else ""

    def _moves_by_word_alone(self, before: ArmState, state: ArmState) -> bool:
        """Return True for a hand that stays in place but reports a steady velocity, as repeated old measurements do."""
        speed = float(np.linalg.norm(state.velocity[:3]))
        changes = float(np.linalg.norm(state.velocity[:3] - before.velocity[:3])) > STEADY * speed
        stays = float(np.abs(state.position - before.position).max()) <= STILL[0]
        self._by_word = self._by_word + state.stamp - before.stamp if stays and not changes else 0.0
        most = max(FROZEN * self._limits.reach, NOISE[0])
        return self._by_word >= LEAST_TIME and self._by_word * speed > most

    def _away(self, before: ArmState, state: ArmState, sent: SetPoint) -> str:
        kind = type(sent)
        if kind is not self._kind or self._is_pushed(state):
            self._kind, self._held = kind, ArmTarget(state.position, state.quaternion, None)
            self._forget_ways()
            return ""
        duration = state.stamp - before.stamp
        if isinstance(sent, JointTarget):
            step = state.joint_position - before.joint_position
            return "joint_moves_away" if self._joints.include(step, sent.position - before.joint_position, duration) else ""
        target = sent or self._held
        if target is None or (sent is None and not state.force.any()):  # no force is measured: a person may push a held arm
            return ""
        if self._place.include(state.position - before.position, target.position - before.position, duration):
            return "moves_away"
        if sent is not None and self._outruns(before, state, target.position):
            return "outruns_command"
        turn, lead = (np.array(between(before.quaternion, to)) for to in (state.quaternion, target.quaternion))
        return "turns_away" if self._turn.include(turn, lead, duration) else ""

    def _outruns(self, before: ArmState, state: ArmState, point: Array) -> bool:
        """Return True for a hand that goes much further than its set points, such as one that swings around them."""
        last, self._point = (point if self._point is None else self._point), point
        lead = max(float(np.linalg.norm(each - before.position)) for each in (last, point))  # the last: the hand must brake
        hand, moved = np.linalg.norm([state.position - before.position, point - last], axis=1)
        self._ways.append((before.stamp, float(hand), float(moved), lead))
        while len(self._ways) > 1 and state.stamp - self._ways[1][0] >= WINDOW:
            self._ways.popleft()
        _, way, points, _ = np.sum(self._ways, axis=0)
        _, _, first, led = self._ways[0]
        return bool(way > OUTRUN * (points - first + led) + 2 * NOISE[0])

    def _standing(self, state: ArmState, sent: SetPoint, now: float) -> str:
        """Return "state_frozen" for a hand that stays too long although its set point is ahead; noise is no motion."""
        is_sent = isinstance(sent, ArmTarget) and float(np.abs(sent.position - state.position).max()) > AHEAD
        if not is_sent or self._is_pushed(state):
            self._still = None
            return ""
        then = self._still[0] if self._still else None
        if then is None or (
            np.abs(state.position - then.position).max() > STILL[0]
            or np.abs(state.joint_position - then.joint_position).max() > STILL[1]
        ):
            self._still = (state, now)
        assert self._still is not None
        return "state_frozen" if now - self._still[1] > self._limits.state_age else ""

    def _is_pushed(self, state: ArmState) -> bool:
        return float(np.linalg.norm(state.force)) > PUSHED * self._limits.soft_force
