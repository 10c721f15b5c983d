"""Nothing moves an arm that is stopped: every route of the server and every method of a guarded arm, for every driver.

What moved is read from the arm itself: the joints of the simulated plant (its hand, if a server of the contract holds it with
an impedance that leaves the elbow free), the hand of the fake, the commands that the peer took.
"""

import inspect
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from robo_real.arm import ArmTarget
from robo_real.clock import ManualClock
from robo_real.drivers.fake import FakeArm
from robo_real.drivers.franka_http import FrankaHttp, FrankaHttpOptions
from robo_real.fake_reach import PointToReach
from robo_real.guard import Mode
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.rotations import DOWN
from robo_real.server.application import Application
from robo_real.server.messages import Request
from robo_real.twin import Twin
from robo_rl.errors import RoboRLError

sys.path.insert(0, str(Path(__file__).parent))
from faulty_twin import Faults, FaultyTwin

AWAY = [0.50, 0.05, 0.20]
BODIES = {
    "/pose": {"arr": [*AWAY, 1.0, 0.0, 0.0, 0.0]},
    "/move_gripper": {"gripper_pos": 0},
    "/update_param": {"translational_stiffness": 3000, "translational_clip_x": 0.02, "rotational_clip_z": 0.1},
    "/set_load": {"mass": 2.0, "F_x_center_load": [0, 0, 0.1], "load_inertia": [0.0] * 9},
    "/robo/apply": {"action": [1, 1, -1, 1, -1], "answers": 0.0},
    "/robo/judge": {"action": [1, 1, -1, 1, -1], "answers": 0.0},
    "/robo/scene/reset": {"seed": 3},
    "/robo/lease": {"owner": "somebody else", "key": "another"},
    "/robo/rearm": {"by": "nobody", "stops": -1},
    "/robo/stop": {"by": "test"},
}
PASSED = 0.3
"""[s] of the arm's time after each call, in which it would have moved"""


def stopped(robot):
    robot.stop("red button")


def faulty(robot):
    robot.guard.fault("hard_force")


def silent(robot):
    robot.guard.stop("watchdog")


def in_reflex(robot):
    robot.driver.inject(Faults(reflex=True))
    robot.driver.clock.sleep(0.05)
    robot.driver.read()
    robot.driver.inject(Faults())


def moved(robot):
    """Put the arm under way, so that it is somewhere and could go on."""
    robot.arm()
    for _ in range(4):
        robot.measure()
        robot.apply([0.5, 0.3, -0.2, 0.2, 0.2])
        robot.driver.clock.sleep(0.05)


@pytest.fixture
def twin():
    arm = FaultyTwin(Twin(clock=ManualClock()))
    robot = GuardedArm(arm, TWIN, spec=arm.spec, scene=arm)
    robot.connect()
    arm.clock.sleep(0.1)
    yield robot
    robot.close()


def plant_of(robot):
    """Return every joint of the simulated arm, fingers included, after the time in which a motion would show."""
    robot.driver.clock.sleep(PASSED)
    with suppress(RoboRLError):
        robot.driver.read()
    return robot.driver._plant._physics.data.qpos[:9].copy()


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("latch", [stopped, faulty, silent, in_reflex])
def test_no_route_moves_a_stopped_arm(twin, latch, plain):
    application = Application(twin, plain_clients=plain, auto_clear=False)
    moved(twin)
    latch(twin)
    twin.driver.clock.sleep(1.0)
    before, mode, answered = plant_of(twin), twin.guard.mode, set()
    own, contract = application.robo_routes, application.franka_routes
    assert twin.guard.mode in (Mode.STOPPED, Mode.FAULT)
    lease = ""
    for path in [*contract.commands, *contract.readers, *own.reads, *own.writes, "/robo/camera/camera_front"]:
        for method in ("POST", "GET"):
            bodies = [{}, BODIES.get(path, {})] if not lease else [BODIES.get(path, {}) | {"lease": lease}]
            for body in bodies:
                answered.add(application.answer(Request(method, path, body)).status)
                np.testing.assert_allclose(plant_of(twin), before, atol=1e-4, err_msg=f"{method} {path} {body}")
        if path == "/robo/lease":
            own.lease.release(own.lease._token) if own.lease.owner else None
            lease = own.lease.take("test", "key")  # what needs the lease is asked with it
    assert {200, 423} <= answered and (500 in answered) == plain
    assert twin.guard.mode is mode or latch is not stopped


@pytest.mark.parametrize("plain", [False, True])
def test_no_route_moves_an_arm_that_was_rearmed_only(twin, plain):
    """What does is a pose or a gripper of a plain client, and the reset of a simulated scene, if they are allowed."""
    application = Application(twin, plain_clients=plain)
    moved(twin)
    twin.stop()
    twin.driver.clock.sleep(1.0)
    twin.rearm()
    arming = {"/pose", "/open_gripper", "/close_gripper", "/close_gripper_slow", "/move_gripper", "/jointreset"}
    before, own, contract = plant_of(twin), application.robo_routes, application.franka_routes
    lease = "" if plain else own.lease.take("test", "key")
    for path in [*contract.commands, *contract.readers, *own.reads, *own.writes]:
        if path in ("/robo/arm", "/robo/scene/reset", "/robo/lease", "/robo/release") or (plain and path in arming):
            continue
        application.answer(Request("POST", path, BODIES.get(path, {}) | {"lease": lease}))
        np.testing.assert_allclose(plant_of(twin), before, atol=1e-4, err_msg=path)


METHODS = {
    "apply": lambda robot: robot.apply([1, 1, -1, 1, -1]),
    "judge": lambda robot: robot.judge([1, 1, -1, 1, -1]),
    "tare": lambda robot: robot.tare(),
    "move": lambda robot: robot.move(ArmTarget(np.array(AWAY), DOWN, 0.0)),
    "grip": lambda robot: robot.grip(0.0),
    "reset_joints": lambda robot: robot.reset_joints(1.0),
    "forward_joint_reset": lambda robot: robot.forward_joint_reset(1.0),
    "reset_scene": lambda robot: robot.reset_scene(3),
    "recover": lambda robot: robot.recover(),
    "pause": lambda robot: robot.pause(),
    "stop": lambda robot: robot.stop(),
    "read": lambda robot: robot.read(),
    "measure": lambda robot: robot.measure(),
    "come_near": lambda robot: robot.come_near(ArmTarget(np.zeros(3), (1.0, 0.0, 0.0, 0.0), None)),
    "observe": lambda robot: robot.observe(),
    "arm": lambda robot: robot.arm(),
    "rearm": lambda robot: robot.rearm(-1),
    "connect": lambda robot: robot.connect(),
    "watchdog.check": lambda robot: robot.watchdog.check(),
    "observation": lambda robot: robot.observation(robot.measure()),
    "close": lambda robot: robot.close(),  # the last
}


def test_every_method_of_a_guarded_arm_is_put_to_the_proof():
    public = {name for name, _ in inspect.getmembers(GuardedArm, inspect.isfunction) if not name.startswith("_")}
    assert public | {"watchdog.check"} == set(METHODS)


def require_still(robot, position, wait):
    """Call every method on a latched arm, and look where it is after each."""
    before = position()
    for name, call in METHODS.items():
        with suppress(RoboRLError):
            call(robot)
        wait()
        np.testing.assert_allclose(position(), before, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("latch", [stopped, faulty, silent, in_reflex])
def test_no_method_moves_a_stopped_twin(twin, latch):
    moved(twin)
    latch(twin)
    twin.driver.clock.sleep(1.0)
    require_still(twin, lambda: plant_of(twin), lambda: None)


@pytest.mark.parametrize("latch", [stopped, faulty, silent])
def test_no_method_moves_a_stopped_fake(latch):
    arm = FakeArm(clock=ManualClock())
    robot = GuardedArm(arm, TWIN, scene=PointToReach(arm))
    robot.connect()
    moved(robot)
    latch(robot)
    arm.clock.sleep(1.0)
    with suppress(RoboRLError):
        arm.read()

    def position():
        arm.clock.sleep(PASSED)
        with suppress(RoboRLError):
            arm.read()
        return [*arm._position, arm._opening]

    require_still(robot, position, lambda: None)


@pytest.mark.parametrize("latch", [stopped, faulty])
def test_no_method_moves_a_stopped_arm_behind_the_contract(serve, latch):
    """The driver of a real Franka's server, in front of a twin in real time: also its joint reset."""
    server = serve()
    inner = server.application.robot.driver
    robot = GuardedArm(FrankaHttp(FrankaHttpOptions(url=server.url, timeout=20.0)), TWIN)
    robot.connect()
    robot.arm()
    robot.measure()
    robot.apply([0.5, 0.3, -0.2, 0.2, 0.2])
    latch(robot)
    time.sleep(0.6)
    require_still(robot, inner._plant._physics.gripper_position.copy, lambda: time.sleep(0.1))


@pytest.mark.slow
def test_no_method_moves_a_stopped_universal_robot():
    pytest.importorskip("rtde_receive", reason="pip install ur_rtde")
    sys.path.insert(0, str(Path(__file__).parent))
    from rtde_peer import Peer
    from test_ur import LIMITS

    from robo_real.drivers.ur import UR, UROptions

    peer = Peer()
    robot = GuardedArm(UR(UROptions(address=peer.address, timeout=20.0)), LIMITS)
    try:
        robot.connect()
        robot.arm()
        robot.measure()
        robot.apply([0.5, 0.3, -0.2, 0.2, 0.2])
        stopped(robot)
        time.sleep(0.2)
        sent = [number for number, _ in peer.get("commands")].count(24)
        require_still(robot, lambda: peer.get("actual_TCP_pose"), lambda: time.sleep(0.05))
        assert [number for number, _ in peer.get("commands")].count(24) == sent
    finally:
        robot.close()
        peer.close()
