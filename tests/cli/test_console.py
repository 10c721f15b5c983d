"""robo-rl console, as typed."""

import json
import re
import signal
import subprocess
import sys

import pytest
from websockets.sync.client import connect

from factories import axes, make_spec
from robo_app.robots.console import for_a_person
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting, RobotUnavailable


@pytest.mark.parametrize("which", [[], ["--twin", "--robot", "http://127.0.0.1:1"]])
def test_one_robot_is_named(which):
    with pytest.raises(InvalidSetting, match="--robot URL or --twin"):
        dispatch(["console", *which])


pytestmark = pytest.mark.real_time  # a console whose process sleeps takes itself for lost


def test_where_no_robot_answers_it_says_so():
    with pytest.raises(RobotUnavailable, match="gives no answer"):
        dispatch(["console", "--robot", "http://127.0.0.1:1", "--no-browser"])


def test_episode_of_a_twin_is_long_enough_for_a_person():
    spec = make_spec("test/Twin", action=axes("x", control_period=0.05), max_steps=100)
    assert for_a_person(spec, {}) == {"max_steps": 600}
    assert for_a_person(spec, {"action_repeat": 3}) == {"max_steps": 200, "action_repeat": 3}
    assert for_a_person(spec, {"max_steps": 7}) == {"max_steps": 7}


def test_console_records_labelled_and_drops_discarded_episodes(tmp_path):
    command = [
        sys.executable,
        "-m",
        "robo_cli.main",
        "console",
        "--twin",
        "--twin.settings.cameras",
        "[]",
        "--port",
        "0",
        "--no-browser",
    ]
    with subprocess.Popen([*command, "--out", str(tmp_path / "kept")], stdout=subprocess.PIPE, text=True) as process:
        host, token = re.search(r"http://([^/]+)/#(\S+)", process.stdout.readline()).groups()
        with connect(f"ws://{host}/socket", origin=f"http://{host}") as socket:
            socket.send(json.dumps({"kind": "hello", "token": token}))
            assert "Recorded episodes" in json.loads(socket.recv())["links"]
            socket.send('{"kind": "sit"}')
            for label in ("failure", "discard", "success"):
                play(socket, label)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=30)[0].endswith("ended; the arm holds still\n")
    assert process.returncode == 0
    dataset = Dataset(tmp_path / "kept")
    assert [dataset.read(entry).success for entry in dataset.entries()] == [False, True]
    assert not [*(tmp_path / "kept" / "journal").iterdir()]


def play(socket, label):
    asked, told = False, {}
    while not asked or told.get("state") == "running":
        message = json.loads(socket.recv(timeout=20))
        if message["kind"] == "status":
            told = message
            socket.send(json.dumps({"kind": "seen", "camera": "report", "number": told["number"]}))
            socket.send('{"kind": "hold", "held": false, "action": [0, 0, 0, 0, 1]}')
            assert not told["has_policy"]
            if told["state"] == "waiting":
                socket.send('{"kind": "start"}')
            elif told["steps"] > 1:
                assert told["time_left"] == pytest.approx(30.0 - 0.05 * told["steps"])
                asked = True
                socket.send(json.dumps({"kind": "label", "label": label}))
