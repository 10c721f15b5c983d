"""robo-rl demo hil: twin, demonstrations, learner and, where a person is wanted, the page, in one command."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.sync.client import connect

from robo_app.robots import hil_demo
from robo_app.robots.twin_process import twin_process
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.errors import RobotUnavailable
from robo_rl.runs.observer import RunRecord
from robo_rl.runs.run import find_run

SHORT = ["demo", "hil", "--human", "simulated", "--steps", "60", "--episodes", "1", "--speed", "3"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["pick", "peg"])
def test_one_command_teaches_the_twin_and_the_same_goes_on(task, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(hil_demo, "DEMONSTRATIONS", 2)
    order = [*SHORT, "--task", task, "--out", str(tmp_path)]
    original = RunRecord.on_step

    def stopped_once(self, step, training):
        if step == 10:
            training.source.environment.unwrapped.robot.stop()
        original(self, step, training)

    with monkeypatch.context() as patched:
        patched.setattr(RunRecord, "on_step", stopped_once)
        assert dispatch(order) == 0
    said = capsys.readouterr().out
    assert "the guard stopped the arm (stop: " in said and "): the simulated person re-arms it" in said
    assert "the twin is at http://127.0.0.1:" in said and "on 1 shared seed\n" in said and "by a person" in said
    assert len(Dataset(tmp_path / f"demonstrations-{task}")) == 2
    run = find_run("latest", tmp_path / "runs")
    assert len(Dataset(run.path / "episodes").entries()) >= 1

    (run.path / "evaluation.json").unlink()  # as if the end had not been reached
    assert dispatch(order) == 0
    assert "resumed at step 60" in capsys.readouterr().out
    assert find_run("latest", tmp_path / "runs").path == run.path and (run.path / "evaluation.json").exists()


def test_demo_expects_a_person_and_has_a_recipe_per_task(tmp_path, monkeypatch):
    order = hil_demo.Hil(out=tmp_path, task="peg", port=0)
    monkeypatch.setattr(hil_demo, "DEMONSTRATIONS", 1)
    demonstrations = hil_demo._demonstrations(replace(order))
    recipe = hil_demo.recipe_of(order, "http://127.0.0.1:1", demonstrations)
    assert (recipe.human.kind, recipe.human.port, recipe.environment.name) == ("console", 0, "robot:http://127.0.0.1:1")
    assert recipe.environment.arguments["control"] == "end_effector_delta_closed" and recipe.learner.gripper == ""
    recorded = Dataset(Path(recipe.demonstrations.dataset)).spec
    assert (recorded.name, recorded.action.names) == ("robo/ArmPegInsert-v0", ("dx", "dy", "dz", "turn"))
    assert (
        recipe.steps == 8000 and hil_demo.recipe_of(replace(order, steps=70), "http://127.0.0.1:1", demonstrations).steps == 70
    )
    assert recipe.evaluation.before and recipe.evaluation.every == 0 and recipe.record_episodes


def test_a_twin_that_cannot_start_is_told(monkeypatch, tmp_path):
    original = subprocess.Popen
    dead = [sys.executable, "-c", ""]
    monkeypatch.setattr(subprocess, "Popen", lambda command, **rest: original(dead, **rest))
    with pytest.raises(RobotUnavailable, match="The twin could not be started"), twin_process(tmp_path / "audit.jsonl"):
        pass


@pytest.mark.slow
def test_demo_plays_the_episode_that_its_operator_begins(tmp_path):
    command = [sys.executable, "-m", "robo_cli.main", "demo", "hil", "--out", str(tmp_path), "--port", "0", "--no-browser"]
    process = subprocess.Popen([*command, "--episodes", "1"], stdout=subprocess.PIPE, text=True)
    try:
        told = (re.search(r"the console is at http://([^/]+)/#(\S+)", line) for line in process.stdout)
        host, token = next(match for match in told if match).groups()
        with connect(f"ws://{host}/socket", origin=f"http://{host}") as socket:
            for facts in ({"kind": "hello", "token": token}, {"kind": "sit"}):
                socket.send(json.dumps(facts))
            begun = _begun(socket)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert begun["doing"].startswith("evaluation")
    assert begun["health"]["cameras"] == ["camera_front", "camera_wrist"]
    (run,) = (tmp_path / "runs").glob("*-demo-hil-pick-console-0")
    assert "camera_front" in find_run(str(run), tmp_path).spec.observation


def _begun(socket):
    """Begins an episode as the page does; returns the first report of its steps in which the arm was seen under way."""
    while True:
        message = socket.recv(timeout=60)
        told = json.loads(message) if isinstance(message, str) else {}
        if told.get("kind") != "status":
            continue
        socket.send(json.dumps({"kind": "seen", "camera": "report", "number": told["number"]}))
        if told["state"] != "running":
            socket.send(json.dumps({"kind": "start"}))
        elif told["steps"] and told["health"]["mode"] == "running":  # what the robot says of itself comes a little later
            return told
