"""Experiments: plans as the page shows them, one command under three names, and what a folder refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from robo_app.experiments.plan import read_plan
from robo_app.experiments.race import Race
from robo_app.experiments.study import Study
from robo_app.jobs.trainings import Training, changed_settings, flat, keep_settings
from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting, RunError, UnknownName
from robo_rl.runs.run import find_run

PLANS = re.findall(r"```yaml\n(.*?)```", (Path(__file__).parents[2] / "docs/training/experiments.md").read_text(), re.DOTALL)
TINY: dict[str, Any] = {
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 10}},
    "algorithm": "sac",
    "learner": {"network": {"hidden": [8, 8]}, "batch_size": 8, "replay": {"learning_starts": 10}},
    "steps": 20,
    "log_every": 0,
    "evaluation": {"episodes": 1, "every": 10, "episodes_during": 1, "videos": 0},
}
RACE = {"summary": "One.", "recipe_of_all": TINY, "methods": {"plain": {}}, "tasks": {"Reach": {}}, "seeds": [0]}


@pytest.mark.parametrize(("text", "kind"), [*zip(PLANS, (Study, Study, Race), strict=True)])
def test_the_page_shows_plans_that_can_be_read(text: str, kind: type) -> None:
    Path("plan.yaml").write_text(text)
    assert type(read_plan("plan.yaml")) is kind


@pytest.mark.slow
def test_same_command_trains_only_what_is_missing(in_this_process: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.yaml").write_text(yaml.safe_dump(RACE))
    for _ in range(2):
        assert dispatch(["experiment", "plan.yaml", "--out", "out"]) == 0
        assert "| Reach | plain |" in capsys.readouterr().out
    assert [job.name for job in in_this_process] == ["plain--reach-0"]
    assert Path("out/curves.png").exists()


@pytest.mark.slow
def test_a_race_is_refused_if_any_seed_began_otherwise(in_this_process: list[Any]) -> None:
    """Also if the seed that began is not the first one of the plan as it is now."""
    Path("plan.yaml").write_text(yaml.safe_dump({**RACE, "seeds": [1]}))
    assert dispatch(["experiment", "plan.yaml", "--out", "out"]) == 0
    before = Path("out/recipes/plain--reach.yaml").read_text()
    Path("plan.yaml").write_text(yaml.safe_dump({**RACE, "recipe_of_all": {**TINY, "steps": 30}, "seeds": [0, 1]}))
    with pytest.raises(RunError, match=r"plain--reach\.yaml was made with other settings(.|\n)*steps: 20, now 30"):
        dispatch(["experiment", "plan.yaml", "--out", "out"])
    assert Path("out/recipes/plain--reach.yaml").read_text() == before


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("methods: {a: {recipe: arm-reach-sac, return_span: 10}}", InvalidSetting, "'datasets' is out of range"),
        ("methods: {a: {recipe: arm-reach-sac, labels: b}}", UnknownName, "label set of the experiment plan 'b'"),
        ("methods: {a: {recipe: arm-reach-sac, program: b}}", UnknownName, "program of the experiment plan 'b'"),
        ("methods: {a: {recipe: arm-reach-sac}}\ntaks: {}", InvalidSetting, "is not an experiment(.|\\n)*taks"),
        ("[1]", InvalidSetting, "is not an experiment"),
        ("methods: {a: {}}\ntasks: {}", InvalidSetting, "recipe_of_all: Field required(.|\\n)*docs/training/experiments.md"),
    ],
)
def test_plans_are_strict(text: str, error: type[Exception], words: str) -> None:
    Path("plan.yaml").write_text(text if text.startswith("[") else f"summary: One.\n{text}\n")
    with pytest.raises(error, match=words):
        read_plan("plan.yaml")


def test_kept_settings_refuse_others_once_they_are_used() -> None:
    path = Path("deep/settings.yaml")
    keep_settings(path, "a: {b: 1, c: 2}")
    keep_settings(path, "a: {c: 2, b: 1}")
    assert path.read_text() == "a: {b: 1, c: 2}", "the same settings in another order"
    with pytest.raises(RunError, match=r"settings\.yaml was made with other settings(.|\n)*a\.b: 1, now 3; a\.d: None, now 4"):
        keep_settings(path, "a: {b: 3, c: 2, d: 4}")
    keep_settings(path, "a: {b: 3}", is_used=False)
    assert path.read_text() == "a: {b: 3}"
    path.write_text("[1]")
    with pytest.raises(RunError, match=r"settings\.yaml is damaged(.|\n)*list"):
        keep_settings(path, "a: {b: 3}")


def test_leaves_of_a_tree_have_dotted_paths() -> None:
    tree = {"a": {"b": 1, "c": {}}, "d": {"e": {"f": [2]}}}
    assert flat(tree) == {"a.b": 1, "a.c": {}, "d.e.f": [2]}
    assert flat(tree, ["d.e"]) == {"a.b": 1, "a.c": {}, "d.e": {"f": [2]}}
    assert changed_settings(tree, {"a": {"b": 1}, "d": {"e": {"f": [3]}}}) == {"a.c": ({}, None), "d.e.f": ([2], [3])}


def test_a_training_takes_the_newest_run_that_counts() -> None:
    for stamp in ("20260101-000000", "20260102-000000"):
        folder = Path("runs") / f"{stamp}-mine-0"
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").touch()
    training = Training("mine", 0, ["mine.yaml"], Path("runs"), counts=lambda run: run.name.startswith("20260101"))
    assert training.run == Path("runs/20260101-000000-mine-0") and training.finished is None
    assert training.job().commands == [["resume", "runs/20260101-000000-mine-0"]]
    assert Training("mine", 1, ["mine.yaml"], Path("runs")).job().commands == [["train", "mine.yaml", "--out", "runs"]]


@pytest.mark.slow
def test_compared_rewards_go_on_in_a_folder_of_before(in_this_process: list[Any]) -> None:
    """A folder that the command of before made has runs, and no recipes."""
    Path("tiny.yaml").write_text(yaml.safe_dump(TINY))
    assert dispatch(["train", "tiny.yaml", "--name", "own", "--seed", "3", "--out", "compared/runs/own-3"]) == 0
    before = find_run("latest", Path("compared/runs/own-3"))
    words = ["reward", "compare", "tiny.yaml", "--seeds", "3", "--out", "compared"]
    assert dispatch(words) == 0 and in_this_process == []
    assert [path.parent for path in Path("compared").rglob("evaluation.json")] == [before.path]
    with pytest.raises(RunError, match=r"own\.yaml was made with other settings(.|\n)*steps: 20, now 30"):
        dispatch([*words, "--recipe.steps", "30"])
