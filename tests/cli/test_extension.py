"""A finished run is trained longer: the same learner, bit for bit as if the steps had been asked for at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from factories import make_spec
from robo_app.recipes.recipe import read_recipe, to_yaml
from robo_app.training.extension import extended
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import Run, find_run

REACH = {"environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 20}}, "log_every": 10, "checkpoint_every": 20}
RECIPES: dict[str, dict[str, Any]] = {
    "rlpd": REACH
    | {
        "algorithm": "rlpd",
        "learner": {
            "network": {"hidden": [8, 8]},
            "batch_size": 16,
            "critics": 2,
            "updates_per_step": 2,
            "replay": {"learning_starts": 10},
        },
        "demonstrations": {"episodes": 2},
        "record_episodes": True,
    },
    "ppo": {
        "environment": {"name": "gymnasium/InvertedPendulum-v5"},
        "algorithm": "ppo",
        "learner": {"num_envs": 3, "steps_per_env": 5, "batch_size": 5, "epochs": 2, "network": {"hidden": [8]}},
        "log_every": 10,
        "checkpoint_every": 20,
    },
    "bc": REACH
    | {"algorithm": "bc", "learner": {"network": {"hidden": [8]}, "batch_size": 4}, "demonstrations": {"episodes": 2}},
}
EVALUATION = {"episodes": 2, "every": 30, "episodes_during": 1, "videos": 0}


def trained(folder: Path, name: str, steps: int) -> Run:
    folder.mkdir()
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(RECIPES[name] | {"steps": steps, "evaluation": EVALUATION}))
    assert dispatch(["train", str(folder / f"{name}.yaml"), "--out", str(folder)]) == 0
    return find_run("latest", folder)


def learner(run: Run, step: int) -> dict[str, np.ndarray]:
    return dict(load_file(run.path / "checkpoints" / f"{step:010d}" / "learner.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RECIPES])
def test_a_longer_training_equals_one_of_that_length(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, run = trained(tmp_path / "whole", name, 60), trained(tmp_path / "part", name, 45)
    assert dispatch(["resume", str(run.path), "--steps", "60"]) == 0
    assert "resumed at step 45, exact" in capsys.readouterr().out
    expected, found = learner(whole, 60), learner(run, 60)
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)
    ends = [json.loads((each.path / "evaluation.json").read_text())["returns"] for each in (whole, run)]
    assert ends[0] == ends[1]
    if name == "rlpd":
        counted = [[(entry.seed, entry.steps) for entry in Dataset(each.path / "episodes").entries()] for each in (whole, run)]
        assert counted[0] == counted[1], "an episode that was under way is one episode, stored once"


@pytest.mark.slow
def test_the_evaluation_of_the_end_before_is_kept_on_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path / "part", "bc", 20)
    before = (run.path / "evaluation.json").read_text()
    assert dispatch(["resume", str(run.path), "--steps", "40"]) == 0
    assert (run.path / "evaluations" / "0000000020.json").read_text() == before
    assert yaml.safe_load((run.path / "recipe.yaml").read_text())["steps"] == 40
    capsys.readouterr()
    assert dispatch(["resume", str(run.path)]) == 0
    page = capsys.readouterr().out
    assert "is finished: 40 steps" in page and f"Train it longer: robo-rl resume {run.path} --steps 80" in page


@pytest.mark.slow
def test_steps_that_were_taken_already_are_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "part", "bc", 20)
    recipe = (run.path / "recipe.yaml").read_text()
    with pytest.raises(InvalidSetting, match=r"has taken 20 steps already(.|\n)*got: +--steps 20(.|\n)*21 or more"):
        dispatch(["resume", str(run.path), "--steps", "20"])
    assert (run.path / "recipe.yaml").read_text() == recipe and (run.path / "evaluation.json").exists()


def test_an_interrupted_run_may_end_sooner(tmp_path: Path) -> None:
    recipe = read_recipe("arm-reach-sac")
    run = Run.create(tmp_path, recipe_name="reach", seed=0, recipe=to_yaml(recipe), spec=make_spec("test/Reach"))
    assert extended(run, recipe, 500, 200).steps == run.recipe["steps"] == 500 < recipe.steps


@pytest.mark.slow
def test_a_run_that_left_steps_over_is_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path / "part", "ppo", 47)
    page = capsys.readouterr().out
    assert "ended at step 45: the 2 left of 47 are too few for another step or rollout" in page
    assert "/47" not in page.replace("45/47", ""), "no line shows another count"
    assert dispatch(["resume", str(run.path)]) == 0
    assert "is finished: 45 steps" in capsys.readouterr().out
    assert dispatch(["resume", str(run.path), "--steps", "60"]) == 0
    assert run.load().step == 60
