"""Run folders: names, locks, metrics with torn lines, finding and failing to find."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from factories import axes, make_spec
from robo_rl.errors import InvalidSetting, RunError, RunNotFound, UnknownName
from robo_rl.runs.run import Run, find_run
from robo_rl.spec.environment import ArraySpec

SPEC = make_spec(
    "test/Reach",
    ArraySpec("position", (2,), unit="m", frame="world"),
    action=axes("x", "y", unit="m/s", mode="joint_velocity", control_period=0.05),
)


def create(root: Path, name: str = "reach-sac") -> Run:
    return Run.create(root, recipe_name=name, seed=3, recipe="steps: 5\n", spec=SPEC)


def test_a_run_says_what_it_ran_on(tmp_path: Path) -> None:
    run = create(tmp_path)
    assert run.path.name.endswith("-reach-sac-3")
    assert run.spec == SPEC
    facts = run.description
    assert facts["seed"] == 3 and facts["packages"]["numpy"] and facts["machine"]["cores"] >= 1
    run.describe(resumes=[{"step": 1}])
    assert run.description["resumes"] == [{"step": 1}] and run.description["seed"] == 3


def test_two_runs_in_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    assert len({create(tmp_path).path for _ in range(3)}) == 3


@pytest.mark.parametrize("name", ["../escape", "a/b", "", ".hidden", "x" * 65])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSetting, match=r"The name of the recipe cannot name a folder"):
        create(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_a_torn_last_line_of_metrics_is_left_out(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.log(10, {"eval/mean_reward": 1.0}, elapsed=0.5)
        run.log(20, {"eval/mean_reward": 2.0}, elapsed=1.0)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 30, "eval/mean')
    assert [line["step"] for line in run.metrics()] == [10, 20]


def test_rewinding_removes_what_a_resumed_run_writes_again(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        for step in (10, 20, 30):
            run.log(step, {"x": float(step)}, elapsed=0.0)
    (run.path / "evaluations").mkdir()
    for step in (20, 30):
        (run.path / "evaluations" / f"{step:010d}.json").write_text("{}")
    with Run(run.path) as resumed:
        resumed.rewind(20)
        resumed.log(25, {"x": 25.0}, elapsed=0.0)
    assert [line["step"] for line in run.metrics()] == [10, 20, 25]
    assert [file.name for file in (run.path / "evaluations").iterdir()] == ["0000000020.json"]


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with (
        create(tmp_path) as first,
        pytest.raises(RunError, match=r"Another process is writing the run .*(.|\n)*wait for it, or stop it"),
        Run(first.path),
    ):
        pass
    with Run(first.path):
        pass


def test_finding_runs_by_name_by_path_and_as_latest(tmp_path: Path) -> None:
    old, new = create(tmp_path, "old"), create(tmp_path, "new")
    os.utime(old.path / "recipe.yaml", (1, 1))
    assert find_run("latest", tmp_path).path == new.path
    assert find_run(old.path.name, tmp_path).path == old.path
    assert find_run(str(old.path), tmp_path / "elsewhere").path == old.path


def test_not_finding_a_run_names_the_nearest(tmp_path: Path) -> None:
    run = create(tmp_path)
    with pytest.raises(UnknownName, match=rf"Unknown run(.|\n)*did you mean '{run.path.name}'\?(.|\n)*looked for in"):
        find_run(run.path.name + "x", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunNotFound, match=r"is not a run folder(.|\n)*a folder that holds recipe.yaml and spec.json"):
        find_run(str(tmp_path / "empty"), tmp_path)
    (tmp_path / "empty" / "dataset.json").write_text("{}")
    with pytest.raises(RunNotFound, match=r"got: +a dataset\n(.|\n)*do: +robo-rl data info .*empty"):
        find_run(str(tmp_path / "empty"), tmp_path)
    with pytest.raises(UnknownName, match=r"do: +a model of Stable-Baselines3 is zoo:model\.zip"):
        find_run("model.zip", tmp_path)
    with pytest.raises(UnknownName, match=r"Unknown run 'latest'"):
        find_run("latest", tmp_path / "nothing")


def several(root: Path) -> tuple[Path, list[Path]]:
    """Returns a folder as `robo-rl train --seeds` makes it, newer than every run beside it, and its runs."""
    folder = root / "reach-sac-seeds"
    trained = [create(folder / "runs").path for _ in range(2)]
    (folder / "recipe.yaml").write_text("steps: 5\n")
    return folder, trained


def test_latest_was_started_last_whenever_it_was_copied(tmp_path: Path) -> None:
    older, newer = (create(tmp_path, name) for name in ("older", "newer"))
    for copied, name in ((older, "moved-here"), (newer, "my-best")):
        shutil.copytree(copied.path, tmp_path / name)  # its recipe.yaml is younger than all
        os.utime(tmp_path / name / "recipe.yaml", (2e9, 2e9))
    assert find_run("latest", tmp_path).path == newer.path
    (newer.path / "run.json").write_text("{")
    (tmp_path / "my-best" / "run.json").write_text("[]")
    os.utime(newer.path / "recipe.yaml", (1, 1))
    assert find_run("latest", tmp_path).path == tmp_path / "my-best"  # known by its file's time alone


def test_latest_is_a_run_beside_a_newer_folder_of_seeds(tmp_path: Path) -> None:
    run = create(tmp_path)
    os.utime(run.path / "recipe.yaml", (1, 1))
    several(tmp_path)
    assert find_run("latest", tmp_path).path == run.path


@pytest.mark.parametrize("by_path", [True, False])
def test_a_folder_of_seeds_is_named_as_such(tmp_path: Path, by_path: bool) -> None:
    folder, trained = several(tmp_path)
    with pytest.raises(RunNotFound, match="holds 2 trainings and is not a run itself") as told:
        find_run(str(folder) if by_path else folder.name, tmp_path)
    assert str(trained[-1]) in str(told.value) and f"latest --runs {folder}/runs" in str(told.value)
    assert find_run("latest", folder / "runs").path in trained, "what the error says works"


def test_latest_beside_seeds_alone_says_where_runs_are(tmp_path: Path) -> None:
    folder, _ = several(tmp_path)
    with pytest.raises(UnknownName, match="Unknown run 'latest'") as told:
        find_run("latest", tmp_path)
    text = str(told.value)
    assert f"{folder}/runs has those of several trainings" in text and "allowed: (none)" in text


def test_what_is_written_is_plain_json(tmp_path: Path) -> None:
    run = create(tmp_path)
    for name in ("run.json", "spec.json"):
        json.loads((run.path / name).read_text())
