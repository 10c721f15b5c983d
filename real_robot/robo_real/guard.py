"""Guard between all commands and an arm: bounds or refuses a command, or stops the arm until a person re-arms it.

It is software on a machine without real-time guarantees and **no safety function**: it lowers the demand on the robot's own
safety functions and replaces none of them.

    DISCONNECTED -> IDLE -> ARMED -> RUNNING        motion only while RUNNING
                     ^                  |
                     +--- reset() --- STOPPED, FAULT    latched
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from robo_real.arm import ArmState, ArmTarget, Array, JointTarget
from robo_real.audit_log import AuditLog
from robo_real.checks import MeasurementChecks, MotionChecks
from robo_real.limits import Limits
from robo_real.rotations import OrientationCone, Quaternion, between, quaternion, turned
from robo_rl.errors import RobotStopped

DAMPING = 0.02**2 * np.eye(6)
"""Damping of the step from hand to joints; bounds it near singular postures."""
SLACK = 1e-9
NORMS = (0.5, 1.5)
"""Smallest and largest accepted norm of a commanded quaternion, since interpolation shortens quaternions.

A norm that differs from 1 by 1 % or more is reported as a change."""


class Mode(StrEnum):
    """Mode of the guard, which decides whether the arm may move: it moves in RUNNING only."""

    DISCONNECTED = "disconnected"
    IDLE = "idle"
    ARMED = "armed"
    RUNNING = "running"
    STOPPED = "stopped"
    FAULT = "fault"


LATCHED = (Mode.STOPPED, Mode.FAULT)


@dataclass(frozen=True)
class Verdict:
    """Decision of the guard on one command: where the arm may go, and why that differs from the command."""

    target: ArmTarget | None
    """Allowed target of the hand; None if the command is refused and the arm must hold"""
    reasons: tuple[str, ...] = ()
    """Names of the checks that changed or refused the command, such as "rate"; empty for an unchanged command"""


@dataclass
class RateLimit:
    """Limits of speed, acceleration and jerk of the targets of successive commands, each of shape (3,).

    The unit is m for positions and rad for rotation vectors. Slowing down is not limited, so that a stop is never delayed.
    """

    speed: float
    """[unit/s] largest speed"""
    acceleration: float
    """[unit/s^2] largest acceleration while speeding up"""
    jerk: float
    """[unit/s^3] largest rise of the acceleration while speeding up"""

    def __post_init__(self) -> None:
        self.rest()

    def rest(self) -> None:
        """Set the target's velocity and acceleration to zero."""
        self._velocity = np.zeros(3)
        self._acceleration = 0.0

    def limited(self, step: Array, duration: float) -> Array:
        """Return the part of a step (3,), taken within `duration` [s], that keeps the limits. Changes no state."""
        if duration <= 0:
            return np.zeros(3)
        most = min(self.acceleration, self._acceleration + self.jerk * duration) * duration
        return sped_up(self._velocity, step / duration, self.speed, most) * duration

    def moved(self, step: Array, duration: float) -> None:
        """Record the step (3,) that the target made in `duration` [s]: what `limited` returned, or less."""
        if duration <= 0:
            return
        velocity = step / duration
        self._acceleration = float(np.linalg.norm(velocity - _slowed_towards(self._velocity, velocity))) / duration
        self._velocity = velocity


class Guard:
    """Guard of one arm: keeps its mode, and judges every command and every measurement.

    `GuardedArm` calls `judge` for one command at a time. The thread that drives the arm calls `watch`. `stop` may be called
    from any thread at any time.
    """

    def __init__(self, limits: Limits, period: float, log: AuditLog, width: float | None = None) -> None:
        """Create a guard in the mode DISCONNECTED.

        Args:
            limits: Limits that every command and measurement must keep.
            period: [s] Nominal time between two commands.
            log: Audit log of verdicts and modes.
            width: [m] Opening of the open gripper; None if it is unknown.
        """
        self._width = width
        self.limits, self.period, self.log = limits, period, log
        self._mode = Mode.DISCONNECTED
        self._latch: tuple[Mode, str] | None = None  # apart from the mode, so that no other thread's change can undo it
        self.counts: Counter[str] = Counter()
        """Reason of a change, refusal, stop or fault -> number of times that it was given"""
        self.stops = 0
        """Number of stop requests and faults, including those to a stopped arm"""
        self.seen_stops = 0
        """`stops` at the last re-arming by a person"""
        self._newest = Mode.STOPPED, ""  # newest stop request or fault
        self._low, self._high = np.asarray(limits.box_low), np.asarray(limits.box_high)
        self._joint_low, self._joint_high = np.asarray(limits.joint_low), np.asarray(limits.joint_high)
        self._joint_speed = np.asarray(limits.joint_speed)
        self.cone = OrientationCone(limits.tilt, limits.turn, limits.reference)
        self._answering = self._measurement_checks()  # of measurements that commands answer; another thread checks the rest
        self._between = self._measurement_checks()
        self._motion = MotionChecks(limits)
        self.is_foreign = False
        """True while the robot's own server moves the joints: the motion between measurements is then not judged. Each
        measurement by itself still is."""
        self._path = RateLimit(limits.speed, limits.acceleration, limits.jerk)
        self._turning = RateLimit(limits.turn_speed, limits.turn_acceleration, limits.turn_jerk)
        self._enabled_at = -np.inf
        self.rest()

    @property
    def box(self) -> tuple[Array, Array]:
        """Lowest and highest position of the hand that the guard allows, two arrays (3,) [m]."""
        return self._low, self._high

    @property
    def mode(self) -> Mode:
        """Mode in which the guard is at present, such as IDLE or RUNNING."""
        latch = self._latch
        return self._mode if latch is None else latch[0]

    @property
    def reason(self) -> str:
        """Reason of the stop or fault, "" if there is none."""
        latch = self._latch
        return "" if latch is None else latch[1]

    # events

    def connected(self) -> None:
        """Enter the mode IDLE, because the connection to the arm is open."""
        self._enter(Mode.IDLE)

    def disconnected(self) -> None:
        """Note that the connection is closed; a stop stays in force."""
        self._enter(Mode.DISCONNECTED)

    def arm(self) -> None:
        """Allow motion from the next command on; raises RobotStopped if a person must re-arm first."""
        if self.mode in (*LATCHED, Mode.DISCONNECTED):
            raise stopped_error(self)
        self.rest()
        self.displaced()
        self._enter(Mode.ARMED)

    def reset(self, stops: int | None = None) -> None:
        """Re-arm: go from STOPPED or FAULT to IDLE, after a person has looked at the robot. `arm` must follow before a motion.

        Args:
            stops: Value of `stops` when the person looked; None for the present value.

        Raises:
            RobotStopped: There was another stop or fault since the person looked.
        """
        seen = self.stops if stops is None else stops
        if self._latch is not None and self.stops == seen:
            self.log.add("re-armed", after=self.reason)
            self._latch = None
            self._enter(Mode.IDLE if self._mode is not Mode.DISCONNECTED else Mode.DISCONNECTED)
        if self.stops != seen:  # checked after the change, too: a stop takes no lock
            self._latch_with(*self._newest)
            raise stopped_error(self)
        self.seen_stops = seen

    def pause(self) -> None:
        """Return from RUNNING to ARMED; the next command moves the arm again."""
        self.rest()
        if self.mode is Mode.RUNNING:
            self._enter(Mode.ARMED)

    def stop(self, reason: str) -> None:
        """Stop until a person re-arms; takes no lock, raises nothing."""
        self._latch_as(Mode.STOPPED, reason)

    def fault(self, reason: str) -> None:
        """Enter the mode FAULT for this reason, until a person re-arms. The same fault again changes nothing."""
        if self._latch != (Mode.FAULT, reason):  # else the same one, reported again
            self._latch_as(Mode.FAULT, reason)

    def enable(self, now: float) -> None:
        """Note that the dead-man switch was pressed at the time `now` [s]."""
        self._enabled_at = now

    def rest(self) -> None:
        """Note that the arm stands: the next command starts from its measured pose."""
        self.target: ArmTarget | None = None
        """Last allowed target; None if the arm stands."""
        self._judged_at = -np.inf
        self._late = 0
        self._answered = -np.inf
        self._answering.forget()
        self._path.rest()
        self._turning.rest()

    def displaced(self) -> None:
        """Forget earlier measurements, because something other than a command has moved the arm."""
        self._between = self._measurement_checks()
        self._motion.forget()

    # decisions

    @property
    def is_ready(self) -> bool:
        """True if the arm may be moved."""
        return self.mode in (Mode.ARMED, Mode.RUNNING)

    def watch(self, state: ArmState, sent: ArmTarget | JointTarget | None, now: float) -> bool:
        """Check a measurement, and the motion since the one before; a failed check enters the mode FAULT.

        Only the thread that drives the arm may call this.

        Args:
            state: The newest measurement.
            sent: Set point in force; None if the arm stands.
            now: [s] Present time, by the clock of the measurements.

        Returns:
            True if the arm may go on moving.
        """
        if not self.is_ready:
            self._motion.forget()
            return False
        wrong = self._between.fault(state, sent if isinstance(sent, ArmTarget) else None, now)
        if self.is_foreign:
            self._motion.forget()
        else:
            wrong = wrong or self._motion.fault(state, sent, now)
        if wrong:
            self.fault(wrong)
            return False
        return True

    def is_enabled(self, now: float) -> bool:
        """Return whether the dead-man switch is pressed, True if there is none."""
        return self.limits.dead_man is None or 0 <= now - self._enabled_at <= self.limits.dead_man

    def begin(self) -> None:
        """Start a motion of the joints, which has no target for the hand; raises RobotStopped unless the arm is armed."""
        if not self.is_ready:
            raise stopped_error(self)
        self.rest()
        self._enter(Mode.RUNNING)

    def judge(
        self,
        wanted: ArmTarget,
        state: ArmState,
        *,
        observed: float,
        now: float,
        whole: bool = False,
        goal: ArmTarget | None = None,
    ) -> Verdict:
        """Check a command, and return the target to which the arm may go.

        Args:
            wanted: Target of the command.
            state: Newest measurement.
            observed: [s] Stamp of the measurement that the command answers.
            now: [s] Present time, by the clock of the measurements.
            whole: True for a final pose that the hand may approach over many control periods. It is moved into the workspace
                box and the orientation cone, and not shortened for force, speed, reach and joints: the set points keep these.
            goal: Pose to which the hand is under way, None if there is none. A target within `jump` of it is no jump.

        Returns:
            The allowed target with the reasons of its changes. It has no target if the command is refused.

        Raises:
            RobotStopped: The arm may not move. A malformed command, a faulty measurement and too many late commands in a row
                enter the mode FAULT first.
        """
        if not self.is_ready:
            raise stopped_error(self)
        if wrong := _malformation(wanted) or self._answering.fault(state, self.target, now):
            self.fault(wrong)
            self._log(wrong, wanted, None)
            raise stopped_error(self)
        if refused := self._refusal(wanted, state, observed, now, goal):
            return self._refused(refused, wanted)
        self._late = 0
        self._answered = observed
        if self.mode is Mode.ARMED:
            self._enter(Mode.RUNNING)
        return self._bounded(wanted, state, now, whole)

    def trial(self) -> Guard:
        """Return a copy that judges a command as this guard would, without an effect on this guard or its log."""
        found = copy.copy(self)
        found.log, found.counts = AuditLog(), Counter()
        found._answering, found._path = copy.copy(self._answering), copy.copy(self._path)
        found._turning = copy.copy(self._turning)
        return found

    def _refusal(self, wanted: ArmTarget, state: ArmState, observed: float, now: float, goal: ArmTarget | None) -> str:
        """Return the reason to refuse this command, "" to accept it."""
        limits = self.limits
        if not self.is_enabled(now):
            return "dead_man"
        if not np.isfinite(observed) or not -SLACK <= now - observed <= limits.command_age:
            return "late"
        if observed < self._answered:
            return "out_of_order"
        if now - state.stamp > limits.state_age:
            return "state_late"
        places = [state.position, *([] if goal is None else [goal.position])]
        is_near = any(np.abs(wanted.position - place).max() <= limits.jump for place in places)
        return "" if is_near else "jump"

    def _refused(self, reason: str, wanted: ArmTarget) -> Verdict:
        self._late = self._late + 1 if reason in ("late", "out_of_order", "state_late") else 0
        self._log(reason, wanted, None)
        self.counts[reason] += 1
        self.target = None
        self._path.rest()
        self._turning.rest()
        if self._late > self.limits.late_in_a_row:
            self.fault(reason)
            raise stopped_error(self)
        return Verdict(None, (reason,))

    def _bounded(self, wanted: ArmTarget, state: ArmState, now: float, whole: bool) -> Verdict:
        reasons = ["quaternion"] if abs(np.linalg.norm(wanted.quaternion) - 1) >= 0.01 else []
        since = self.period if self.target is None else now - self._judged_at
        duration = float(np.clip(since, 0.0, 2 * self.period))  # faster commands do not move the arm faster
        last = self.target or ArmTarget(
            np.clip(state.position, self._low, self._high), self.cone.nearest(state.quaternion), None
        )
        direction = quaternion(wanted.quaternion)
        if whole:
            position = _noted(reasons, "box", np.clip(wanted.position, self._low, self._high), wanted.position)
            orientation = self._inside(direction, reasons)
        else:
            position = self._place(wanted.position, last.position, state, duration, reasons)
            orientation = self._direction(direction, last.quaternion, state, duration, reasons)
            position, orientation = self._within_joints(position, orientation, state, reasons)
        opening = None if wanted.opening is None else float(np.clip(wanted.opening, 0.0, self.limits.opening))
        if opening != wanted.opening:
            reasons.append("opening")
        if (position < self._low - SLACK).any() or (position > self._high + SLACK).any():
            return self._refused("workspace", wanted)
        self._path.moved(position - last.position, duration)
        self._turning.moved(np.array(between(last.quaternion, orientation)), duration)
        self.target, self._judged_at = ArmTarget(position, orientation, opening), now
        if reasons:
            self.counts.update(reasons)
            self._log(reasons, wanted, self.target)
        return Verdict(self.target, tuple(reasons))

    def _place(self, wanted: Array, last: Array, state: ArmState, duration: float, reasons: list[str]) -> Array:
        limits, here = self.limits, state.position
        pressing = (np.abs(state.force) > limits.soft_force) & ((wanted - here) * state.force < 0)
        position = _noted(reasons, "soft_force", np.where(pressing, here, wanted), wanted)
        position = _noted(reasons, "box", np.clip(position, self._low, self._high), position)
        position = _noted(reasons, "rate", last + self._path.limited(position - last, duration), position)
        position = np.clip(position, self._low, self._high)  # a target that turns late must not leave the box
        return _noted(reasons, "reach", np.clip(position, here - limits.reach, here + limits.reach), position)

    def _direction(
        self, wanted: Quaternion, last: Quaternion, state: ArmState, duration: float, reasons: list[str]
    ) -> Quaternion:
        inside = self._inside(wanted, reasons)
        step = np.array(between(last, inside))
        allowed = self._turning.limited(step, duration)
        if np.abs(allowed - step).max() > 1e-6:
            reasons.append("turn_rate")
        away: Array = np.array(between(state.quaternion, turned(last, allowed)))
        angle = float(np.linalg.norm(away))
        if angle > self.limits.reach_turn:
            reasons.append("reach_turn")
            away *= self.limits.reach_turn / angle
        found = turned(state.quaternion, away)
        if not self.cone.contains(found):  # the cone is not convex: between two inner directions, stay
            found = self.cone.nearest(state.quaternion)
        return found

    def _inside(self, wanted: Quaternion, reasons: list[str]) -> Quaternion:
        inside = self.cone.nearest(wanted)
        if max(np.abs(between(inside, wanted))) > 1e-6:
            reasons.append("cone")
        return inside

    def _within_joints(
        self, position: Array, orientation: Quaternion, state: ArmState, reasons: list[str]
    ) -> tuple[Array, Quaternion]:
        """Return the part of the motion that keeps all joints within their limits, by one linear step."""
        jacobian = state.jacobian
        if not jacobian.any():
            return position, orientation
        away = np.array(between(state.quaternion, orientation))
        step = np.concatenate([position - state.position, away])
        joints = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + DAMPING, step)
        margin, most = self.limits.joint_margin, self._joint_speed * self.period
        up = np.minimum(np.maximum(self._joint_high - margin - state.joint_position, 0.0), most)
        down = np.minimum(np.maximum(state.joint_position - self._joint_low - margin, 0.0), most)
        room = np.where(joints > 0, up, down)
        share = min(1.0, float(np.min(room / np.maximum(np.abs(joints), 1e-12))))
        if share >= 1.0 - 1e-9:
            return position, orientation
        reasons.append("joint_limit")
        found = turned(state.quaternion, share * away)
        found = found if self.cone.contains(found) else self.cone.nearest(state.quaternion)
        return state.position + share * (position - state.position), found

    def _measurement_checks(self) -> MeasurementChecks:
        return MeasurementChecks(self.limits, self._low, self._high, self.cone, self._width)

    # modes

    def _enter(self, mode: Mode) -> None:
        before, self._mode = self._mode, mode
        if mode is not before:
            self.log.add("mode", mode=mode, before=before)

    def _latch_as(self, mode: Mode, reason: str) -> None:
        self._newest = mode, reason
        self.stops += 1  # before the latch, which a re-arming may be clearing
        if self._latch is None:
            self._latch_with(mode, reason)

    def _latch_with(self, mode: Mode, reason: str) -> None:
        self._latch = (mode, reason)
        self.counts[reason] += 1
        self.log.add("mode", mode=mode, before=self._mode, reason=reason)

    def _log(self, reasons: str | Sequence[str], wanted: ArmTarget, sent: ArmTarget | None) -> None:
        self.log.add(
            "guard", reasons=[reasons] if isinstance(reasons, str) else list(reasons), wanted=_row(wanted), sent=_row(sent)
        )


def stopped_error(guard: Guard) -> RobotStopped:
    """Return the error to raise for a command to an arm that may not move; it has the guard's mode and reason."""
    return RobotStopped(guard.mode, guard.reason)


def _malformation(wanted: ArmTarget) -> str:
    """Return the reason why a target is malformed, "" if it is not."""
    if np.shape(wanted.position) != (3,) or len(wanted.quaternion) != 4:
        return "wrong_shape"
    if not np.isfinite([*wanted.position, *wanted.quaternion, wanted.opening or 0.0]).all():
        return "not_finite"
    return "" if NORMS[0] < np.linalg.norm(wanted.quaternion) < NORMS[1] else "no_unit_quaternion"


def _noted(reasons: list[str], reason: str, allowed: Array, wanted: Array) -> Array:
    if np.abs(allowed - wanted).max() > SLACK:
        reasons.append(reason)
    return allowed


def _row(target: ArmTarget | None) -> list[str] | None:
    """Return a target as texts for the log, None for no target. Texts, because JSON has no NaN."""
    if target is None:
        return None
    opening = "as it is" if target.opening is None else f"{target.opening:.6g}"
    return [*(f"{value:.6g}" for value in [*np.ravel(target.position), *target.quaternion]), opening]


def sped_up(velocity: Array, wanted: Array, speed: float, most: float) -> Array:
    """Return the velocity (3,) nearest to a wanted one that may follow the present one.

    Args:
        velocity: (3,) Present velocity.
        wanted: (3,) Wanted velocity; it is first scaled down to a norm of `speed`.
        speed: Largest norm of a velocity.
        most: Largest norm of the change while speeding up. Slowing down is not limited.
    """
    wanted = shortened(wanted, speed)
    before = _slowed_towards(velocity, wanted)
    return before + shortened(wanted - before, most)


def shortened(vector: Array, most: float) -> Array:
    """Return a vector scaled down to a norm of at most `most`."""
    length = float(np.linalg.norm(vector))
    return vector if length <= most else vector * (most / length)


def _slowed_towards(velocity: Array, wanted: Array) -> Array:
    """Return the velocity nearest to the wanted one that is reachable by slowing down alone."""
    square = float(velocity @ velocity)
    if square < 1e-18:
        return np.zeros(3)
    share = min(max(float(wanted @ velocity) / square, 0.0), 1.0)
    return share * velocity
