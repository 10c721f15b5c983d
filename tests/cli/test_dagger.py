"""The learner dagger from the command line: trained, resumed exactly, evaluated without its expert, cloned again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robo_app.recipes.recipe import parse_recipe, read_recipe
from robo_app.training.assembly import judged_environment_of
from robo_bench import same_rows
from robo_cli import main
from robo_policies.learners.dagger import LabelledEnv
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import find_run

RECIPE: dict[str, Any] = {
    "name": "labelled",
    "environment": {
        "name": "robo/ArmReach-v0",
        "arguments": {"action_repeat": 3, "max_steps": 15},
        "wrappers": [{"name": "labelled", "share": 0.5}],
    },
    "algorithm": "dagger",
    "learner": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 10, "capacity": 1000}},
    "steps": 60,
    "checkpoint_every": 20,
    "evaluation": {"episodes": 2, "videos": 0},
}


@pytest.fixture
def trained(tmp_path: Path):
    """Trains a recipe with changes; returns the run."""

    def train(**changes: Any):
        path = tmp_path / "labelled.yaml"
        path.write_text(yaml.safe_dump(RECIPE | changes))
        assert main.dispatch(["train", str(path), "--out", str(tmp_path / "runs")]) == 0
        return find_run("latest", tmp_path / "runs")

    return train


def test_evaluations_have_no_expert():
    environment = judged_environment_of(parse_recipe(RECIPE, source="test"))
    assert not isinstance(environment, LabelledEnv)
    environment.close()


@pytest.mark.slow
@pytest.mark.parametrize("environments", [1, 2])
def test_longer_run_equals_one_that_was_continued(trained, environments, tmp_path):
    whole = trained(environments=environments)
    short = trained(environments=environments, steps=40)
    assert main.dispatch(["resume", str(short.path), "--steps", "60"]) == 0
    one, other = (run.load().parts["learner"]["networks"]["actor"] for run in (whole, short))
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])
    rows = [run.load().parts["replay"]["rows"]["expert_action"] for run in (whole, short)]
    np.testing.assert_array_equal(*rows)


@pytest.mark.slow
def test_a_run_is_an_expert_too(trained):
    first = trained()
    around = [{"name": "labelled", "expert": str(first.path), "share": 0.0, "noise": 0.0}]
    second = trained(environment={**RECIPE["environment"], "wrappers": around})
    rows = second.load().parts["replay"]["rows"]
    assert np.abs(rows["expert_action"]).max() > 0


@pytest.mark.slow
def test_rows_of_a_run_are_cloned_again(trained, tmp_path, monkeypatch, capsys):
    run, out = trained(environments=2), tmp_path / "clones"
    monkeypatch.setattr(
        "sys.argv", ["same_rows", str(run.path), "--out", str(out), "--only", "expert", "again", "shuffled-labels"]
    )
    same_rows.main()
    assert {file.stem for file in out.iterdir()} == {"expert", "again", "shuffled-labels"}
    assert "2 episodes" in capsys.readouterr().out
    (out / "again.json").write_text((out / "again.json").read_text())
    before = (out / "again.json").stat().st_mtime_ns
    same_rows.main()
    assert (out / "again.json").stat().st_mtime_ns == before, "what is there is not repeated"


def test_a_training_without_labels_says_what_is_missing(trained):
    with pytest.raises(InvalidSetting, match=r"needs an expert's action(.|\n)*environment.wrappers.labelled"):
        trained(environment={**RECIPE["environment"], "wrappers": []})


def test_drive_town_trains_in_nine_towns_and_is_judged_elsewhere():
    recipe = read_recipe("drive-town")
    towns = [variant.arguments.get("map", "grid") for variant in recipe.curriculum.variants]
    assert towns == [*(f"grid_train_{number}" for number in range(8)), "grid"]
    assert recipe.environment.in_evaluation(recipe.evaluation.arguments, ()).everything["routes"] == "test"
