"""Re-arming over HTTP names the stops that were looked at; leases are taken over by nobody else."""

import random
import threading
from contextlib import suppress

import pytest

from robo_real.drivers.fake import FakeArm
from robo_real.guard import Mode
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.remote_robot import RemoteRobot
from robo_real.server.lease import Lease
from robo_real.server.robo_routes import RoboRoutes
from robo_rl.errors import InvalidSetting, RobotBusy, RobotStopped

TRIALS = 400


@pytest.fixture
def routes():
    robot = GuardedArm(FakeArm(), TWIN)
    robot.connect()
    yield RoboRoutes(robot, {})
    robot.close()


def look(routes) -> int:
    return routes.reads["/robo/health"]()["stops"]


def rearm(routes, stops) -> None:
    with suppress(RobotStopped):
        routes.writes["/robo/rearm"]({"by": "Ada", "stops": stops})


def stop(routes) -> None:
    assert routes.writes["/robo/stop"]({"by": "red button"})["mode"] == "stopped"


def test_rearm_keeps_every_stop_that_came_after_the_look(routes):
    guard = routes._robot.guard
    for trial in range(TRIALS):
        if trial % 2:
            stop(routes)  # which is looked at
        looked, begin = look(routes), threading.Barrier(2)
        stopping = threading.Thread(target=lambda: (begin.wait(60), stop(routes)))  # noqa: B023
        stopping.start()
        begin.wait(60)
        rearm(routes, looked)
        stopping.join(60)
        assert guard.mode is Mode.STOPPED, f"trial {trial}"
        rearm(routes, look(routes))
        assert guard.mode is Mode.IDLE


@pytest.mark.parametrize("seed", range(4))
def test_rearm_ends_exactly_the_stops_looked_at(routes, seed):
    """Any order of looks, stops and re-armings, also with stops while the robot recovers."""
    guard, draw, looked = routes._robot.guard, random.Random(seed), look(routes)
    after_look = stopped = False
    for _ in range(TRIALS):
        deed = draw.choice(["look", "stop", "rearm", "stop while it recovers"])
        if deed == "look":
            looked, after_look = look(routes), False
        elif deed == "stop":
            stop(routes)
            after_look = stopped = True
        else:
            during = deed != "rearm"
            routes._robot.driver.recover = (lambda: stop(routes)) if during else (lambda: None)
            heard = during and not after_look
            rearm(routes, looked)
            stopped = (stopped and after_look) or heard
            after_look = after_look or heard
        assert (guard.mode is Mode.STOPPED) == stopped, deed


def test_rearm_is_good_for_no_fault_that_came_after_the_look(routes):
    """A second click, a retry, or a second operator with an old page."""
    robot = routes._robot
    stop(routes)
    looked = look(routes)
    rearm(routes, looked)
    assert robot.guard.mode is Mode.IDLE
    robot.arm()
    robot.guard.fault("hard_force")
    with pytest.raises(RobotStopped, match="hard_force"):
        routes.writes["/robo/rearm"]({"by": "Ada", "stops": looked})
    assert (robot.guard.mode, robot.guard.reason) == (Mode.FAULT, "hard_force")
    rearm(routes, look(routes))
    assert robot.guard.mode is Mode.IDLE


def test_fault_while_the_robot_recovers_is_not_cleared(routes):
    stop(routes)
    routes._robot.driver.recover = lambda: routes._robot.guard.fault("not_finite")
    rearm(routes, look(routes))
    assert (routes._robot.guard.mode, routes._robot.guard.reason) == (Mode.FAULT, "not_finite")


def test_fault_that_is_reported_again_and_again_can_be_cleared(routes):
    for _ in range(3):
        routes._robot.guard.fault("robot_lost")
    looked = look(routes)
    routes._robot.guard.fault("robot_lost")
    rearm(routes, looked)
    assert routes._robot.guard.mode is Mode.IDLE


def test_rearm_without_a_look_is_refused(routes):
    stop(routes)
    for stops in ({}, {"stops": None}, {"stops": "1"}, {"stops": True}):
        with pytest.raises(InvalidSetting, match=r"must name the number of stops and faults(.|\n)*stops of /robo/health"):
            routes.writes["/robo/rearm"]({"by": "Ada", **stops})
    assert routes._robot.guard.mode is Mode.STOPPED


def test_remote_rearm_raises_if_the_robot_was_stopped_since(serve_in_step):
    robot = RemoteRobot(serve_in_step().url)
    robot.stop()
    looked = robot.stops
    robot.stop("a second person")
    with pytest.raises(RobotStopped, match="stop: "):
        robot.rearm("Ada", looked)
    robot.rearm("Ada")
    robot.connect()
    robot.arm()
    robot.close()


def test_lease_is_taken_over_only_with_its_key():
    lease = Lease()
    token = lease.take("lab:7", "secret")
    for key in ("", "guess", "sécret"):
        with pytest.raises(RobotBusy, match="lab:7"):
            lease.take("lab:7", key)
    lease.require(token)
    again = lease.take("lab:7", "secret")
    with pytest.raises(RobotBusy):
        lease.require(token)
    lease.require(again)
    lease.release(again)
    with pytest.raises(RobotBusy):
        lease.require("")
    lease.take("another", "")
    with pytest.raises(RobotBusy):
        lease.take("another", "")


def test_health_shows_an_owner_whose_lease_it_does_not_give_away(serve_in_step):
    server = serve_in_step()
    mine = RemoteRobot(server.url, owner="lab:7")
    mine.connect()
    owner = mine.client.json("/robo/health", method="GET")["owner"]
    assert owner == "lab:7"
    with pytest.raises(RobotBusy):
        mine.client.json("/robo/lease", {"owner": owner})
    mine.arm()
    mine.close()
