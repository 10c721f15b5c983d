"""Stands between any command and an arm: bounds it, refuses it, or stops the arm until a person re-arms it.

It is software on a machine without real-time guarantees and **no safety function**: it lowers the demand on the robot's own,
it replaces none of them.

    DISCONNECTED -> IDLE -> ARMED -> RUNNING        motion only while RUNNING
                     ^                  |
                     +--- reset() --- STOPPED, FAULT    latched
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from robo_real.arm import ArmState, ArmTarget, Array
from robo_real.audit_log import AuditLog
from robo_real.limits import Limits
from robo_real.rate_limit import RateLimit
from robo_real.rotations import (
    Quaternion,
    between,
    from_tilt_and_turn,
    quaternion,
    tilt_and_turn,
    turned,
)
from robo_rl.errors import RobotStopped

DAMPING = 0.02**2 * np.eye(6)
"""Of the step from hand to joints, to keep it bounded where the arm is stretched."""
SLACK = 1e-9


class Mode(StrEnum):
    """What an arm may do."""

    DISCONNECTED = "disconnected"
    IDLE = "idle"
    ARMED = "armed"
    RUNNING = "running"
    STOPPED = "stopped"
    FAULT = "fault"


LATCHED = (Mode.STOPPED, Mode.FAULT)


@dataclass(frozen=True)
class Verdict:
    """What becomes of a command."""

    target: ArmTarget | None
    """Where the hand may be sent; None where the arm is to hold still"""
    reasons: tuple[str, ...] = ()
    """What was changed and why; empty where the command passed as it was"""


class Guard:
    """Judges commands one after the other; `stop` may come from any thread at any time."""

    def __init__(self, limits: Limits, period: float, log: AuditLog) -> None:
        """limits: finite, or there is no guard. period: [s] between commands as they are meant to come."""
        self.limits, self.period, self.log = limits, period, log
        self._mode = Mode.DISCONNECTED
        self._latch: tuple[Mode, str] | None = None  # apart from the mode, so that no other thread's change can undo it
        self.counts: Counter[str] = Counter()
        """How often each reason was given."""
        self.stops = 0
        """Times that somebody stopped it, also while it was stopped already."""
        self.looked = 0
        """What `stops` was when a person had looked and re-armed it last."""
        self._asked = ""  # why somebody stopped it last
        self._low, self._high = np.asarray(limits.box_low), np.asarray(limits.box_high)
        self._joint_low, self._joint_high = np.asarray(limits.joint_low), np.asarray(limits.joint_high)
        self._joint_speed = np.asarray(limits.joint_speed)
        self._path = RateLimit(limits.speed, limits.acceleration, limits.jerk)
        self._turning = RateLimit(limits.turn_speed, limits.turn_acceleration, limits.turn_jerk)
        self._enabled_at = -np.inf
        self.rest()

    @property
    def mode(self) -> Mode:
        """What the arm may do now."""
        latch = self._latch
        return self._mode if latch is None else latch[0]

    @property
    def reason(self) -> str:
        """Why the arm was stopped; "" while it was not."""
        latch = self._latch
        return "" if latch is None else latch[1]

    # what people and processes tell it

    def connected(self) -> None:
        """The link is open."""
        self._enter(Mode.IDLE)

    def disconnected(self) -> None:
        """The link is closed; what stopped the arm stays in force."""
        self._enter(Mode.DISCONNECTED)

    def arm(self) -> None:
        """Allows motion from the next command on; raises RobotStopped where a person must re-arm first."""
        if self.mode in (*LATCHED, Mode.DISCONNECTED):
            raise stopped(self)
        self.rest()
        self._enter(Mode.ARMED)

    def reset(self, stops: int | None = None) -> None:
        """A person has looked and re-arms: leaves STOPPED or FAULT for IDLE, from where `arm` leads on.

        stops: what that was when they looked, now by default. Raises RobotStopped where somebody has stopped it since.
        """
        seen = self.stops if stops is None else stops
        if self._latch is not None and self.stops == seen:
            self.log.add("re-armed", after=self.reason)
            self._latch = None
            self._enter(Mode.IDLE if self._mode is not Mode.DISCONNECTED else Mode.DISCONNECTED)
        if self.stops != seen:  # looked at last, too: a stop takes no lock
            self._latch_with(Mode.STOPPED, self._asked)
            raise stopped(self)
        self.looked = seen

    def pause(self) -> None:
        """The arm holds still until the next command, without anything being wrong."""
        self.rest()
        if self.mode is Mode.RUNNING:
            self._enter(Mode.ARMED)

    def stop(self, reason: str) -> None:
        """Stops until a person re-arms; takes no lock, raises nothing."""
        self._asked = reason
        self.stops += 1
        self._latch_as(Mode.STOPPED, reason)

    def fault(self, reason: str) -> None:
        """Something is wrong: stops until a person re-arms."""
        self._latch_as(Mode.FAULT, reason)

    def enable(self, now: float) -> None:
        """The person's hand is on the dead-man switch now."""
        self._enabled_at = now

    def rest(self) -> None:
        """The arm stands still where it is: the next command starts from there."""
        self.target: ArmTarget | None = None
        """Where the arm was last sent; None while it stands."""
        self._judged_at = -np.inf
        self._late = 0
        self._answered = -np.inf
        self._same: tuple[bytes, float] = (b"", -np.inf)
        self._before: ArmState | None = None
        self._path.rest()
        self._turning.rest()

    # what it decides

    def judge(self, wanted: ArmTarget, state: ArmState, *, observed: float, now: float) -> Verdict:
        """Returns what may be sent to the arm.

        observed: stamp of the measurement that the command answers. now: time of the same clock. Raises RobotStopped where
        nothing may be sent at all.
        """
        if self.mode not in (Mode.ARMED, Mode.RUNNING):
            raise stopped(self)
        if wrong := self._wrong_with(wanted) or self._wrong_with_state(state, now):
            self.fault(wrong)
            self._log(wrong, wanted, None)
            raise stopped(self)
        if refused := self._refusal(wanted, state, observed, now):
            return self._refused(refused, wanted)
        self._late = 0
        self._answered = observed
        if self.mode is Mode.ARMED:
            self._enter(Mode.RUNNING)
        return self._bounded(wanted, state, now)

    def _wrong_with(self, wanted: ArmTarget) -> str:
        numbers = [*np.ravel(wanted.position), *wanted.quaternion, wanted.opening]
        if np.shape(wanted.position) != (3,) or len(wanted.quaternion) != 4:
            return "wrong_shape"
        if not np.isfinite(numbers).all():
            return "not_finite"
        return "" if abs(np.linalg.norm(wanted.quaternion) - 1) < 0.01 else "no_unit_quaternion"

    def _wrong_with_state(self, state: ArmState, now: float) -> str:
        """Returns why a measurement forbids all motion, "" where it does not."""
        if state.fault is not None:
            return f"robot: {state.fault}"
        if not state.is_finite:
            return "state_not_finite"
        if np.linalg.norm(state.force) > self.limits.hard_force or np.linalg.norm(state.torque) > self.limits.hard_torque:
            return "hard_force"
        return self._wrong_with_pose(state) or self._wrong_since_before(state, now)

    def _wrong_with_pose(self, state: ArmState) -> str:
        joints = state.joint_position
        if len(joints) != len(self._joint_low):
            return "other_number_of_joints"
        if (joints < self._joint_low).any() or (joints > self._joint_high).any():
            return "joint_beyond_limit"
        outside = np.maximum(np.maximum(self._low - state.position, state.position - self._high), 0.0)
        is_inside = outside.max() <= self.limits.reach and self._lean(state.quaternion) <= self.limits.reach_turn
        return "" if is_inside else "outside_workspace"

    def _wrong_since_before(self, state: ArmState, now: float) -> str:
        before, self._before = self._before, state
        if before is not None and state.stamp > before.stamp:
            most = 3 * (state.stamp - before.stamp) * self.limits.speed + self.limits.reach
            if np.linalg.norm(state.position - before.position) > most:
                return "state_jumped"
        elif before is not None and state.stamp < before.stamp:
            return "state_from_the_past"
        shown = state.joint_position.tobytes() + state.joint_velocity.tobytes()
        if shown != self._same[0]:
            self._same = (shown, now)
        is_under_way = self.target is not None and bool(np.abs(self.target.position - state.position).max() > 0.004)
        return "state_frozen" if is_under_way and now - self._same[1] > self.limits.state_age else ""

    def _refusal(self, wanted: ArmTarget, state: ArmState, observed: float, now: float) -> str:
        """Returns why a command is not followed this time, "" where it is."""
        limits = self.limits
        if limits.dead_man is not None and not 0 <= now - self._enabled_at <= limits.dead_man:
            return "dead_man"
        if not np.isfinite(observed) or not -SLACK <= now - observed <= limits.command_age:
            return "late"
        if observed < self._answered:
            return "out_of_order"
        if now - state.stamp > limits.state_age:
            return "state_late"
        return "jump" if np.abs(wanted.position - state.position).max() > limits.jump else ""

    def _refused(self, reason: str, wanted: ArmTarget) -> Verdict:
        self._late = self._late + 1 if reason in ("late", "out_of_order", "state_late") else 0
        self._log(reason, wanted, None)
        self.counts[reason] += 1
        self.target = None
        self._path.rest()
        self._turning.rest()
        if self._late > self.limits.late_in_a_row:
            self.fault(reason)
            raise stopped(self)
        return Verdict(None, (reason,))

    def _bounded(self, wanted: ArmTarget, state: ArmState, now: float) -> Verdict:
        reasons: list[str] = []
        since = self.period if self.target is None else now - self._judged_at
        duration = float(np.clip(since, 0.2 * self.period, 2 * self.period))
        last = self.target or ArmTarget(np.clip(state.position, self._low, self._high), self._upright(state.quaternion), 0.0)
        position = self._place(wanted.position, last.position, state, duration, reasons)
        orientation = self._direction(quaternion(wanted.quaternion), last.quaternion, state, duration, reasons)
        position, orientation = self._within_joints(position, orientation, state, reasons)
        opening = float(np.clip(wanted.opening, 0.0, self.limits.opening))
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
        position = np.clip(position, self._low, self._high)  # a target that turns off late must not slip out
        return _noted(reasons, "reach", np.clip(position, here - limits.reach, here + limits.reach), position)

    def _direction(
        self, wanted: Quaternion, last: Quaternion, state: ArmState, duration: float, reasons: list[str]
    ) -> Quaternion:
        inside = self._upright(wanted)
        if max(np.abs(between(inside, wanted))) > 1e-6:
            reasons.append("cone")
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
        if self._lean(found) > 1e-6:  # between two directions in the cone there may be one outside: stay
            found = self._upright(state.quaternion)
        return found

    def _within_joints(
        self, position: Array, orientation: Quaternion, state: ArmState, reasons: list[str]
    ) -> tuple[Array, Quaternion]:
        """Returns the part of the way that no joint leaves its limits for, by one linear step."""
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
        found = found if self._lean(found) <= 1e-6 else self._upright(state.quaternion)
        return state.position + share * (position - state.position), found

    # orientation cone

    def _upright(self, direction: Quaternion) -> Quaternion:
        """Returns the direction brought into the cone."""
        tilt, turn = tilt_and_turn(direction, self.limits.reference)
        size = float(np.linalg.norm(tilt))
        if size <= self.limits.tilt and abs(turn) <= self.limits.turn:
            return direction
        share = min(1.0, self.limits.tilt / size) if size > 0 else 1.0
        turn = min(max(turn, -self.limits.turn), self.limits.turn)
        return from_tilt_and_turn([share * value for value in tilt], turn, self.limits.reference)

    def _lean(self, direction: Quaternion) -> float:
        """Returns how far [rad] a direction is outside the cone."""
        return float(np.linalg.norm(between(self._upright(direction), direction)))

    # states

    def _enter(self, mode: Mode) -> None:
        before, self._mode = self._mode, mode
        if mode is not before:
            self.log.add("mode", mode=mode, before=before)

    def _latch_as(self, mode: Mode, reason: str) -> None:
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


def stopped(guard: Guard) -> RobotStopped:
    """Returns the error of a command that comes while the arm may not move."""
    return RobotStopped(guard.mode, guard.reason)


def _noted(reasons: list[str], reason: str, allowed: Array, wanted: Array) -> Array:
    if np.abs(allowed - wanted).max() > SLACK:
        reasons.append(reason)
    return allowed


def _row(target: ArmTarget | None) -> list[str] | None:
    """Returns a target as text: JSON has no NaN, and a log must tell it from null."""
    if target is None:
        return None
    return [f"{value:.6g}" for value in [*np.ravel(target.position), *target.quaternion, target.opening]]
