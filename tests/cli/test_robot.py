"""robo-rl robot, as a stranger would use it: a twin is served, looked at, recorded on, stopped and re-armed."""

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import yaml

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_real.server.application import Application, RobotServer
from robo_rl.errors import InvalidSetting, RobotStopped, SpecMismatch, UnknownName


@contextmanager
def twin(*arguments: str):
    """Serves in a process of its own; gives the process and the address."""
    command = [sys.executable, "-m", "robo_cli.main", "robot", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield process, re.search(r"http://[\d.:]+\d", line)[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_twin_is_served_recorded_stopped_and_rearmed(capsys, tmp_path):
    with twin("--log", str(tmp_path / "audit.jsonl")) as (process, url):
        dispatch(["robot", "check", url])
        seen = capsys.readouterr().out
        assert (
            "robo/ArmReach-v0" in seen and "20 actions/s" in seen and "holds after 0.15 s" in seen and "state: median" in seen
        )

        dispatch(["record", f"robot:{url}", "--out", "data", "--episodes", "2"])
        dataset = Dataset(tmp_path.cwd() / "data")
        ends = [entry.stop_reason for entry in dataset.entries()]
        assert len(ends) == 2 and set(ends) <= {"goal", "control_late"}  # late only where the machine is very busy

        dispatch(["robot", "stop", url, "--why", "the table shakes"])
        with pytest.raises(RobotStopped, match=r"stopped: stop: robo-rl robot stop.*: the table shakes"):
            dispatch(["record", f"robot:{url}", "--out", "more", "--episodes", "1"])
        capsys.readouterr()
        dispatch(["robot", "rearm", url, "--by", "Ada"])
        assert "mode idle" in capsys.readouterr().out
        dispatch(["record", f"robot:{url}", "--out", "even-more", "--episodes", "1"])

        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0 and process.stdout.read().endswith("ended; the arm holds still\n")
    events = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert [event["by"] for event in events if event["event"] == "rearm"] == ["Ada"]


@pytest.mark.slow
def test_sim_run_is_evaluated_on_twin_at_same_rate_only(capsys):
    recipe = {
        "environment": {"name": "robo/ArmReach-v0"},
        "algorithm": "bc",
        "learner": {"network": {"hidden": [64, 64]}, "lr": 0.003},
        "demonstrations": {"episodes": 60},  # always succeeds in the simulation; one of 20 does in 6 of 10 there
        "steps": 2000,
        "evaluation": {"every": 0, "episodes_during": 1, "episodes": 1, "videos": 0},
    }
    with open("reach.yaml", "w") as file:
        yaml.safe_dump(recipe, file)
    dispatch(["train", "reach.yaml"])
    with twin("--driver.settings.speed", "0.5") as (_, url):  # a busy machine is late less often
        capsys.readouterr()
        dispatch(["evaluate", "latest", "--environment", f"robot:{url}", "--episodes", "3", "--json"])
        assert json.loads(capsys.readouterr().out)["successes"].count(True) >= 2
        with pytest.raises(SpecMismatch, match=r"action.control_period: 0.05 here, 0.1 there"):
            dispatch(["evaluate", "latest", "--environment", f"robot:{url}?action_repeat=2", "--episodes", "1"])


@pytest.mark.slow
def test_a_recipe_trains_evaluates_and_saves_on_the_twin(capsys):
    with twin("--driver.settings.speed", "4") as (_, url):
        recipe = {
            "environment": {"name": f"robot:{url}?max_steps=20"},
            "algorithm": "rlpd",
            "learner": {
                "network": {"hidden": [32, 32]},
                "replay": {"learning_starts": 10},
                "critics": 2,
                "target_critics": 2,
                "updates_per_step": 1,
            },
            "demonstrations": {"episodes": 1},
            "steps": 45,
            "checkpoint_every": 30,
            "threads": 1,
            "evaluation": {"every": 30, "episodes_during": 1, "episodes": 1, "videos": 0},
        }
        with open("twin.yaml", "w") as file:
            yaml.safe_dump(recipe, file)
        assert dispatch(["train", "twin.yaml"]) == 0
    assert "1 episode, seeds 1000000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (["--driver", "franka-http"], InvalidSetting, "No limits are given for franka-http"),
        (["--driver", "frank"], UnknownName, "franka-http"),
        (["--driver.settings.task", "robo/ArmPik-v0"], UnknownName, "ArmPick-v0"),
        (["--driver.settings.sped", "2"], UnknownName, "speed"),
        (["--driver.settings.task", "gymnasium/Ant-v5"], InvalidSetting, "no plant"),
    ],
)
def test_what_cannot_be_served_is_told(arguments, kind, said, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(kind, match=said):
        dispatch(["robot", "serve", "--port", "0", *arguments])


def test_check_tells_what_is_wrong(capsys, monkeypatch):
    assert dispatch(["robot", "check", "http://127.0.0.1:9"]) == 1
    said = capsys.readouterr().out
    assert "PROBLEM  http://127.0.0.1:9/robo/version gives no answer." in said
    assert "does `robo-rl robot serve` still run there" in said and "robot check" not in said, "no command is its own remedy"


@pytest.mark.real_time
def test_check_of_a_server_that_knows_the_contract_only(capsys, monkeypatch):
    from robo_real.drivers.fake import FakeArm
    from robo_real.guarded_arm import GuardedArm
    from robo_real.limits import TWIN

    methods = Application._methods  # /robo/ is as unknown to it as any other path
    monkeypatch.setattr(Application, "_methods", lambda self, path: [] if path.startswith("/robo/") else methods(self, path))
    robot = GuardedArm(FakeArm(), TWIN)
    robot.connect()
    server = RobotServer(Application(robot, plain_clients=True), port=0)
    server.start()
    dispatch(["robot", "check", server.url])
    seen = capsys.readouterr().out
    assert "without lease, guard and watchdog" in seen and "/getstate: median" in seen
    server.close()
