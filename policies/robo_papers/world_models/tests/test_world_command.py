"""robo-rl world: fit, check, train inside; an interrupted fit; refused folders and data."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from robo_app.jobs.exit_status import status_of
from robo_cli.main import dispatch
from robo_papers.world_models.world import load_world
from robo_rl.errors import CheckpointCorrupt, InvalidSetting, SpecMismatch

TINY = ["--settings.hidden", "16", "--settings.members", "2", "--settings.elites", "1", "--settings.epochs", "3"]
ARM = ["--environment.arguments.action_repeat", "3", "--environment.arguments.max_steps", "12"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "push"
    policy = ["--policy", "mix:scripted=0.5,random=0.5"]
    assert dispatch(["record", "robo/ArmPush-v0", "--out", str(path), "--episodes", "10", *policy, *ARM]) == 0
    return path


@pytest.mark.slow
def test_fit_check_and_train_inside(data, capsys):
    assert dispatch(["world", "fit", str(data), "--out", "w", *TINY]) == 0
    world = load_world("w")
    assert world.facts["environment"] == "robo/ArmPush-v0" and world.facts["arguments"]["action_repeat"] == 3
    assert not Path("w/under_way").exists()
    assert dispatch(["world", "check", "w", "--dataset", str(data), "--policies", "scripted", "random", "--episodes", "2"]) == 0
    out = capsys.readouterr().out
    assert "fitted to these very episodes" in out and "random: success" in out and "outside the data" in out
    figures = json.loads(Path("w/check/check.json").read_text())
    assert figures["schema"] == "robo_rl.world_check/1" and len(figures["policies"]) == 2
    page = Path("w/check/check.html").read_text()
    assert "the very episodes" in page and "data:video/mp4" in page and "random" in page
    tiny = ["--learner.replay.learning-starts", "20", "--learner.network.hidden", "8", "--evaluation.episodes", "2"]
    train = ["train", "sac", "--environment", "world:w", "--steps", "60", "--environment.arguments.action_repeat", "3", *tiny]
    assert dispatch(train) == 0
    with pytest.raises(InvalidSetting, match="other arguments"):
        dispatch([*train, "--environment.arguments.reward", "dense"])


def test_wrong_folders_are_refused(data):
    with pytest.raises(CheckpointCorrupt, match="There is no world in none"):
        dispatch(["world", "check", "none", "--dataset", str(data)])
    assert dispatch(["world", "fit", str(data), "--out", "w", *TINY]) == 0
    with pytest.raises(InvalidSetting, match="w is not empty"):
        dispatch(["world", "fit", str(data), "--out", "w", *TINY])
    assert dispatch(["record", "robo/ArmReach-v0", "--out", "reach", "--episodes", "1"]) == 0
    with pytest.raises(SpecMismatch, match=r"fitted to another environment than reach(.|\n)*robo-rl world fit"):
        dispatch(["world", "check", "w", "--dataset", "reach"])
    assert status_of(CheckpointCorrupt("x")) == 1


@pytest.mark.slow
def test_killed_fit_goes_on_bit_for_bit(data):
    order = ["world", "fit", str(data), *TINY[:-1], "40", "--settings.patience", "40", "--out"]
    process = subprocess.Popen([sys.executable, "-m", "robo_cli.main", *order, "killed"], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not any(Path("killed/under_way").glob("0*")) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Path("killed/0000000000").exists(), "it was over before it was killed"
    for out in ("killed", "whole"):
        assert dispatch([*order, out]) == 0
    one, other = load_world("killed"), load_world("whole")
    assert one.facts == other.facts and not Path("killed/under_way").exists()
    for name, values in one.dynamics.state_dict().items():
        assert torch.equal(values, other.dynamics.state_dict()[name]), name
