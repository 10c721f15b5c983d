"""The routes of HIL-SERL's Franka server, spoken by a client of a few lines that knows nothing of ours."""

import json
import socket
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from robo_real.arm import ArmTarget
from robo_real.drivers.franka_http import FrankaHttp, FrankaHttpOptions
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_rl.errors import RobotStopped, RobotUnavailable

sys.path.insert(0, str(Path(__file__).parent))
from faulty_twin import Faults


def reason_of(server, route, body=None):
    """Returns status and X-Robo-Reason."""
    content = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + route, content, {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["X-Robo-Reason"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["X-Robo-Reason"]


def post(server, route, body=None, method="POST"):
    """Returns status, type of content and text."""
    content = b"" if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(server.url + route, content if method == "POST" else None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


GETTERS = {
    "/getpos": {"pose": (7,)},
    "/getpos_euler": {"pose": (6,)},
    "/getvel": {"vel": (6,)},
    "/getforce": {"force": (3,)},
    "/gettorque": {"torque": (3,)},
    "/getq": {"q": (7,)},
    "/getdq": {"dq": (7,)},
    "/getjacobian": {"jacobian": (6, 7)},
    "/get_gripper": {"gripper": ()},
    "/getstate": {
        "pose": (7,),
        "vel": (6,),
        "force": (3,),
        "torque": (3,),
        "q": (7,),
        "dq": (7,),
        "jacobian": (6, 7),
        "gripper_pos": (),
    },
}
COMMANDS = [
    ("/open_gripper", None, "Opened"),
    ("/close_gripper", None, "Closed"),
    ("/close_gripper_slow", None, "Closed"),
    ("/move_gripper", {"gripper_pos": 100}, "Moved Gripper"),
    ("/activate_gripper", None, "Activated"),
    ("/reset_gripper", None, "Reset"),
    ("/clearerr", None, "Clear"),
    ("/jointreset", None, "Reset Joint"),
    ("/stopimp", None, "Stopped impedance"),
    ("/startimp", None, "Started impedance"),
    ("/update_param", {"translational_stiffness": 2000, "translational_clip_x": 0.0075}, "Updated compliance parameters"),
    ("/set_load", {"mass": 0.5, "F_x_center_load": [0, 0, 0.05], "load_inertia": [0.0] * 9}, "Set Load"),
]


@pytest.mark.slow
def test_a_transcript_of_every_route(serve_in_step):
    server = serve_in_step()
    for route, shapes in GETTERS.items():
        status, kind, text = post(server, route)
        found = json.loads(text)
        assert (status, kind) == (200, "application/json"), route
        assert {name: np.shape(value) for name, value in found.items()} == shapes, route
        assert text == json.dumps(found, sort_keys=True, separators=(",", ":")) + "\n"  # to the byte as Flask writes
        assert post(server, route, method="GET")[0] == 405, route
    pose = json.loads(post(server, "/getpos")[2])["pose"]
    for route, body, answer in [("/pose", {"arr": pose}, "Moved"), *COMMANDS]:
        assert post(server, route, body) == (200, "text/html; charset=utf-8", answer), route
        assert post(server, route, method="GET")[0] == 405, route
    assert post(server, "/getpose")[0] == 404


def test_units_and_the_order_of_quaternions(serve_in_step):
    server = serve_in_step()
    state = json.loads(post(server, "/getstate")[2])
    true = server.application.robot.driver.read()
    np.testing.assert_allclose(state["pose"][:3], true.position, atol=1e-4)
    x, y, z, w = state["pose"][3:]
    np.testing.assert_allclose((w, x, y, z), true.quaternion, atol=1e-3)
    euler = json.loads(post(server, "/getpos_euler")[2])["pose"][3:]
    turn = Rotation.from_euler("xyz", euler) * Rotation.from_quat((x, y, z, w)).inv()
    assert turn.magnitude() < 1e-2
    assert state["gripper_pos"] == pytest.approx(true.opening / 0.08, abs=1e-2)


def test_forces_are_told_in_the_frame_of_the_hand(serve_in_step):
    server = serve_in_step()
    before = json.loads(post(server, "/getforce")[2])["force"]
    server.application.robot.driver.inject(Faults(push=30.0))
    after = json.loads(post(server, "/getforce")[2])["force"]
    np.testing.assert_allclose(
        np.subtract(after, before), [0, 0, -30.0], atol=1.0
    )  # up in the base is back in a hand that points down


@pytest.mark.slow
def test_a_client_of_the_contract_moves_the_arm_and_the_gripper(serve_in_step):
    server = serve_in_step()
    post(server, "/update_param", {f"translational_clip_{axis}": 0.05 for axis in "xyz"})
    start = json.loads(post(server, "/getpos")[2])["pose"]
    for _ in range(20):
        now = json.loads(post(server, "/getstate")[2])["pose"]
        post(server, "/clearerr")
        assert post(server, "/pose", {"arr": [now[0] + 0.01, *now[1:]]})[0] == 200
        server.application.robot.clock.sleep(0.03)
    end = json.loads(post(server, "/getpos")[2])["pose"]
    assert end[0] - start[0] > 0.04 and np.abs(np.subtract(end, start)[1:3]).max() < 0.01
    post(server, "/move_gripper", {"gripper_pos": 51})  # 2 cm
    server.application.robot.clock.sleep(0.8)
    assert json.loads(post(server, "/get_gripper")[2])["gripper"] == pytest.approx(0.25, abs=0.05)


def test_one_pose_is_reached(serve_in_step):
    """As the reset of HIL-SERL's RAM task sends it: once, 40 mm away."""
    server = serve_in_step()
    pose = json.loads(post(server, "/getpos")[2])["pose"]
    there = [pose[0] - 0.015, pose[1] + 0.02, pose[2] - 0.03, *Rotation.from_euler("xyz", [np.pi, 0, 0.4]).as_quat()]
    assert reason_of(server, "/pose", {"arr": there}) == (200, None)
    server.application.robot.clock.sleep(1.0)
    end = json.loads(post(server, "/getpos")[2])["pose"]
    np.testing.assert_allclose(end[:3], there[:3], atol=1e-3)
    assert (Rotation.from_quat(end[3:]) * Rotation.from_quat(there[3:]).inv()).magnitude() < 0.02


def test_pose_that_is_not_reached_says_so(serve_in_step):
    server = serve_in_step()
    robot = server.application.robot
    robot.guard._high[2] = json.loads(post(server, "/getpos")[2])["pose"][2] + 0.01
    pose = json.loads(post(server, "/getpos")[2])["pose"]
    assert reason_of(server, "/pose", {"arr": [*pose[:2], pose[2] + 0.03, *pose[3:]]}) == (200, "box")


@pytest.mark.slow
@pytest.mark.parametrize("yaw", [0.4, 0.64, 0.92, 1.2])
def test_poses_between_two_directions_need_not_be_normalised(serve_in_step, yaw):
    """HIL-SERL's interpolate_move takes the numbers between two quaternions as they are."""
    server = serve_in_step()
    pose = np.array(json.loads(post(server, "/getpos")[2])["pose"])
    goal = np.array([*pose[:2], pose[2] - 0.01, *(Rotation.from_quat(pose[3:]) * Rotation.from_rotvec([0, 0, yaw])).as_quat()])
    noted = set()
    for share in np.linspace(0, 1, 30):
        status, reason = reason_of(server, "/pose", {"arr": ((1 - share) * pose + share * goal).tolist()})
        assert status == 200
        noted.add(reason)
        server.application.robot.clock.sleep(0.1)
    server.application.robot.clock.sleep(0.5)
    end = json.loads(post(server, "/getpos")[2])["pose"]
    assert (Rotation.from_quat(end[3:]) * Rotation.from_quat(goal[3:]).inv()).magnitude() < 0.02
    assert ("quaternion" in noted) == (yaw > 0.5)


def test_parameters_respect_force_limits(serve_in_step):
    server = serve_in_step(replace(TWIN, stiffness=2000.0, turn_stiffness=150.0, reach=0.01))
    robot, told = server.application.robot, {}
    robot.driver.update_param = told.update
    asked = {"translational_stiffness": 99999, "rotational_stiffness": 200, "translational_clip_x": 0.05, "translational_Ki": 5}
    asked |= {"rotational_clip_neg_z": 0.05, "translational_damping": 89}
    status, reason = reason_of(server, "/update_param", asked)
    assert status == 200 and "translational_stiffness 99999 -> 2000" in reason and "damping" not in reason
    allowed = {
        "translational_stiffness": 2000,
        "rotational_stiffness": 150,
        "translational_clip_x": 0.01,
        "translational_Ki": 0,
    }
    assert told == allowed | {"rotational_clip_neg_z": 0.05, "translational_damping": 89}
    assert [event["set"] for event in robot.log.recent if event["event"] == "update_param"] == [told]
    assert told["translational_stiffness"] * max(told["translational_clip_x"], 0.01) <= 20.0  # N, as the limits say
    robot.stop("red button")
    assert reason_of(server, "/update_param", {"translational_stiffness": 1000}) == (500, "red button")


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/update_param", {"translational_stiffness": True}),
        ("/update_param", {"translational_damping": "89"}),
        ("/move_gripper", {"gripper_pos": "100"}),
        ("/move_gripper", {"gripper_pos": True}),
        ("/pose", {"arr": ["0.46", 0, 0.24, 1, 0, 0, 0]}),
        ("/pose", {"arr": [0.46, False, 0.24, 1, 0, 0, 0]}),
    ],
)
def test_texts_and_truth_values_are_no_numbers(serve_in_step, route, body):
    server = serve_in_step()
    told = server.application.robot.driver.update_param = {}.update
    status, reason = reason_of(server, route, body)
    assert status == 500 and "no number" in reason and not told.__self__


def test_limits_without_stiffness_let_clients_set_none(serve_in_step):
    server = serve_in_step(replace(TWIN, stiffness=None, turn_stiffness=None))
    told = server.application.robot.driver.update_param = {}.update
    status, reason = reason_of(server, "/update_param", {"translational_stiffness": 2000, "translational_damping": 89})
    assert status == 200 and reason == "translational_stiffness not set: the limits name none"
    assert told.__self__ == {"translational_damping": 89}


def test_clearing_errors_leaves_a_protective_stop_to_a_person(serve_in_step):
    """HIL-SERL's client clears errors before each pose: that must not unlock an arm that has stopped itself."""
    server = serve_in_step()
    robot, recovered = server.application.robot, []
    robot.driver.recover = lambda: recovered.append(1)
    pose = json.loads(post(server, "/getpos")[2])["pose"]
    post(server, "/pose", {"arr": pose})
    robot.driver.inject(Faults(reflex=True))
    robot.clock.sleep(0.1)
    for _ in range(3):
        assert post(server, "/clearerr")[2] == "Clear"
        post(server, "/pose", {"arr": pose})
    assert recovered == [] and robot.guard.reason == "robot: reflex"
    robot.rearm()  # a person
    assert recovered == [1]


@pytest.mark.slow
def test_clearing_no_error_leaves_the_hand_on_its_way(serve_in_step):
    server = serve_in_step(auto_clear=True)
    pose = json.loads(post(server, "/getpos")[2])["pose"]
    there = [pose[0] - 0.04, *pose[1:]]
    post(server, "/pose", {"arr": there})
    post(server, "/clearerr")
    server.application.robot.clock.sleep(1.0)
    assert json.loads(post(server, "/getpos")[2])["pose"][0] == pytest.approx(there[0], abs=0.002)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"arr": [0.4, 0, 0.2, 0, 1, 0]}, 500),
        ({"arr": [0.4, 0, 0.2, 1, 0, 0, 0, 0]}, 500),
        ({"arr": "no"}, 500),
        ({}, 500),
        (None, 415),
    ],
)
def test_a_pose_that_is_none_fails_as_it_always_did(serve_in_step, body, status):
    server = serve_in_step()
    found, kind, text = post(server, "/pose", body)
    assert (found, kind) == (status, "text/html; charset=utf-8") and text.startswith("<!doctype html>")


def test_error_page_is_written_as_flask_writes_it(serve_in_step):
    said = "Did not attempt to load JSON data because the request Content-Type was not &#39;application/json&#39;."
    kind = "Unsupported Media Type"
    page = f"<!doctype html>\n<html lang=en>\n<title>415 {kind}</title>\n<h1>{kind}</h1>\n<p>{said}</p>\n"
    assert post(serve_in_step(), "/pose", None)[2] == page


@pytest.mark.slow
@pytest.mark.parametrize("arr", [[float("nan")] * 7, [0.6, 0.2, 0.2, 1.0, 0, 0, 0], [0.46, 0.0, 0.2, 0.5, 0, 0, 0]])
def test_a_pose_that_would_do_harm_never_reaches_the_arm(serve_in_step, arr):
    server = serve_in_step()
    before = server.application.robot.driver.read().position
    assert post(server, "/pose", {"arr": arr})[0] == 500
    server.application.robot.clock.sleep(0.2)
    np.testing.assert_allclose(server.application.robot.driver.read().position, before, atol=0.002)


def test_clearing_an_error_does_not_undo_what_the_guard_latched(serve_in_step):
    server = serve_in_step()
    post(server, "/pose", {"arr": [float("nan")] * 7})
    assert post(server, "/clearerr")[2] == "Clear"
    pose = json.loads(post(server, "/getpos")[2])["pose"]
    assert post(server, "/pose", {"arr": pose})[0] == 500
    assert server.application.robot.guard.reason == "not_finite"


@pytest.mark.parametrize(("auto_clear", "moves"), [(False, False), (True, True)])
def test_poses_are_ignored_after_reflex_until_cleared(serve_in_step, auto_clear, moves):
    server = serve_in_step(auto_clear=auto_clear)
    twin = server.application.robot.driver
    pose = json.loads(post(server, "/getpos")[2])["pose"]
    up = {"arr": [*pose[:2], pose[2] + 0.015, *pose[3:]]}
    post(server, "/pose", {"arr": pose})
    twin.inject(Faults(reflex=True))
    assert post(server, "/pose", up)[2] == "Moved"  # as a Franka says, which does not move
    assert twin.read().position[2] == pytest.approx(pose[2], abs=0.002)
    post(server, "/clearerr")
    for _ in range(10):
        post(server, "/pose", up)
        server.application.robot.clock.sleep(0.03)
    assert (twin.read().position[2] - pose[2] > 0.008) == moves


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_stop_after_reflex_is_not_cleared(serve_in_step, when):
    server = serve_in_step(auto_clear=True)
    robot = server.application.robot
    robot.guard.fault("robot: reflex")
    if when == "before":
        robot.stop("red button")
    else:
        robot.driver.recover = lambda: robot.stop("red button")
    assert post(server, "/clearerr")[2] == "Clear"
    with pytest.raises(RobotStopped):
        robot.arm()


def test_a_hardware_server_moves_for_nobody_without_a_lease(serve_in_step):
    server = serve_in_step(plain_clients=False)
    assert post(server, "/getstate")[0] == 200
    assert post(server, "/pose", {"arr": [0.46, 0, 0.2, 1, 0, 0, 0]})[0] == 403


@pytest.mark.slow
def test_a_page_in_a_browser_is_kept_out(serve_in_step):
    server = serve_in_step()
    request = urllib.request.Request(server.url + "/open_gripper", b"", {"Origin": "http://evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=30)


def test_the_driver_behind_the_contract_never_clears_an_error(serve_in_step):
    server = serve_in_step(auto_clear=True)
    robot = GuardedArm(FrankaHttp(FrankaHttpOptions(url=server.url, timeout=20.0)), TWIN)
    robot.connect()
    robot.arm()
    for _ in range(5):
        robot.observe()
        robot.apply([0.3, 0, 0, 0, 1])
        server.application.robot.clock.sleep(0.03)
    robot.close()
    assert server.application.robot.guard.counts["clearerr"] == 0


def test_a_server_that_hangs_does_not_freeze_the_driver():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        driver = FrankaHttp(FrankaHttpOptions(url=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1))
        start = time.monotonic()
        with pytest.raises(RobotUnavailable, match=r"within 0\.1 s"):
            driver.read()
        assert time.monotonic() - start < 5.0
        driver.close()


@pytest.mark.slow
def test_silent_gripper_is_held_then_blocks_the_arm(serve_in_step):
    server = serve_in_step()

    def silent(body):
        raise RobotUnavailable("no answer")

    server.application.franka_routes.commands["/move_gripper"] = silent
    clock = server.application.robot.clock
    driver = FrankaHttp(FrankaHttpOptions(url=server.url, timeout=20.0), clock)
    driver.connect()
    start = driver.read()
    for _ in range(18):
        here = driver.read()
        driver.move(ArmTarget(here.position + np.array([0.01, 0, 0]), here.quaternion, 0.02))
        clock.sleep(0.05)
    now = driver.read()
    assert now.position[0] - start.position[0] > 0.02 and now.opening == pytest.approx(start.opening, abs=1e-3)
    with pytest.raises(RobotUnavailable, match="gripper does not answer"):
        for _ in range(20):
            driver.move(ArmTarget(now.position, now.quaternion, 0.02))
            clock.sleep(0.05)
    driver.close()
