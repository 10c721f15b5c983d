"""Measure what an arm does behind its guard: python -m robo_bench.robot_motion [runaway] [box] [gripper] [resets].

**runaway**: the arm does something else than it is told. A client moves the hand to and fro, polite and within the limits;
after half a second the arm misbehaves. The table has what the plant did from then on until it stood, with its motion judged
and without: speed, way from where the hand was, time until the fault. **box**: a polite client goes to the far top corners,
where the arm is stretched, and along y. **gripper**: the first pose after a start, with a peg in the hand. **resets**: the
reset of HIL-SERL's client, ten poses in a second. All times are of the twin's own clock, so that a busy machine changes
nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from robo_bench.misbehaving_arm import KINDS, MisbehavingArm
from robo_real.arm import ArmState, ArmTarget
from robo_real.clock import ManualClock
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN, Limits
from robo_real.rotations import DOWN, between, pointing_down, to_xyzw
from robo_real.server.franka_routes import FrankaRoutes
from robo_real.twin import Twin, TwinOptions
from robo_rl.errors import RobotStopped

SLOW = replace(
    TWIN,
    speed=0.1,
    acceleration=1.0,
    turn_speed=0.5,
    turn_acceleration=5.0,
    reach=0.01,
    reach_turn=0.1,
    jump=0.05,
    state_age=0.1,
)
"""Limits as of the documents' example for a real arm"""
PERIOD = 0.05
"""Time [s] between two poses that a client sends."""
TICK = 0.01
"""[s] between two looks"""
WELL, WATCHED = 0.5, 1.9
"""Time [s] for which the arm behaves well, and then time [s] for which its misbehaviour is watched."""
LIMITS = {"0.1 m/s": SLOW, "0.8 m/s": TWIN}


@dataclass
class Outcome:
    """Motion of the simulated arm from the moment at which it began to misbehave."""

    speed: float = 0.0
    """Largest speed [m/s] of the hand."""
    way: float = 0.0
    """[m] largest distance from where the hand was"""
    turn: float = 0.0
    """Largest angle [rad] between the hand's orientation and the one at the beginning."""
    fault: str = ""
    after: float | None = None
    """Time [s] until the guard stopped the arm with a fault; None if it did not."""


def misbehaviour(
    kind: str, limits: Limits, *, judged: bool = True, knows_response: bool = False, watched: float = WATCHED
) -> Outcome:
    """Return what an arm of one kind does; judged: as it is, or with the checks of its motion left out.

    watched: [s] after it has begun.
    """
    arm = MisbehavingArm(kind, knows_response=knows_response)
    robot = GuardedArm(arm, limits)
    if not judged:
        robot.guard._motion.fault = _unjudged  # type: ignore[assignment, method-assign]
    robot.connect()
    robot.watchdog.close()  # it looks in wall time
    robot.arm()
    found = _played(robot, arm, watched)
    robot.close()
    return found


def _unjudged(*_: object) -> str:
    return ""


def _played(robot: GuardedArm, arm: MisbehavingArm, watched: float) -> Outcome:
    start, found = arm.twin.read(), Outcome()
    begun: ArmState | None = None
    for number in range(round((WELL + watched) / PERIOD)):
        if number == round(WELL / PERIOD):
            begun = arm.twin.read()
            arm.begin()
        with suppress(RobotStopped):
            robot.move(_pose(start, number * PERIOD, robot.limits))
        for _ in range(round(PERIOD / TICK)):
            arm.clock.sleep(TICK)
            state = arm.twin.read()
            if begun is not None:
                _note(found, begun, state, robot)
    return found


def _pose(start: ArmState, time: float, limits: Limits) -> ArmTarget:
    """Return the pose at a time [s], to and fro along all axes and about the vertical, at half the speed allowed."""
    size = min(0.3 * limits.speed, 0.06)
    way = size * np.array([np.sin(2 * time), 1 - np.cos(2 * time), 0.5 * np.sin(2 * time)])
    return ArmTarget(start.position + way, pointing_down(0.3 * limits.turn_speed * np.sin(time)), 0.04)


def _note(found: Outcome, begun: ArmState, state: ArmState, robot: GuardedArm) -> None:
    found.speed = max(found.speed, float(np.linalg.norm(state.velocity[:3])))
    found.way = max(found.way, float(np.linalg.norm(state.position - begun.position)))
    found.turn = max(found.turn, float(np.linalg.norm(between(begun.quaternion, state.quaternion))))
    if robot.guard.reason and found.after is None:
        found.fault, found.after = robot.guard.reason, state.stamp - begun.stamp


def outside_box(side: int, limits: Limits = TWIN) -> tuple[float, float]:
    """Return how far the hand of a polite client was outside of the box [m], and its largest speed [m/s].

    Poses inside the box, 20 a second, to the far top corner at one side (1 or -1) of y, then along y to the other one.
    """
    robot, twin = _twin(limits)
    low, high = np.asarray(limits.box_low), np.asarray(limits.box_high)
    outside = fastest = 0.0
    for number in range(120):
        state = robot.measure()
        corner = np.array([high[0], (low, high)[(side > 0) == (number < 60)][1], high[2]])
        way = corner - state.position
        aim = state.position + way * min(1.0, 0.9 * limits.jump / max(float(np.linalg.norm(way)), 1e-9))
        with suppress(RobotStopped):
            robot.move(ArmTarget(np.clip(aim, low, high), DOWN, None))
        for _ in range(round(PERIOD / TICK)):
            twin.clock.sleep(TICK)
            now = twin.read()
            outside = max(outside, float(np.maximum(low - now.position, now.position - high).max()))
            fastest = max(fastest, float(np.linalg.norm(now.velocity[:3])))
    robot.close()
    return outside, fastest


def opening_after_first_pose() -> tuple[float, float]:
    """Return the opening [m] with a peg in the hand, and after the first pose of a plain client, 5 mm up."""
    robot, twin = _twin(TWIN, "robo/ArmPegInsert-v0")
    before = robot.measure()
    robot.move(ArmTarget(np.add(before.position, [0.0, 0.0, 0.005]), before.quaternion, None))
    twin.clock.sleep(1.0)
    after = robot.measure()
    robot.close()
    return before.opening, after.opening


def off_after_reset(away: float, limits: Limits = SLOW) -> tuple[float, float]:
    """Return how far [m] the hand is from where HIL-SERL's client has reset it, and how long [s] the reset took.

    Its interpolate_move: ten poses on a line, 0.1 s of sleep after each, no answer is read.
    """
    robot, twin = _twin(limits)
    routes = FrankaRoutes(robot)
    start = robot.measure()
    direction = np.array([1.0, -1.0, 0.5]) / 1.5
    goal, begun = start.position + away * direction, twin.clock.now()
    for share in np.linspace(0.0, 1.0, 10):
        place = (1 - share) * start.position + share * goal
        with suppress(Exception):  # this client reads no answer
            routes.commands["/pose"]({"arr": [*place.tolist(), *to_xyzw(start.quaternion)]})
        twin.clock.sleep(0.1)
    took, off = twin.clock.now() - begun, float(np.linalg.norm(twin.read().position - goal))
    robot.close()
    return off, took


def _twin(limits: Limits, task: str = "robo/ArmReach-v0") -> tuple[GuardedArm, Twin]:
    twin = Twin(TwinOptions(task=task), ManualClock())
    robot = GuardedArm(twin, limits, spec=twin.spec, scene=twin)
    robot.connect()
    robot.watchdog.close()  # it looks in wall time
    robot.arm()
    return robot, twin


def _runaway() -> str:
    rows = ["| limit | the arm | not judged: speed, way | judged: speed, way | fault |", "|---|---|---|---|---|"]
    for limit, limits in LIMITS.items():
        for kind in KINDS:
            before, now = (misbehaviour(kind, limits, judged=judged) for judged in (False, True))
            fault = "none" if now.after is None else f"`{now.fault}` after {1000 * now.after:.0f} ms"
            without = f"{before.speed:.2f} m/s, {1000 * before.way:.0f} mm" + (f", `{before.fault}`" if before.fault else "")
            rows.append(f"| {limit} | {kind} | {without} | {now.speed:.2f} m/s, {1000 * now.way:.0f} mm | {fault} |")
    return "\n".join(rows)


def _box() -> str:
    found = {side: outside_box(side) for side in (1, -1)}
    return "\n".join(
        f"corner at y {side:+d}: {1000 * out:.1f} mm outside, {fast:.2f} m/s" for side, (out, fast) in found.items()
    )


def _gripper() -> str:
    before, after = opening_after_first_pose()
    return f"opening with a peg {1000 * before:.1f} mm, after the first pose {1000 * after:.1f} mm"


def _resets() -> str:
    found = {away: off_after_reset(away) for away in (0.04, 0.08, 0.12, 0.16, 0.2)}
    return "\n".join(
        f"from {1000 * away:.0f} mm: {1000 * off:.1f} mm off after {took:.1f} s" for away, (off, took) in found.items()
    )


PARTS: Mapping[str, Callable[[], str]] = {"runaway": _runaway, "box": _box, "gripper": _gripper, "resets": _resets}


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all of them by default")
    for part in parser.parse_args().parts or PARTS:
        print(f"{part}\n{PARTS[part]()}\n", flush=True)


if __name__ == "__main__":
    main()
