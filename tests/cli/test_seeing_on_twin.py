"""A policy learns from pictures in the simulation and runs on the twin behind its guard; other cameras are refused."""

from pathlib import Path

import pytest

from robo_app.robots.twin_process import twin_process
from robo_cli.main import dispatch
from robo_rl.errors import SpecMismatch

pytestmark = pytest.mark.slow
ARGUMENTS = "{sees: wrist, image_size: 32, action_repeat: 3, max_steps: 10}"


def test_policy_from_pictures_runs_on_twin(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dispatch(["record", "robo/ArmReach-v0", "--episodes", "2", "--out", "data", "--environment.arguments", ARGUMENTS])
    tiny = (
        "--steps 5 --learner.network.hidden 8 --learner.network.convolutions 4 4 --evaluation.episodes 1 --evaluation.videos 0"
    )
    dispatch(["train", "offline-bc", "--dataset", "data", "--out", "runs", *tiny.split()])
    twin = {"task": "robo/ArmReach-v0", "sees": "wrist", "image_size": 32, "speed": 2.0}
    command = ["evaluate", "latest", "--runs", "runs", "--episodes", "1", "--environment"]
    with twin_process(Path("a.jsonl"), **twin) as url:
        assert dispatch([*command, f"robot:{url}?action_repeat=3&max_steps=10"]) == 0
        assert "1 episode" in capsys.readouterr().out
    for change in ({"image_size": 24}, {"sees": "front"}):
        with twin_process(Path("b.jsonl"), **(twin | change)) as url, pytest.raises(SpecMismatch, match="camera_wrist"):
            dispatch([*command, f"robot:{url}?action_repeat=3&max_steps=10"])
