"""What the simulated arm itself did while it was commanded: read from the physics at each of its steps, not from the guard.

python tests/real_robot/plant_truth.py 20000        prints the table of docs/robots/robot-guard.md
python tests/real_robot/plant_truth.py press        prints how far the hand gets outside that presses at a side of its box
"""

import itertools
import sys
from contextlib import suppress
from dataclasses import dataclass, fields

import numpy as np

from robo_real.arm import ArmTarget
from robo_real.clock import ManualClock
from robo_real.guard import LATCHED, Mode
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN, Limits
from robo_real.rotations import DOWN, Quaternion, from_rotation_vector, multiply, pointing_down
from robo_real.twin import Twin, TwinOptions
from robo_rl.errors import InvalidAction, RobotStopped

WINDOW = 0.01
"""[s] over which accelerations are taken, that of the controller's tick"""
MARGINS = {"speed": 1.1, "speeding_up": 1.5, "turn_speed": 1.1, "joint_speed": 1.15}
"""Of a limit, that the simulated arm keeps: its inertia depends on its posture and is not known to the set points."""
TURNING_FASTER = (1.4, 5.0)
"""Times the limit, and [rad/s^2] more: joints push each other."""
MOST_OUTSIDE = 0.003
"""[m] beyond a side of the box"""
MISBEHAVIOUR = ("too_fast", "away", "outruns_command", "velocity", "position", "frozen")
"""Ends of the reasons of MotionChecks."""
MOST_PRESSED = 0.02
"""[s] above hard_force, until the arm has been stopped"""


@dataclass
class Worst:
    """The largest of each quantity that the physics went through."""

    speed: float = 0.0
    """[m/s]"""
    speeding_up: float = 0.0
    """[m/s^2] change of the speed, where it grows"""
    any_change: float = 0.0
    """[m/s^2] change of the velocity, slowing down included"""
    turn_speed: float = 0.0
    """[rad/s]"""
    turning_faster: float = 0.0
    """[rad/s^2]"""
    joint_speed: float = 0.0
    """share of the joint's limit"""
    box: float = 0.0
    """[m] outside"""
    force: float = 0.0
    """[N]"""
    pressed: float = 0.0
    """[s] without a break above hard_force"""

    def include(self, other: "Worst") -> None:
        """Keep the larger of each."""
        for field in fields(self):
            setattr(self, field.name, max(getattr(self, field.name), getattr(other, field.name)))

    def broken(self, limits: Limits) -> dict[str, tuple[float, float]]:
        """Return name -> (worst, allowed) of what went beyond its limit and margin."""
        bounds = {
            "speed": MARGINS["speed"] * limits.speed,
            "speeding_up": MARGINS["speeding_up"] * limits.acceleration,
            "turn_speed": MARGINS["turn_speed"] * limits.turn_speed,
            "turning_faster": TURNING_FASTER[0] * limits.turn_acceleration + TURNING_FASTER[1],
            "joint_speed": MARGINS["joint_speed"],
            "box": MOST_OUTSIDE,
            "pressed": MOST_PRESSED,
        }
        return {name: (getattr(self, name), bound) for name, bound in bounds.items() if getattr(self, name) > bound}

    def table(self, limits: Limits) -> str:
        """Return the rows of the page."""
        rows = [
            ("speed", f"{limits.speed:g} m/s", f"{self.speed:.2f}"),
            ("acceleration, speeding up", f"{limits.acceleration:g} m/s^2", f"{self.speeding_up:.1f}"),
            ("any change of velocity", "none", f"{self.any_change:.1f} m/s^2"),
            ("turn speed", f"{limits.turn_speed:g} rad/s", f"{self.turn_speed:.2f}"),
            ("turning faster", f"{limits.turn_acceleration:g} rad/s^2", f"{self.turning_faster:.0f}"),
            ("joint speed, share of the limit", "1", f"{self.joint_speed:.2f}"),
            ("box", "0 mm outside", f"{1000 * self.box:.1f} mm"),
            ("force", f"{limits.hard_force:g} N stop it", f"{self.force:.0f} N, above it for {1000 * self.pressed:.0f} ms"),
        ]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


class Recorder:
    """Looks at the physics of a twin after each step of 2 ms."""

    def __init__(self, twin: Twin, limits: Limits) -> None:
        self._physics, self._plant, self._limits = twin._plant._physics, twin._plant, limits
        self._step = self._physics.model.opt.timestep
        self._advance = self._physics.advance
        self._physics.advance = self._recorded
        self.worst = Worst()
        self.forget()

    def forget(self) -> None:
        """The arm was put elsewhere by hand."""
        self._speeds: list[tuple[np.ndarray, np.ndarray]] = []
        self._pressed = 0

    def _recorded(self, substeps: int | None = None) -> None:
        for _ in range(substeps or 25):
            self._advance(1)
            self._look()

    def _look(self) -> None:
        physics, limits, worst = self._physics, self._limits, self.worst
        jacobian = physics.jacobian()
        twist = jacobian @ physics.joint_velocity
        linear, angular = twist[:3], twist[3:]
        outside = np.maximum(limits.box_low - physics.gripper_position, physics.gripper_position - limits.box_high).max()
        force = float(np.linalg.norm(self._plant._force(jacobian)[:3]))
        self._pressed = self._pressed + 1 if force > limits.hard_force else 0
        found = {
            "speed": np.linalg.norm(linear),
            "turn_speed": np.linalg.norm(angular),
            "joint_speed": (np.abs(physics.joint_velocity) / limits.joint_speed).max(),
            "box": outside,
            "force": force,
            "pressed": self._pressed * self._step,
        }
        self._speeds.append((linear.copy(), angular.copy()))
        if len(self._speeds) > round(WINDOW / self._step):
            before = self._speeds.pop(0)
            found["speeding_up"] = (found["speed"] - np.linalg.norm(before[0])) / WINDOW
            found["any_change"] = np.linalg.norm(linear - before[0]) / WINDOW
            found["turning_faster"] = (found["turn_speed"] - np.linalg.norm(before[1])) / WINDOW
        for name, value in found.items():
            if value > getattr(worst, name):
                setattr(worst, name, float(value))


class Flood:
    """Several clients that command one twin in its own time, each as badly as it can."""

    def __init__(self, seed: int, limits: Limits = TWIN) -> None:
        self._rng = np.random.default_rng(seed)
        self.twin = Twin(TwinOptions(), ManualClock())
        self.robot = GuardedArm(self.twin, limits, spec=self.twin.spec, scene=self.twin)
        self.robot.connect()
        self.robot.watchdog.close()  # it looks in the twin's time, too: see `_wait`
        self.robot.watchdog.closing.clear()  # the arm is not being closed
        self.recorder = Recorder(self.twin, limits)
        self.limits = limits
        self.sent = self.followed = 0
        self._goal = np.zeros(3)
        self._turn = self._tilt = 0.0

    def close(self) -> None:
        self.robot.close()

    @property
    def alarms(self) -> set[str]:
        """Faults of an arm that misbehaves: this one never does."""
        return {reason for reason in self.robot.guard.counts if reason.endswith(MISBEHAVIOUR)}

    def play(self, commands: int) -> Worst:
        """Sends so many commands and returns what the arm did."""
        styles = [name.removeprefix("_as_") for name in dir(self) if name.startswith("_as_")]
        end = self.sent + commands
        while self.sent < end:
            self._begin()
            style = getattr(self, f"_as_{self._rng.choice(styles)}")
            wait = 10 ** self._rng.uniform(-3, 0)  # 1000 to 1 a second
            for number in range(min(end - self.sent, int(self._rng.integers(20, 200)))):
                self._command(style, number)
                self._wait(wait * self._rng.uniform(0.5, 1.5))
        self._wait(1.0)
        return self.recorder.worst

    def aim(self, goal, turn: float, tilt: float) -> None:
        """Choose what the styles aim at: a position [m] and angles [rad]."""
        self._goal, self._turn, self._tilt = np.asarray(goal, float), turn, tilt

    def repeat(self, style: str, count: int, wait: float) -> None:
        """Send commands of one style, `wait` [s] apart."""
        for number in range(count):
            self._command(getattr(self, f"_as_{style}"), number)
            self._wait(wait)

    def _begin(self) -> None:
        """A person looks now and then, and puts the arm back."""
        guard = self.robot.guard
        if guard.mode in LATCHED:
            self.robot.rearm()
        if self._rng.random() < 0.1:
            self.robot.pause()
            self._wait(1.0)
        if guard.mode is Mode.IDLE:
            self.robot.arm()
        goal = self._rng.uniform(self.limits.box_low, self.limits.box_high)
        self.aim(goal, self._rng.uniform(-1.8, 1.8), self._rng.uniform(-0.4, 0.4))

    def _wait(self, seconds: float) -> None:
        """Let time pass, with a look of the watchdog every 10 ms of it."""
        end = self.twin.clock.now() + seconds
        while (left := end - self.twin.clock.now()) > 1e-9:
            self.twin.clock.sleep(min(left, 0.01))
            self.robot.measure()
            if self.robot.guard.mode is Mode.RUNNING:
                self.robot.watchdog.check()

    def _command(self, style, number: int) -> None:
        self.sent += 1
        with suppress(RobotStopped, InvalidAction):
            style(self.robot.measure(), number)
            self.followed += 1
            return
        if self.robot.guard.mode in LATCHED:
            self.robot.rearm()
            self.robot.arm()

    def _send(self, position: np.ndarray, quaternion: Quaternion) -> None:
        self.robot.move(ArmTarget(np.asarray(position, float), quaternion, 0.04))

    def _as_action(self, state, number: int) -> None:
        self.robot.apply(self._rng.uniform(-1, 1, 5))

    def _as_full_action(self, state, number: int) -> None:
        away = self._goal - state.position
        self.robot.apply([*np.sign(away), np.sign(self._turn), 1.0])

    def _as_opposite_clients(self, state, number: int) -> None:
        side = (-1) ** number
        self.robot.apply([side, side, -side, side, side])

    def _as_far_pose(self, state, number: int) -> None:
        away = self._goal - state.position
        self._send(state.position + np.clip(away, -0.099, 0.099), pointing_down(self._turn))

    def _as_near_pose(self, state, number: int) -> None:
        self._send(state.position + self._rng.normal(0, 0.01, 3), pointing_down(self._rng.normal(0, 0.2)))

    def _as_wall(self, state, number: int) -> None:
        aim = state.position.copy()
        aim[number // 40 % 3] += 0.099 * (-1) ** (number // 20)
        self._send(aim, DOWN)

    def _as_table(self, state, number: int) -> None:
        tilted = multiply(from_rotation_vector([self._tilt, self._tilt, 0]), DOWN)
        self._send(np.add(state.position, [0, 0, -0.099 if number % 60 < 40 else 0.05]), tilted)

    def _as_turn(self, state, number: int) -> None:
        bent = multiply(from_rotation_vector([self._tilt, -self._tilt, 0]), pointing_down(1.8 * (-1) ** (number // 30)))
        self._send(state.position, bent)

    def _as_pose_and_action(self, state, number: int) -> None:
        (self._as_far_pose, self._as_action, self._as_opposite_clients, self._as_near_pose)[number % 4](state, number)

    def _as_nonsense(self, state, number: int) -> None:
        bad = self._rng.choice([np.nan, np.inf, 1e308, 5.0])
        if number % 7:
            self._as_near_pose(state, number)
        else:
            self._send(np.add(state.position, [bad, 0, 0]), DOWN)

    def _as_stops(self, state, number: int) -> None:
        if number % 10 == 9:
            self.robot.stop("flood")
        self._as_far_pose(state, number)

    def _as_gripper(self, state, number: int) -> None:
        self.robot.grip(0.08 * (number % 2))
        self._as_far_pose(state, number)

    # kinds that found faults: corners, flips, dives, presses, switches

    def _as_corner(self, state, number: int) -> None:
        """To the far top corner and along y from there, where the arm is stretched; every pose is in the box."""
        low, high = np.asarray(self.limits.box_low), np.asarray(self.limits.box_high)
        side = np.sign(self._turn) * (-1) ** (number // 60)
        self._towards(np.array([high[0], high[1] if side > 0 else low[1], high[2]]), state)

    def _as_any_corner(self, state, number: int) -> None:
        sides = self._goal > (np.asarray(self.limits.box_low) + self.limits.box_high) / 2
        sides[number // 40 % 3] ^= number // 40 % 2 == 1
        self._towards(np.where(sides, self.limits.box_high, self.limits.box_low), state)

    def _as_corner_action(self, state, number: int) -> None:
        away = np.where(self._goal > state.position, self.limits.box_high, self.limits.box_low) - state.position
        self.robot.apply([*np.clip(away / 0.015, -1, 1), np.sign(self._turn) * (-1) ** (number // 20), 1.0])

    def _as_wrist_flip(self, state, number: int) -> None:
        self._send(state.position, pointing_down(self.limits.turn * (-1) ** number))

    def _as_other_sign(self, state, number: int) -> None:
        """The same orientations with the other sign, and a half turn now and then."""
        q = pointing_down(self._turn + (np.pi if number % 11 == 10 else 0.0))
        self._towards(self._goal, state, tuple(float(value) * (-1) ** number for value in q))

    def _as_reversal(self, state, number: int) -> None:
        """There and back, with as much speed as there is."""
        along = np.roll([1.0, 0.3, 0.0], number // 60) * (-1) ** (number // 6)
        self._send(np.clip(state.position + 0.09 * along, self.limits.box_low, self.limits.box_high), pointing_down(self._turn))

    def _as_dive(self, state, number: int) -> None:
        low, high = np.asarray(self.limits.box_low), np.asarray(self.limits.box_high)
        self._towards(np.array([*self._goal[:2], high[2] if number % 30 < 15 else low[2]]), state)

    def _as_press(self, state, number: int) -> None:
        """On the table, leaning and turning."""
        tilted = multiply(from_rotation_vector([self._tilt, 0.0, 0.0]), pointing_down(self._turn * (-1) ** (number // 10)))
        self._towards(np.array([*state.position[:2], self.limits.box_low[2]]), state, tilted)

    def _as_gripper_spam(self, state, number: int) -> None:
        self.robot.grip(self._rng.uniform(0, self.limits.opening))
        if number % 5 == 0:
            self._towards(self._goal, state)

    def _as_parameters(self, state, number: int) -> None:
        """Clips of the controller change during the motion, as /update_param lets them."""
        clips = {f"translational_clip_{axis}": self._rng.uniform(0.002, self.limits.reach) for axis in "xyz"}
        clips |= {f"rotational_clip_{axis}": self._rng.uniform(0.01, 0.1) for axis in "xyz"}
        if number % 10 == 0:
            self.twin.update_param(clips)
        self._towards(self._goal, state, pointing_down(self._turn))

    def _as_switches(self, state, number: int) -> None:
        if number % 7 == 6:
            self.robot.pause()
        (self._as_full_action, self._as_far_pose)[number % 2](state, number)

    def _as_joint_reset(self, state, number: int) -> None:
        if number % 40 == 39:
            self.robot.reset_joints(3.0)
        self._towards(self._goal, state, pointing_down(self._turn))

    def _towards(self, goal: np.ndarray, state, quaternion: Quaternion = DOWN) -> None:
        """A pose on the way, as near as a client may ask for, in the box."""
        away = np.clip(goal - state.position, -0.09, 0.09)
        self._send(np.clip(state.position + away, self.limits.box_low, self.limits.box_high), quaternion)


def measured(commands: int, seeds: int = 10) -> Worst:
    """Returns the worst of so many commands."""
    worst = Worst()
    for seed in range(seeds):
        flood = Flood(seed)
        worst.include(flood.play(commands // seeds))
        print(f"seed {seed}: {flood.followed} of {flood.sent} followed", dict(flood.robot.guard.counts), file=sys.stderr)
        assert not flood.alarms
        flood.close()
    return worst


def pressed(turn: float, tilt: float, side: float) -> tuple[float, int]:
    """Presses on the table at a side of the box and is armed again after each stop; returns [m] outside and the stops."""
    flood = Flood(0)
    flood.robot.arm()
    flood.aim([0.38, side, TWIN.box_low[2] + 0.03], turn, tilt)
    flood.repeat("far_pose", 60, wait=0.05)
    flood.repeat("press", 150, wait=0.1)
    stops = flood.robot.guard.counts["hard_force"]
    flood.close()
    return flood.recorder.worst.box, stops


def pressed_everywhere() -> list[tuple[float, int]]:
    """Returns the same for 24 ways to press."""
    ways = itertools.product((-1.0, 0.5, 1.5), (-0.4, -0.2, 0.2, 0.4), (TWIN.box_low[1], TWIN.box_high[1]))
    return [pressed(*way) for way in ways]


if __name__ == "__main__":
    if sys.argv[1] == "press":
        outside, stops = zip(*pressed_everywhere(), strict=True)
        print(f"{len(stops)} ways, {sum(stops)} stops: mm outside", *sorted(round(1e3 * each, 2) for each in outside))
    else:
        print(measured(int(sys.argv[1])).table(TWIN))
