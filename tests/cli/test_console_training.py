"""A training at a robot with a person at the console; a websocket client stands in for the browser."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from socket import SHUT_RDWR

import numpy as np
import pytest
import yaml
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from robo_app.robots.twin_process import twin_process
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.runs.run import find_run
from robo_rl.types import ActionSource

RIGHT = [0.0, 0.5, 0.0, 0.0, 1.0]
RECIPE = {
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"action_repeat": 2, "max_steps": 28}},
    "algorithm": "rlpd",
    "learner": {
        "network": {"hidden": [16, 16]},
        "critics": 2,
        "updates_per_step": 1,
        "batch_size": 16,
        "replay": {"learning_starts": 5},
    },
    "demonstrations": {"episodes": 1},
    "steps": 10,
    "threads": 1,
    "evaluation": {"episodes": 1, "videos": 0},
}


class Person:
    """Begins every episode, labels the first of the training after an intervention, and is lost in the second one.

    In the third the learner is killed.
    """

    def __init__(self, address, folder):
        self.host, self.token = re.search(r"http://([^/]+)/#(\S+)", address).groups()
        self.doings, self.labels, self.drops, self.folder, self.killed = [], 0, 0, folder, []

    def attend(self):
        """Returns when the console is closed."""
        while True:
            try:
                with connect(f"ws://{self.host}/socket", origin=f"http://{self.host}", close_timeout=0.1) as socket:
                    self.say(socket, kind="hello", token=self.token)
                    self.say(socket, kind="sit")
                    self._watch(socket)
            except (ConnectionClosed, EOFError):
                if self.drops == 1 and self.labels == 1:
                    self.drops = 2  # that was the drop: come back
                    continue
                return
            except OSError:
                return

    def say(self, socket, **facts):
        socket.send(json.dumps(facts))

    def _watch(self, socket):
        for message in socket:
            told = json.loads(message)
            if told["kind"] != "status":
                continue
            if told["doing"] not in self.doings:
                self.doings.append(told["doing"])
            self.say(socket, kind="seen", camera="report", number=told["number"])
            runs, trains = told["state"] == "running", told["doing"] == "training"
            held = runs and trains and self.drops < 2 and told["steps"] >= 2
            self.say(socket, kind="hold", held=held, action=RIGHT)
            if told["health"]["mode"] in ("stopped", "fault"):
                self.say(socket, kind="rearm", number=told["number"])
            elif not runs:
                self.say(socket, kind="start")
            elif held and told["human_steps"] >= 3 and self.labels == 0:
                self.labels = 1
                self.say(socket, kind="label", label="success")
            elif held and told["human_steps"] >= 3 and told["episodes"] >= 1 and self.drops == 0:
                self.drops = 1
                socket.socket.shutdown(SHUT_RDWR)
            elif runs and trains and told["episodes"] >= 2 and told["steps"] >= 2 and not self.killed:
                self.killed = learners(self.folder)
                for learner in self.killed:
                    os.kill(learner, signal.SIGKILL)


def learners(folder):
    """Returns the learners' processes of the runs in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes()
            if b"robo_app.training.learner_process" in words and str(folder).encode() in words:
                found.append(int(path.parent.name))
    return found


@pytest.mark.slow
def test_console_training_survives_lost_operator_and_learner(tmp_path):
    (tmp_path / "reach.yaml").write_text(yaml.safe_dump(RECIPE))
    runs, demos = tmp_path / "runs", tmp_path / "demos"
    dispatch(["train", str(tmp_path / "reach.yaml"), "--out", str(runs)])
    settings = ["--environment.arguments.action_repeat", "2", "--environment.arguments.max_steps", "28"]
    dispatch(["record", "robo/ArmReach-v0", "--episodes", "1", "--out", str(demos), *settings])
    command = [sys.executable, "-m", "robo_cli.main", "refine", "latest", "--runs", str(runs), "--dataset", str(demos)]
    command += ["--human", "console", "--port", "0", "--no-browser", "--steps", "60", "--episodes", "1"]
    with (
        twin_process(tmp_path / "audit.jsonl", cameras=[]) as url,
        subprocess.Popen([*command, "--robot", url], stdout=subprocess.PIPE, text=True) as process,
    ):
        person = Person(process.stdout.readline(), runs)
        desk = threading.Thread(target=person.attend, daemon=True)
        desk.start()
        said = process.stdout.read()
        desk.join(20)
    assert process.returncode == 0 and "on 1 shared seed\n" in said
    assert person.labels == 1 and person.drops == 2 and len(person.killed) == 1
    assert {"training", "evaluation: if you take over, the episode ends and counts as a failure"} <= set(person.doings)

    run = find_run("latest", runs)
    first, second, *others = list(Dataset(run.path / "episodes"))
    assert (first.success, first.stop_reason, first.rewards[-1]) == (True, "goal", 1.0)
    commanded = first.sources == ActionSource.HUMAN
    assert commanded.sum() >= 3 and (first.actions[commanded][:, 1] > 0).all()
    assert second.stop_reason == "operator_lost" and second.rewards.sum() == 0
    took_over = int(np.argmax(second.sources == ActionSource.HUMAN))
    own = int((second.sources == ActionSource.HUMAN).sum())
    assert took_over > 0 and own >= 3 and (second.sources[took_over : took_over + own] == ActionSource.HUMAN).all()
    held = second.sources[took_over + own :]
    assert len(held) > 2 and (held == ActionSource.GUARD).all(), "never back to the policy, and not the person's"
    assert np.abs(second.actions[-2][:4]).max() < 0.05, "the arm held before it was stopped"
    assert [episode.stop_reason for episode in others].count("learner_lost") == 1
    state = run.load().parts
    assert int(np.sum(state["replay"]["rows"]["starts"])) == 60 == sum(map(len, (first, second, *others)))
    human = sum(int((episode.sources == ActionSource.HUMAN).sum()) for episode in (first, second, *others))
    assert state["acting"]["supervisor"]["steps"] == human
    assert int(np.sum(state["offline"]["corrections"]["rows"]["starts"])) == human
    assert state["replay"]["rows"]["vectors"][:, -1].max() == 1.0, "the label is the reward"
