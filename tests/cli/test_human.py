"""A person in a recipe: logged, resumed exactly, absent from evaluation, refused where there is no place for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from robo_app.experiments.plan import read_plan
from robo_app.experiments.race_table import race_page
from robo_app.experiments.records import busy_until
from robo_app.recipes.environments import RecipeEnvironments
from robo_app.recipes.recipe import parse_recipe
from robo_app.training import assembly
from robo_app.training.assembly import plan_of
from robo_cli import main
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rollout.simulated_human import SimulatedHuman
from robo_rl.runs.observer import RunRecord
from robo_rl.runs.run import find_run
from robo_rl.types import ActionSource

RECIPE: dict[str, Any] = {
    "name": "helped",
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"action_repeat": 3, "max_steps": 15}},
    "algorithm": "hil-serl",
    "learner": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 10}, "gripper": "gripper_opening"},
    "demonstrations": {"episodes": 2},
    "human": {"kind": "delayed"},
    "steps": 90,
    "log_every": 30,
    "checkpoint_every": 40,
    "evaluation": {"episodes": 2, "every": 45, "episodes_during": 1, "videos": 0},
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "helped.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


@pytest.mark.slow
def test_human_run_is_logged_and_resumed_exactly(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], interrupted_at: Any
) -> None:
    original, evaluate, command = RunRecord.on_step, assembly.evaluate, SimulatedHuman.command
    acting: list[bool] = []
    evaluating: list[bool] = []

    def watched(self: RunRecord, step: int, training: Any) -> None:
        acting.append(training.source.supervisor._is_acting)
        original(self, step, training)

    def judged(*arguments: Any, **settings: Any) -> Any:
        evaluating.append(True)
        found = evaluate(*arguments, **settings)
        evaluating[-1] = False
        return found

    def commanded(self: SimulatedHuman, *seen: Any) -> Any:
        assert True not in evaluating, "a person helped in an evaluation"
        return command(self, *seen)

    monkeypatch.setattr(RunRecord, "on_step", watched)
    monkeypatch.setattr(assembly, "evaluate", judged)
    monkeypatch.setattr(SimulatedHuman, "command", commanded)
    assert main.dispatch(["train", str(recipe), "--record-episodes", "--out", str(tmp_path / "whole")]) == 0
    whole = find_run("latest", tmp_path / "whole")
    assert len(evaluating) == 2 and not any(evaluating)
    stop = next(step for step in range(42, 89) if acting[step - 1] and acting[step])  # in the middle of an intervention

    with interrupted_at(stop):
        main.dispatch(["train", str(recipe), "--record-episodes", "--out", str(tmp_path / "cut")])
    cut = find_run("latest", tmp_path / "cut")
    assert main.dispatch(["resume", str(cut.path)]) == 0
    assert f"resumed at step {stop}, exact" in capsys.readouterr().out
    for part in ("learner", "offline"):
        states = [load_file(run.path / "checkpoints" / "0000000090" / f"{part}.safetensors") for run in (whole, cut)]
        assert {name: value.tobytes() for name, value in states[0].items()} == {
            name: value.tobytes() for name, value in states[1].items()
        }

    kept = list(Dataset(whole.path / "episodes"))
    human = sum(int((episode.sources == ActionSource.HUMAN).sum()) for episode in kept)
    ended = max(episode.metadata["training_step"] for episode in kept)
    newest = [line for line in whole.metrics() if "human/seconds" in line and line["step"] >= ended][-1]
    assert human > 5 and newest["human/seconds"] == pytest.approx(human * 0.15)
    assert 0 < newest["human/intervention_rate"] < 1
    demonstrated = whole.description["demonstrated_seconds"]
    assert demonstrated > 0.15 and [*busy_until(whole, demonstrated, [1, 90])] == pytest.approx(
        [demonstrated, demonstrated + human * 0.15]
    )


SEEING: dict[str, Any] = {
    "environment": {
        "name": "robo/ArmPick-v0",
        "arguments": {"action_repeat": 3, "max_steps": 30, "cameras": ["wrist"], "image_size": 36},
    },
    "algorithm": "sb3-sac-hil",
    "learner": {
        "policy_kwargs": {"net_arch": [8], "features_extractor_kwargs": {"cnn_output_dim": 8}},
        "batch_size": 8,
        "learning_starts": 10,
        "device": "cpu",
    },
    "human": {"kind": "perfect"},
    "steps": 45,
    "checkpoint_every": 15,
    "threads": 1,
    "evaluation": {"episodes": 1, "videos": 0},
}


@pytest.mark.slow
def test_a_person_corrects_a_policy_that_learns_from_a_camera(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], interrupted_at: Any
) -> None:
    path = tmp_path / "seeing.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, **SEEING}))
    assert main.dispatch(["train", str(path), "--record-episodes", "--out", str(tmp_path / "whole")]) == 0
    whole = find_run("latest", tmp_path / "whole")

    with interrupted_at(36):
        main.dispatch(["train", str(path), "--record-episodes", "--out", str(tmp_path / "cut")])
    cut = find_run("latest", tmp_path / "cut")
    assert main.dispatch(["resume", str(cut.path)]) == 0
    assert "resumed at step 36, exact" in capsys.readouterr().out

    early, late, again = (
        load_file(run.path / "checkpoints" / f"{step:010d}" / "learner.safetensors")
        for run, step in ((whole, 30), (whole, 45), (cut, 45))
    )
    assert late.keys() == again.keys() and all(late[name].tobytes() == again[name].tobytes() for name in late)
    convolutions = [name for name, value in late.items() if "camera_wrist" in name and value.shape[1:2] == (3,)]
    assert convolutions and any((early[name] != late[name]).any() for name in convolutions), "pictures are learnt from"

    kept = list(Dataset(whole.path / "episodes"))
    assert kept and all(episode.observations["camera_wrist"].shape[1:] == (36, 36, 3) for episode in kept)
    parts = whole.load().parts
    assert 5 < parts["training"]["supervisor"]["steps"] == int(np.sum(parts["offline"]["corrections"]["rows"]["starts"]))
    assert main.dispatch(["evaluate", str(whole.path), "--episodes", "1"]) == 0


def built(**changes: Any) -> Any:
    recipe = parse_recipe({**RECIPE, **changes}, source="a test")
    return plan_of(recipe, RecipeEnvironments(recipe), None).training()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"algorithm": "ppo", "learner": {}}, "cannot be trained with a person who corrects"),
        ({"algorithm": "sb3-sac", "learner": {}}, "cannot be trained with a person who corrects"),
        ({"algorithm": "bc", "learner": {}}, "needs an online phase"),
    ],
)
def test_a_learner_that_nobody_can_correct_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSetting, match=rf"The learner {changes['algorithm']} {why}"):
        built(**changes)


def test_hg_dagger_without_anybody_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"hg-dagger needs a person who corrects(.|\n)*set human.kind"):
        built(algorithm="hg-dagger", learner={}, human={}, online={"steps": 5})


def test_unknown_human_or_missing_expert_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"Unknown kind of simulated human 'lasy'(.|\n)*'lazy'"):
        built(human={"kind": "lasy"}, learner={"replay": {"offline_fraction": 0.0}})
    alone = {"environment": {"name": "gymnasium/InvertedPendulum-v5"}, "learner": {"replay": {"offline_fraction": 0.0}}}
    with pytest.raises(InvalidSetting, match=r"has no scripted expert(.|\n)*leave demonstrations.episodes and human out"):
        built(**alone)


@pytest.mark.slow
def test_hg_dagger_clones_first_and_then_what_the_person_does(tmp_path: Path) -> None:
    changes = {
        "algorithm": "hg-dagger",
        "learner": {"network": {"hidden": [8]}, "batch_size": 8},
        "steps": 20,
        "online": {"steps": 40},
    }
    path = tmp_path / "dagger.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, **changes, "human": {"kind": "perfect"}}))
    assert main.dispatch(["train", str(path), "--out", str(tmp_path / "runs")]) == 0
    run = find_run("latest", tmp_path / "runs")
    online = run.load().parts["online"]
    person = online["training"]["supervisor"]
    rows = online["offline"]["corrections"]["rows"]
    assert person["steps"] == int(np.sum(rows["starts"])) > 5
    assert json.loads((run.path / "evaluation.json").read_text())["successes"]


def test_the_table_has_the_persons_columns_where_there_was_one() -> None:
    helped = {"solved_at": 2000, "final_success": 0.9, "seconds": 60.0, "human_seconds": 93.4, "cycle_seconds": 1.954}
    failed = {"solved_at": None, "final_success": 0.0, "seconds": 60.0, "human_seconds": None, "cycle_seconds": None}
    rows = [
        {"task": "pick", "method": "perfect", "trainings": [helped, failed]},
        {"task": "pick", "method": "bc", "trainings": []},
    ]
    lines = race_page({"success": 0.9, "seeds": [0, 1], "rows": rows}).splitlines()
    assert lines[2].endswith("| minutes | person's seconds to success | cycle time [s] |")
    assert lines[-2:] == [
        "| pick | perfect | 2,000, — | 90%, 0% | 1.0, 1.0 | 93, — | 1.95, — |",
        "| pick | bc | not yet run |  |  |  |  |",
    ]


def test_the_race_of_people_can_be_read() -> None:
    kinds = {"perfect", "noisy", "delayed", "lazy", "wrong", "no-demonstrations", "no-layer-norm"}
    assert kinds | {"no-help", "demonstrations", "rlpd", "hg-dagger", "bc"} == set(read_plan("hil").methods)
