"""`environments: N` of a recipe: in training, resume, with a person, and for learners with a number of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import robo_rl
from robo_app.training import training_runs
from robo_cli import main
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import find_run
from robo_rl.training.vector_steps import VectorSteps
from robo_sims.batched.environment import BatchedEnvironment

SMALL = {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 8}}
SHORT: dict[str, Any] = {
    "name": "many",
    "environment": {"name": "robo/ArmPick-v0", "arguments": {"max_steps": 5}},
    "algorithm": "sac",
    "learner": {**SMALL, "replay": {"learning_starts": 8, "update_every": 4}},
    "environments": 4,
    "steps": 42,
    "log_every": 8,
    "evaluation": {"episodes": 1, "videos": 0},
}


@pytest.fixture
def trainings(monkeypatch):
    """Return the list of trainings that are made from here on."""
    made, build = [], training_runs._in_process

    def noted(plan):
        made.append(build(plan))
        return made[-1]

    monkeypatch.setattr(training_runs, "_in_process", noted)
    return made


@pytest.mark.slow
def test_steps_of_batched_environments_are_learnt_from(tmp_path, trainings, capsys):
    path = tmp_path / "many.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in SHORT.items() if name not in ("name", "environments")}))
    assert not main.dispatch(["train", str(path), "--environments", "4", "--out", str(tmp_path / "runs")])
    run = find_run("latest", tmp_path / "runs")
    (training,) = trainings
    assert isinstance(training.source, VectorSteps) and isinstance(training.source.environments, BatchedEnvironment)
    assert run.recipe["environments"] == 4 and run.load().step == training.step == 40, "two steps are left over"
    assert training.learner.parts.updates == 9, "after steps 8, 12, ... 40"
    assert run.metrics()[-1]["step"] == 40 and run.curve("rollout/ep_len_mean").values[-1] == 5.0


@pytest.mark.slow
def test_a_run_of_many_resumes_exactly(tmp_path):
    parts = []
    for steps in ((32,), (16, 32)):
        run = robo_rl.train({**SHORT, "steps": steps[0]}, out=tmp_path / str(len(steps)))
        for more in steps[1:]:
            run = robo_rl.resume(run, steps=more)
            assert [event["kind"] for event in run.description["resumes"]] == ["exact"]
        parts.append(run.load(32).parts)
    whole, resumed = (each["learner"]["networks"]["actor"] for each in parts)
    assert all(np.array_equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.slow
def test_a_person_is_in_the_first_of_many(tmp_path, trainings):
    learner = {**SMALL, "critics": 2}
    changes = {"algorithm": "hil-serl", "learner": learner, "human": {"kind": "perfect"}, "demonstrations": {"episodes": 1}}
    environment = {"name": "robo/ArmPick-v0", "arguments": {"action_repeat": 3, "max_steps": 50}}
    run = robo_rl.train({**SHORT, **changes, "environment": environment, "steps": 200}, out=tmp_path)
    (training,) = trainings
    assert training.source.supervisor is not None and training.step == 200
    corrected = training.step_learner.offline.corrections
    assert 0 < len(corrected) <= 50, "50 of the 200 steps were in the first environment"
    assert 0 < run.curve("human/intervention_rate").values[-1] <= 1.0


@pytest.mark.parametrize(
    ("algorithm", "learner", "setting"),
    [
        ("ppo", {"steps_per_env": 4, "batch_size": 6, "network": {"hidden": [8]}}, "num_envs"),
        ("sb3-ppo", {"n_steps": 4, "batch_size": 6}, "n_envs"),
    ],
)
def test_a_learner_with_a_number_of_its_own_takes_it(algorithm, learner, setting, tmp_path):
    changes = {"algorithm": algorithm, "learner": learner, "environments": 3, "steps": 24}
    run = robo_rl.train({**SHORT, **changes}, out=tmp_path)
    assert run.recipe["learner"][setting] == 3 and run.recipe["environments"] == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"record_episodes": True}, "environments, record_episodes"),
        ({"learner_process": "on"}, "environments, learner_process"),
        ({"environment": {"name": "robot:http://127.0.0.1:1"}, "learner_process": "off"}, "an environment at an address"),
        ({"algorithm": "bc", "demonstrations": {"episodes": 1}, "learner": {}}, "many environments in one process"),
    ],
)
def test_what_does_not_go_with_many_is_refused(changes, words, tmp_path):
    with pytest.raises(InvalidSetting, match=words):
        robo_rl.train({**SHORT, **changes}, out=tmp_path)
    assert not [*Path(tmp_path).iterdir()], "before a run was begun"


def test_collectors_are_refused_with_many(tmp_path):
    with pytest.raises(InvalidSetting, match=r"all of these at once(.|\n)*--collectors, environments"):
        robo_rl.train(SHORT, collectors=2, out=tmp_path)
