"""A robot's server that was started with a token: who lacks it sees and moves nothing, and may stop the arm."""

import json
import urllib.error
import urllib.request

import pytest

from robo_real.drivers.franka_http import FrankaHttp, FrankaHttpOptions
from robo_real.http_client import RobotClient
from robo_real.remote_robot import RemoteRobot
from robo_real.server.token import HEADER, VARIABLE
from robo_rl.errors import InvalidSetting, RobotError

TOKEN = "a-secret-of-the-lab-7"


@pytest.fixture
def guarded(serve, monkeypatch):
    monkeypatch.setenv(VARIABLE, TOKEN)
    return serve()


def status(server, path, token=None, body=None):
    headers = {"Content-Type": "application/json"} | ({} if token is None else {HEADER: token})
    request = urllib.request.Request(server.url + path, None if body is None else json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("token", [None, "", TOKEN[:-1], TOKEN + "x", TOKEN.upper()])
def test_wrong_token_sees_and_moves_nothing_and_stops(guarded, token):
    for path, body in (
        ("/robo/health", None),
        ("/robo/camera/front", None),
        ("/robo/lease", {"owner": "x"}),
        ("/robo/rearm", {"by": "x", "stops": 0}),
        ("/pose", {"arr": [0.5, 0, 0.3, 1, 0, 0, 0]}),
        ("/getstate", {}),
    ):
        assert status(guarded, path, token, body) == 401, path
    assert guarded.application.robot.guard.mode == "idle"
    assert status(guarded, "/robo/stop", token, {"by": "a red button"}) == 200
    assert guarded.application.robot.guard.mode == "stopped"


def test_clients_of_ours_show_the_token_of_the_environment(guarded, monkeypatch):
    robot = RemoteRobot(guarded.url)
    robot.connect()
    robot.arm()
    robot.close()
    assert status(guarded, "/robo/health", TOKEN) == 200
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(RobotError, match=VARIABLE):
        RemoteRobot(guarded.url)


def test_server_without_a_token_asks_for_none(serve):
    assert status(serve(), "/robo/health") == 200


@pytest.mark.parametrize("token", ["short", "with a space in it", "ümlaut-ümlaut-ümlaut", "x" * 201])
def test_weak_token_is_refused(serve, monkeypatch, token):
    monkeypatch.setenv(VARIABLE, token)
    with pytest.raises(InvalidSetting, match="16 to 200"):
        RobotClient("http://127.0.0.1:5000")


def test_token_goes_to_no_server_of_others(monkeypatch):
    monkeypatch.setenv(VARIABLE, TOKEN)
    assert FrankaHttp(FrankaHttpOptions(url="http://127.0.0.1:5000"))._client._token == ""
