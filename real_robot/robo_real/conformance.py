"""Conformance suites for arm drivers and cameras, ours and third parties'.

    from robo_real.conformance import DRIVER_CHECKS

    @pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
    def test_my_arm(check): check(lambda: MyArm())

CAMERA_CHECKS work alike, on a CameraDevice. A failed check raises ConformanceFailure. The checks of drivers move the hand by up
to ten centimetres upwards: with a real arm, clear the space around it and keep the emergency stop at hand.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from robo_real.arm import ArmDriver, ArmTarget
from robo_real.cameras import CameraDevice
from robo_rl.errors import ConformanceFailure, RobotUnavailable

Make = Callable[[], ArmDriver]
MakeCamera = Callable[[], CameraDevice]
STEP = np.array([0.0, 0.0, 0.02])
"""(3,) [m] displacement of the hand in a check"""
SETTLED = 1.5
"""[s] after which the hand must have arrived"""
FINGERS = 0.003
"""Distance [m] by which a gripper that holds still may move."""
OLDEST = 5.0
"""[s] largest age of a camera's pictures"""


def a_state_is_whole(make: Make) -> None:
    """Check that a measurement is finite, its quaternion has norm 1, and its arrays have one element per joint."""
    with _connected(make) as arm:
        state = arm.read()
        _require(arm, a_state_is_whole, state.is_finite, "a number is not finite", state)
        norm = float(np.linalg.norm(state.quaternion))
        _require(arm, a_state_is_whole, abs(norm - 1) < 1e-3, "the quaternion's norm is not 1", norm)
        shapes = (state.position.shape, state.velocity.shape, state.force.shape, state.torque.shape)
        _require(arm, a_state_is_whole, shapes == ((3,), (6,), (3,), (3,)), "vectors have other shapes", shapes)
        joints = (*state.joint_position.shape, *state.joint_velocity.shape, *state.jacobian.shape)
        _require(arm, a_state_is_whole, joints == (joints[0], joints[0], 6, joints[0]), "joints differ in number", joints)


def times_run_forward(make: Make) -> None:
    """Check that the stamps of measurements grow with the driver's clock and never exceed it."""
    with _connected(make) as arm:
        first = arm.read().stamp
        arm.clock.sleep(0.2)
        second, now = arm.read().stamp, arm.clock.now()
        _require(arm, times_run_forward, first < second <= now + 1e-6, "stamps stand still or run ahead", (first, second, now))


def the_hand_reaches_its_target(make: Make) -> None:
    """Check that the hand reaches a target two centimetres above it, in the frame of the base."""
    with _connected(make) as arm:
        start = arm.read()
        arm.move(ArmTarget(start.position + STEP, start.quaternion, start.opening))
        arm.clock.sleep(SETTLED)
        moved = arm.read().position - start.position
        _require(arm, the_hand_reaches_its_target, np.abs(moved - STEP).max() < 0.005, "it is elsewhere", moved)


def hold_ends_a_motion(make: Make) -> None:
    """Check that the hand stops on its way to a target 10 cm above it and stays, if another thread calls hold()."""
    with _connected(make) as arm:
        start = arm.read()
        arm.move(ArmTarget(start.position + 5 * STEP, start.quaternion, start.opening))
        arm.clock.sleep(0.05)
        other = threading.Thread(target=arm.hold)
        other.start()
        other.join()
        arm.clock.sleep(0.4)
        before = arm.read().position
        arm.clock.sleep(0.4)
        drift = arm.read().position - before
        _require(arm, hold_ends_a_motion, np.abs(drift).max() < 0.002, "the hand goes on", drift)
        short = before - start.position
        _require(arm, hold_ends_a_motion, np.abs(short).max() < 0.08, "the hand went all the way", short)


def a_gripper_without_a_command_stays(make: Make) -> None:
    """Check that a target without an opening leaves the fingers as they are."""
    with _connected(make) as arm:
        start = arm.read()
        arm.move(ArmTarget(start.position + STEP, start.quaternion, None))
        arm.clock.sleep(SETTLED)
        change = arm.read().opening - start.opening
        _require(arm, a_gripper_without_a_command_stays, abs(change) < FINGERS, "the fingers move", change)


def an_unconnected_arm_raises(make: Make) -> None:
    """Check that read() raises RobotUnavailable before connect()."""
    arm = make()
    try:
        arm.read()
    except RobotUnavailable:
        return
    _require(arm, an_unconnected_arm_raises, False, "an arm without a link is read", "a state")


def closing_twice_is_harmless(make: Make) -> None:
    """Check that close() may be called twice, and before connect()."""
    with _connected(make) as arm:
        arm.close()
        arm.close()
    make().close()


def a_picture_is_rgb_of_one_size(make: MakeCamera) -> None:
    """Check that pictures are (H, W, 3) uint8, and that their size stays."""
    with _opened(make) as camera:
        first, second = camera.read()[0], camera.read()[0]
        is_picture = first.dtype == np.uint8 and first.ndim == 3 and first.shape[2] == 3 and first.size > 0
        _require(camera, a_picture_is_rgb_of_one_size, is_picture, "it is no RGB picture", (first.dtype, first.shape))
        is_same = first.shape == second.shape
        _require(camera, a_picture_is_rgb_of_one_size, is_same, "the size changes", (first.shape, second.shape))


def exposures_run_forward(make: MakeCamera) -> None:
    """Check that the times of exposures are those of time.monotonic(), grow, and are not in the future."""
    with _opened(make) as camera:
        times = [camera.read()[1], camera.read()[1], time.monotonic()]
        is_fine = times[0] < times[1] <= times[2] and times[2] - times[0] < OLDEST
        _require(camera, exposures_run_forward, is_fine, "times stand still, run ahead, or are of another clock", times)


def a_picture_is_its_own(make: MakeCamera) -> None:
    """Check that a later picture does not change an earlier one, because each has its own memory."""
    with _opened(make) as camera:
        first = camera.read()[0]
        copy = first.copy()
        camera.read()
        _require(camera, a_picture_is_its_own, np.array_equal(first, copy), "a picture changes", None)


def a_camera_opens_again(make: MakeCamera) -> None:
    """Check that the device opens again with the same identity after close(), which may come twice, and before open()."""
    camera = make()
    camera.close()
    identities = []
    for _ in range(2):
        identities.append(camera.open())
        camera.read()
        camera.close()
        camera.close()
    _require(camera, a_camera_opens_again, identities[0] == identities[1], "it has another identity", identities)


DRIVER_CHECKS: tuple[Callable[[Make], None], ...] = (
    a_state_is_whole,
    times_run_forward,
    the_hand_reaches_its_target,
    hold_ends_a_motion,
    a_gripper_without_a_command_stays,
    an_unconnected_arm_raises,
    closing_twice_is_harmless,
)
CAMERA_CHECKS: tuple[Callable[[MakeCamera], None], ...] = (
    a_picture_is_rgb_of_one_size,
    exposures_run_forward,
    a_picture_is_its_own,
    a_camera_opens_again,
)


@contextlib.contextmanager
def _opened(make: MakeCamera) -> Iterator[CameraDevice]:
    camera = make()
    camera.open()
    try:
        yield camera
    finally:
        camera.close()


@contextlib.contextmanager
def _connected(make: Make) -> Iterator[ArmDriver]:
    arm = make()
    arm.connect()
    try:
        yield arm
    finally:
        arm.close()


def _require(subject: object, check: Callable[..., None], holds: bool, problem: str, got: object) -> None:
    if not holds:
        name = getattr(subject, "name", type(subject).__name__)
        raise ConformanceFailure(name, check.__name__.replace("_", " "), problem, got=got)
