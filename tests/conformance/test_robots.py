"""Every driver of an arm, and the environment over one, keep their promises. One row per robot."""

import sys
import tempfile
from pathlib import Path

import pytest

from robo_real.clock import ManualClock
from robo_real.conformance import DRIVER_CHECKS
from robo_real.drivers.fake import FakeArm
from robo_real.drivers.franka_http import FrankaHttp, FrankaHttpOptions
from robo_real.drivers.lerobot import LeRobotArm, LeRobotOptions
from robo_real.drivers.ros2 import ROS2Arm, ROS2Options
from robo_real.drivers.ur import UR, UROptions
from robo_real.fake_reach import fake_reach
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.server.application import Application, RobotServer
from robo_real.twin import Twin
from robo_rl.conformance.environments import ENVIRONMENT_CHECKS
from robo_rl.entry_points import known


class BehindContract(FrankaHttp):
    """The franka-http driver with a fake arm behind a server of its own."""

    def __init__(self) -> None:
        robot = GuardedArm(FakeArm(), TWIN)
        robot.connect()
        self._server = RobotServer(Application(robot, plain_clients=True), port=0)
        super().__init__(FrankaHttpOptions(url=self._server.url, timeout=20.0))

    def connect(self) -> None:
        self._server.start()
        super().connect()

    def move(self, target) -> None:
        """Streams, because the guard of the server lets no target be far away."""
        super().move(target)
        for _ in range(12):
            self.clock.sleep(0.05)
            super().move(target)

    def close(self) -> None:
        super().close()
        if self._server is not None:
            self._server.close()
            self._server = None


PEERS = []


@pytest.fixture(autouse=True)
def peers():
    """Ends the scripted robots of a test."""
    yield
    while PEERS:
        PEERS.pop().close()


class BehindPeer:
    """The ur driver with a scripted robot of its own, where the wheel is installed."""

    def __call__(self) -> UR:
        pytest.importorskip("rtde_receive", reason="pip install ur_rtde")
        sys.path.insert(0, str(Path(__file__).parents[1] / "real_robot"))
        from rtde_peer import Peer

        PEERS.append(Peer())
        return UR(UROptions(address=PEERS[-1].address, timeout=20.0))


class BehindBridge:
    """The lerobot driver with servos made of arithmetic behind a stand-in of LeRobot."""

    def __call__(self) -> LeRobotArm:
        sys.path.insert(0, str(Path(__file__).parents[1] / "real_robot"))
        from lerobot_bench import servo_arm

        return LeRobotArm(LeRobotOptions(**servo_arm(Path(tempfile.mkdtemp()))))


class BehindTopics:
    """The ros2 driver with a node of servos made of arithmetic, on a stand-in of rclpy."""

    def __call__(self) -> ROS2Arm:
        sys.path.insert(0, str(Path(__file__).parents[1] / "real_robot"))
        from ros2_bench import Bench

        PEERS.append(Bench(Path(tempfile.mkdtemp())))
        PEERS[-1].start()
        return ROS2Arm(ROS2Options(**PEERS[-1].options()))


ROWS = {
    "fake": lambda: FakeArm(clock=ManualClock()),
    "twin": lambda: Twin(clock=ManualClock()),
    "franka-http": BehindContract,
    "ur": BehindPeer(),
    "lerobot": BehindBridge(),
    "ros2": BehindTopics(),
}


SLOW = {"ros2": pytest.mark.slow, "ur": pytest.mark.slow}
"""The driver lerobot has the same base as ros2, and is fast; the clock of a UR controller is real."""


@pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in ROWS])
def test_drivers(name, check):
    if name == "franka-http" and check.__name__ in ("hold_ends_a_motion", "an_unconnected_arm_raises"):
        pytest.skip("the rows of the contract's own tests show it: this stand-in streams, and HTTP needs no connection")
    check(ROWS[name])


@pytest.mark.parametrize("check", ENVIRONMENT_CHECKS, ids=lambda check: check.__name__)
def test_the_environment_over_a_robot(check):
    check(fake_reach)


def test_every_robot_of_ours_has_a_row():
    assert set(known("robots")) == set(ROWS)
