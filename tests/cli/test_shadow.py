"""`--shadow` of evaluate, refine and console, as a stranger would use it, on a served twin."""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_real.limits import TWIN
from robo_real.serving import ServerSettings, build_server
from robo_real.workspace import write_limits
from robo_rl.errors import InvalidSetting, RobotStopped, SpecMismatch, UnknownName
from robo_rl.runs.run import find_run
from robo_rl.types import ActionSource

REPEATED = ["--environment.arguments.action_repeat", "2"]
TASK = {"name": "robo/ArmReach-v0"}


@pytest.fixture
def trained(tmp_path):
    recipe = {
        "environment": TASK,
        "algorithm": "rlpd",
        "learner": {"network": {"hidden": [8]}, "replay": {"learning_starts": 10}, "batch_size": 8, "updates_per_step": 1},
        "demonstrations": {"episodes": 1},
        "steps": 12,
        "evaluation": {"every": 0, "episodes": 1, "videos": 0},
    }
    with open("reach.yaml", "w") as file:
        yaml.safe_dump(recipe, file)
    dispatch(["train", "reach.yaml"])
    return find_run("latest", tmp_path.cwd() / "runs")


@pytest.fixture
def url(monkeypatch, tmp_path):
    """A served twin that a busy machine neither stops nor loses."""
    monkeypatch.setattr("robo_real.environment.LATE_CYCLES", 10_000)
    monkeypatch.setattr("robo_real.remote_robot.TIMEOUT", 20.0)
    patient = replace(TWIN, command_age=5.0, state_age=5.0, late_in_a_row=1000, stop_after=60.0)
    limits = tmp_path / "limits.yaml"
    limits.write_text(write_limits(patient, []))
    server = build_server(ServerSettings(options={"task": TASK["name"]}, limits=limits, port=0))
    server.start()
    yield server.url
    server.close()


def kept(run):
    found = sorted((run.path / "shadow").glob("*"))
    return [(path.name, json.loads((path / "report.json").read_text()), [*Dataset(path)]) for path in found]


@pytest.mark.slow
def test_shadow_run_of_evaluate_and_refine(trained, url, capsys):
    capsys.readouterr()
    settings = ["--environment.arguments.max_steps", "12"]
    dispatch(
        ["evaluate", "latest", "--environment", f"robot:{url}", *settings, "--episodes", "2", "--shadow", "zero", "--json"]
    )
    shown = json.loads(capsys.readouterr().out)
    assert shown["commands"] == "zero" and shown["episodes"] == 2
    dispatch(["record", TASK["name"], "--out", "demos", "--episodes", "1"])
    dispatch(
        ["refine", "latest", "--robot", f"{url}?max_steps=12", "--dataset", "demos", "--episodes", "1", "--shadow", "scripted"]
    )
    said = capsys.readouterr().out
    assert "commands: scripted" in said and "policy minus command" in said
    (first, report, episodes), (second, _, expert) = kept(trained)
    assert (first, second) == ("001-zero", "002-scripted") and report == shown
    assert all(episode.metadata["shadow"] == "zero" for episode in episodes) and len(expert) == 1
    assert ActionSource.POLICY not in {*episodes[0].sources, *expert[0].sources}
    assert np.ptp(episodes[0].observations["end_effector_position"], axis=0).max() < 0.005
    assert len([*(trained.path.parent).glob("*/recipe.yaml")]) == 1  # nothing was trained
    assert not (trained.path / "evaluations").exists()  # what the expert reached is no success of the policy


@pytest.mark.slow
def test_stopped_shadow_run_reports_on_its_episodes(trained, url, monkeypatch, capsys):
    from robo_app.robots import shadow

    def record_one(*arguments, seed, **settings):
        if seed > 0:
            raise RobotStopped("stopped", "a person")
        return record_episode(*arguments, seed=seed, **settings)

    record_episode = shadow.record_episode
    monkeypatch.setattr(shadow, "record_episode", record_one)
    order = ["evaluate", "latest", "--environment", f"robot:{url}", "--environment.arguments.max_steps", "12"]
    with pytest.raises(RobotStopped):
        dispatch([*order, "--episodes", "3", "--seed", "0", "--shadow", "zero"])
    ((name, report, episodes),) = kept(trained)
    assert name == "001-zero" and report["episodes"] == len(episodes) == 1
    assert "ended early, after 1 of 3 episodes" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (["--environment", TASK["name"], "--shadow", "zero"], InvalidSetting, "Only a robot has a shadow run"),
        (["--environment", "robot/Fake-v0", "--shadow", "zeros"], UnknownName, "zero"),
        (["--environment", "robot/Fake-v0", "--shadow", "scripted"], InvalidSetting, "no expert"),
        (["--environment", "robot/Fake-v0", *REPEATED, "--shadow", "zero"], SpecMismatch, "action.control_period"),
        (["--environment", "robot/Fake-v0", "--shadow", "zero", "--episodes", "0"], InvalidSetting, "episodes"),
    ],
)
def test_wrong_shadow_runs_are_refused(trained, words, kind, said):
    with pytest.raises(kind, match=said):
        dispatch(["evaluate", "latest", *words])
    assert not (trained.path / "shadow").exists()


def test_shadow_of_the_console_needs_a_policy():
    with pytest.raises(InvalidSetting, match="--policy RUN"):
        dispatch(["console", "--twin", "--shadow", "--no-browser", "--port", "0"])
