"""Set points of a motion of the hand or the joints: one per control tick, so that the arm keeps the limits at every moment.

If the arm's response to set points is known, as for position servos, each set point is placed so that the velocity of the hand
after the tick is within the limits. A goal that breaks no limit is itself the set point, so that limits cost no time. If the
response is unknown, the set points themselves move within the limits, and the arm follows. A joint motion is a straight line
between two postures.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from robo_real.arm import ArmState, ArmTarget, Array, JointTarget, Response
from robo_real.guard import DAMPING, shortened, sped_up
from robo_real.limits import Limits
from robo_real.rotations import OrientationCone, Quaternion, between, turned

JOINT_SHARE = 0.9
"""share of each joint's speed limit that is used, because the coupling between joints is unknown"""
TURN_SHARE = 0.75
"""share of the turn acceleration that is used if the response is known, because joints push each other, most at the wrist"""
SINGULAR = 0.05
"""[m/rad] smallest singular value of the Jacobian below which the hand is slowed in proportion: near a singular posture the
joints would have to turn without bound, and the hand could not be led back from its way"""
OUTSIDE = 0.0005
"""[m] distance outside the box, above which the hand must return before it moves elsewhere: a hand that presses, is stopped
and springs back would else get a little farther out with each stop"""
SLOWEST = 0.1
"""share of the speed limits that is left at a singular posture"""
STEADY = 2.0
"""number of ticks of the final approach to a target if the response is unknown"""
ARRIVED = 0.01
"""[rad] largest distance of each joint from the end of its motion at which the motion counts as completed"""
SPEEDS_UP = 0.25
"""[s] shortest time in which a joint may reach its speed limit from rest"""
LINE_SHARE = 0.9
"""share of each limit that is used on the line between two postures, because joints that lag behind leave the line a little"""


class PoseSetPoints:
    """Set points on the way of the hand to a pose. Used by one thread."""

    def __init__(self, limits: Limits, box: tuple[Array, Array], cone: OrientationCone, response: Response | None) -> None:
        """Create the set points of an arm that stands.

        Args:
            limits: Limits that the motion keeps.
            box: Lowest and highest position (3,) [m] of the hand.
            cone: Allowed orientations of the hand.
            response: Response of the arm to set points; None if it is unknown.
        """
        self._limits, (self._low, self._high), self._cone, self._response = limits, box, cone, response
        self._joint_low = np.asarray(limits.joint_low) + limits.joint_margin
        self._joint_high = np.asarray(limits.joint_high) - limits.joint_margin
        self._joint_speed = JOINT_SHARE * np.asarray(limits.joint_speed)
        self.rest()

    def rest(self) -> None:
        """Note that the arm stands: the next set point starts from its measured pose."""
        self.sent: ArmTarget | None = None
        """Newest set point, None if the arm stands."""
        self._velocity, self._turning = np.zeros(3), np.zeros(3)  # of the set points, if the response is unknown

    def next(self, goal: ArmTarget, state: ArmState, duration: float) -> ArmTarget:
        """Return the next set point towards `goal`; duration: [s] until the set point after it."""
        place, direction, velocity, turning = self._present(state)
        goal = self._returning(self._yielding(goal, place, state), state)
        wanted = self._wanted(goal.position - place, velocity, duration)
        wanted_turn = self._wanted(np.array(between(direction, goal.quaternion)), turning, duration)
        limits = self._limits
        after = sped_up(velocity, wanted, limits.speed, limits.acceleration * duration)
        after = self._before_walls(place, velocity, after, duration)
        turn_gain = limits.turn_acceleration * duration * (1.0 if self._response is None else TURN_SHARE)
        after_turn = sped_up(turning, wanted_turn, limits.turn_speed, turn_gain)
        twist = self._within_posture(np.concatenate([after, after_turn]), state)
        after, after_turn = np.split(self._share_for_joints(twist, state, duration) * twist, 2)
        position = place + self._lead(after, velocity, duration)
        position = np.clip(position, state.position - limits.reach, state.position + limits.reach)
        position = self._within_box(position, state.position)
        self._velocity = (position - place) / duration if duration > 0 else velocity
        found = self._near(turned(direction, self._lead(after_turn, turning, duration)), state.quaternion)
        self._turning = np.array(between(direction, found)) / duration if duration > 0 else turning
        self.sent = replace(goal, position=position, quaternion=found)
        return self.sent

    def _present(self, state: ArmState) -> tuple[Array, Quaternion, Array, Array]:
        """Return position, orientation, velocity and turn rate of the hand, or of the set points if the response is unknown."""
        if self._response is not None:
            return state.position, state.quaternion, state.velocity[:3], state.velocity[3:]
        if self.sent is None:
            return state.position, self._cone.nearest(state.quaternion), self._velocity, self._turning
        return self.sent.position, self.sent.quaternion, self._velocity, self._turning

    def _yielding(self, goal: ArmTarget, place: Array, state: ArmState) -> ArmTarget:
        """Return the goal without its motion along those axes where the hand already presses with more than the soft force."""
        away = goal.position - state.position
        presses = (np.abs(state.force) > self._limits.soft_force) & (away * state.force < 0)
        return replace(goal, position=np.where(presses, state.position, goal.position)) if presses.any() else goal

    def _returning(self, goal: ArmTarget, state: ArmState) -> ArmTarget:
        """Return the goal without motion along the sides of the box if the measured hand is outside."""
        outside = np.maximum(self._low - state.position, state.position - self._high)
        if outside.max() <= OUTSIDE:
            return goal
        return replace(goal, position=np.where(outside > 0, goal.position, state.position))

    def _wanted(self, away: Array, velocity: Array, duration: float) -> Array:
        """Return the velocity (3,) after a tick if the goal itself were the set point; away: (3,) goal minus present place."""
        if duration <= 0:
            return np.zeros(3)
        if self._response is not None:
            return velocity + self._response.share(duration) * (away / self._response.lag - velocity)
        distance = float(np.linalg.norm(away))
        if distance == 0:
            return np.zeros(3)
        most = math.sqrt(self._limits.acceleration * distance)
        return away / distance * min(distance / (STEADY * duration), most)

    def _lead(self, after: Array, velocity: Array, duration: float) -> Array:
        """Return the offset (3,) of the set point from the hand that leads to the velocity `after` (3,) after the tick."""
        if self._response is None or duration <= 0:
            return after * duration
        return self._response.lag * (velocity + (after - velocity) / self._response.share(duration))

    def _within_box(self, position: Array, here: Array) -> Array:
        """Return the position (3,) clipped to the box, which is made smaller by as much as the measured hand is outside."""
        outside = np.maximum(self._low - here, 0.0), np.maximum(here - self._high, 0.0)
        return np.clip(position, self._low + outside[0], self._high - outside[1])

    def _before_walls(self, place: Array, velocity: Array, after: Array, duration: float) -> Array:
        """Return the velocity (3,) bounded so that the hand can still stop before a side of the box."""
        low, high = place - self._low, self._high - place
        if self._response is not None:  # the lag delays braking
            low, high = (
                room - np.maximum(towards, 0.0) * self._response.lag / 2
                for room, towards in ((low, -velocity), (high, velocity))
            )
        return np.clip(after, -self._stopping(low, duration), self._stopping(high, duration))

    def _stopping(self, room: Array, duration: float) -> Array:
        room = np.maximum(room, 0.0)
        most: Array = np.minimum(np.sqrt(self._limits.acceleration * room), room / (STEADY * max(duration, 1e-6)))
        return most

    def _within_posture(self, twist: Array, state: ArmState) -> Array:
        """Return the part of a hand velocity (6,) that the joints can follow: slower near a singular posture."""
        if not state.jacobian.any():
            return twist
        directions, values, _ = np.linalg.svd(state.jacobian, full_matrices=False)
        if values[-1] >= SINGULAR:
            return twist
        found = directions @ (np.minimum(values / SINGULAR, 1.0) * (directions.T @ twist))
        share, limits = max(values[-1] / SINGULAR, SLOWEST), self._limits
        return np.concatenate([shortened(found[:3], share * limits.speed), shortened(found[3:], share * limits.turn_speed)])

    def _share_for_joints(self, twist: Array, state: ArmState, duration: float) -> float:
        """Return the share of a hand velocity (6,) at which each joint keeps its speed and can stop before its limit."""
        jacobian = state.jacobian
        if not jacobian.any():
            return self._share_for_speeds(state)
        solve = np.linalg.solve(jacobian @ jacobian.T + DAMPING, np.stack([twist, state.velocity], axis=1))
        rates, shown = (jacobian.T @ solve).T
        free = state.joint_velocity - shown  # of joints that move without the hand
        room = np.where(rates > 0, self._joint_high - state.joint_position, state.joint_position - self._joint_low)
        most = np.minimum(self._joint_speed, np.maximum(room, 0.0) / (STEADY * max(duration, 1e-6)))
        most = np.maximum(most - np.maximum(np.sign(rates) * free, 0.0), 0.0)
        return min(1.0, float(np.min(most / np.maximum(np.abs(rates), 1e-12))))

    def _share_for_speeds(self, state: ArmState) -> float:
        """Return the share of its speed that an arm without a Jacobian may keep: below 1 if a joint is too fast."""
        return min(1.0, float(np.min(self._joint_speed / np.maximum(np.abs(state.joint_velocity), 1e-12))))

    def _near(self, direction: Quaternion, here: Quaternion) -> Quaternion:
        """Return an orientation in the cone that is as near to `direction` as the reach from the measured one allows."""
        away = shortened(np.array(between(here, direction)), self._limits.reach_turn)
        found = turned(here, away)
        return found if self._cone.contains(found) else self._cone.nearest(found)


class JointSetPoints:
    """Set points of one motion of the joints, on a straight line between two postures. Used by one thread."""

    def __init__(self, limits: Limits, box: tuple[Array, Array], start: Array, home: Array) -> None:
        """Create the set points of a motion.

        Args:
            limits: Limits that the motion keeps.
            box: Lowest and highest position (3,) [m] of the hand.
            start: (J,) [rad] Present posture.
            home: (J,) [rad] Posture at the end.
        """
        self._limits, self._box, self._start, self._home = limits, box, start, home
        self._way = self._speed = 0.0  # share of the line, and [1/s]

    def blocked(self, state: ArmState) -> str:
        """Return the reason to end the motion, "soft_force" or "workspace"; "" to go on."""
        if float(np.abs(state.force).max()) > self._limits.soft_force:
            return "soft_force"
        twist = state.jacobian @ (self._home - self._start) * self._speed
        room = np.where(twist[:3] > 0, self._box[1] - state.position, state.position - self._box[0])
        slow = np.sqrt(self._limits.acceleration * np.maximum(room, 0.0))
        return "workspace" if (np.abs(twist[:3]) > slow + 1e-6).any() else ""

    def arrived(self, state: ArmState) -> bool:
        """Return whether every joint is within ARRIVED of its end position."""
        return self._way >= 1.0 and float(np.abs(self._home - state.joint_position).max()) < ARRIVED

    def next(self, state: ArmState, duration: float) -> JointTarget:
        """Return the next set point on the way to the goal.

        Args:
            state: Newest measurement.
            duration: [s] Time since the set point before.
        """
        line = self._home - self._start
        twist = state.jacobian @ line
        fastest, soonest = self._bounds(np.abs(line), *(float(np.linalg.norm(part)) for part in (twist[:3], twist[3:])))
        stopping = math.sqrt(2 * soonest * max(1.0 - self._way, 0.0))
        self._speed = min(self._speed + soonest * duration, fastest, stopping)
        self._way = min(self._way + max(self._speed * duration, 1e-6), 1.0)
        return JointTarget(self._start + self._way * line)

    def _bounds(self, line: Array, moved: float, turned: float) -> tuple[float, float]:
        """Return the highest speed [1/s] and acceleration [1/s^2] along the line, in units of its length."""
        limits, joint_speed = self._limits, np.asarray(self._limits.joint_speed)
        of_joints = float(np.min(joint_speed / np.maximum(line, 1e-9)))
        speeds = (of_joints, limits.speed / max(moved, 1e-9), limits.turn_speed / max(turned, 1e-9))
        gains = (
            of_joints / SPEEDS_UP,
            limits.acceleration / max(moved, 1e-9),
            limits.turn_acceleration / max(turned, 1e-9),
        )
        return LINE_SHARE * min(speeds), LINE_SHARE * min(gains)
