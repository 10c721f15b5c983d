"""Published scores: the files of two sources, the rule by which they are compared, and the table beside ours."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from robo_app.experiments.plan import read_plan
from robo_app.experiments.published_scores import Published, ScoreCurve, read_scores
from robo_app.experiments.published_table import Compared, draw_published, published_page
from robo_app.experiments.race import Race
from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting, RunError, UnknownName

TINY: dict[str, Any] = {
    "summary": "A race to test with.",
    "recipe_of_all": {
        "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 10, "action_repeat": 2}},
        "algorithm": "sac",
        "learner": {"network": {"hidden": [8, 8]}, "batch_size": 8, "replay": {"learning_starts": 10}},
        "steps": 20,
        "log_every": 0,
        "evaluation": {"episodes": 1, "every": 10, "episodes_during": 1, "videos": 0},
    },
    "methods": {"sac": {}, "other": {}},
    "tasks": {"reach": {}, "push": {}},
    "seeds": [0, 1],
    "published": {"suite": "metaworld", "at": 40, "window": 20, "by": "success"},
}


def write_json(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(gzip.compress(json.dumps(rows).encode()))


def write_csv(folder: Path, method: str, task: str, text: str) -> None:
    (folder / "tdmpc2" / method).mkdir(parents=True, exist_ok=True)
    (folder / "tdmpc2" / method / f"{task}.csv").write_text(text)


def race(**changes: Any) -> Race:
    Path("small.yaml").write_text(yaml.safe_dump(TINY | changes, sort_keys=False))
    found = read_plan("small.yaml")
    assert isinstance(found, Race)
    return found


def compared(ours: list[ScoreCurve], theirs: list[ScoreCurve]) -> Compared:
    small = race()
    assert small.published is not None
    return Compared(small, small.published, ours, theirs)


def flat(method: str, task: str, seed: int, score: float) -> ScoreCurve:
    return ScoreCurve(method, task, seed, ((20.0, score), (40.0, score)))


def test_both_sources_give_curves_under_the_same_names_of_tasks(tmp_path: Path) -> None:
    row = {"task": "dmc_ball_in_cup_catch", "method": "ddpg", "seed": 3, "xs": [1, 2, 3], "ys": [1.0, math.nan, 3.0]}
    write_json(tmp_path, "dmc_proprio-ddpg.json.gz", [row])
    write_json(tmp_path, "dmc_vision-drqv2.json.gz", [row])
    write_csv(tmp_path, "sac", "cup-catch", "step,reward,seed\n0,1.5,1\n100,2.5,1\n0,9.0,2\n")
    write_csv(tmp_path, "sac", "mw-peg-insert-side", "step,success,seed\n0,0.5,1\n")
    assert read_scores(tmp_path, "dmc_proprio") == [
        ScoreCurve("ddpg", "ball_in_cup_catch", 3, ((1.0, 1.0), (3.0, 3.0))),
        ScoreCurve("tdmpc2/sac", "ball_in_cup_catch", 1, ((0.0, 1.5), (100.0, 2.5))),
        ScoreCurve("tdmpc2/sac", "ball_in_cup_catch", 2, ((0.0, 9.0),)),
    ]
    assert read_scores(tmp_path, "metaworld") == [ScoreCurve("tdmpc2/sac", "peg-insert-side", 1, ((0.0, 0.5),))]


def test_a_score_is_the_mean_of_a_window_whose_ends_count() -> None:
    curve = ScoreCurve("a", "b", 0, ((79.0, 100.0), (80.0, 1.0), (90.0, 2.0), (100.0, 6.0), (101.0, 100.0)))
    assert curve.at(100, window=20) == 3.0
    assert curve.at(300, window=20) is None


@pytest.mark.parametrize("content", [b"[{}]", b"{", b"[1]", None])
def test_a_damaged_file_is_one_error(tmp_path: Path, content: bytes | None) -> None:
    packed = b"no gzip" if content is None else gzip.compress(content)
    (tmp_path / "dmc_proprio-ddpg.json.gz").write_bytes(packed)
    with pytest.raises(RunError, match=r"dmc_proprio-ddpg\.json\.gz is damaged"):
        read_scores(tmp_path, "dmc_proprio")


@pytest.mark.parametrize("text", ["step,seed\n0,1\n", "step,reward,seed\nx,1,1\n", "step,reward,seed\n0\n"])
def test_a_damaged_table_is_one_error(tmp_path: Path, text: str) -> None:
    write_csv(tmp_path, "sac", "walker-run", text)
    with pytest.raises(RunError, match=r"walker-run\.csv is damaged"):
        read_scores(tmp_path, "dmc_proprio")


def test_a_folder_without_scores_says_which_files_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"no scores of dmc_vision(.|\n)*dmc_vision-METHOD\.json\.gz"):
        read_scores(tmp_path, "dmc_vision")


def test_other_suites_and_windows_are_refused() -> None:
    with pytest.raises(UnknownName, match="dmc_proprio"):
        Published("dmc", at=100)
    with pytest.raises(InvalidSetting, match="window"):
        Published("dmc_proprio", at=100, window=200)


def test_means_are_of_the_tasks_that_a_method_of_ours_has() -> None:
    """And of the seeds that it has on all of them; a method of others with the same name is another one."""
    ours = [flat("sac", "reach", 0, 0.2), flat("sac", "reach", 1, 0.4), flat("sac", "push", 0, 0.6)]
    theirs = [
        flat("sac", "reach", 0, 0.9),
        flat("peer", "reach", 0, 0.1),
        flat("peer", "push", 7, 0.3),
        flat("peer", "x", 0, 1.0),
    ]
    page = published_page(compared(ours, theirs))
    assert "| task | sac (ours) | other (ours) | peer | sac |" in page
    assert "| reach | 0.30 [-0.97, 1.57] |  | 0.10 | 0.90 |" in page
    assert "| push | 0.60 |  | 0.30 |  |" in page
    assert "| mean of the 2 tasks of sac | 0.40 |  | 0.20 |  |" in page
    assert "- sac: seed 0 on 2 of 2 tasks, seed 1 on 1 of 2 tasks" in page
    assert "- other: seed 0 on 0 of 2 tasks" in page


@pytest.mark.slow
@pytest.mark.parametrize("ours", [[], [flat("sac", "reach", 0, 0.2), flat("sac", "reach", 1, 0.3)]])
def test_curves_are_drawn_with_and_without_ours(ours: list[ScoreCurve], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = draw_published(compared(ours, [flat("peer", "reach", 0, 0.1)]), tmp_path / "published.png")
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_plan_without_published_scores_is_refused() -> None:
    Path("plain.yaml").write_text(yaml.safe_dump({name: value for name, value in TINY.items() if name != "published"}))
    with pytest.raises(InvalidSetting, match="plain names no published scores"):
        dispatch(["published", "plain.yaml", "--out", "out"])


def test_without_a_folder_of_scores_the_error_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROBO_RL_REFERENCE_DATA", raising=False)
    race()
    with pytest.raises(InvalidSetting, match="--scores"):
        dispatch(["published", "small.yaml", "--out", "out"])


@pytest.mark.slow
def test_trainings_are_compared_at_environment_steps(in_this_process: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """20 steps with an action repeat of 2 are 40 environment steps."""
    race(methods={"sac": {}}, tasks={"reach": {}}, seeds=[0])
    write_csv(Path("scores"), "tdmpc2", "mw-reach", "step,success,seed\n0,0.0,1\n40,0.75,1\n")
    assert dispatch(["experiment", "small.yaml", "--out", "out"]) == 0
    capsys.readouterr()
    assert dispatch(["published", "small.yaml", "--out", "out", "--scores", "scores"]) == 0
    assert "| reach | 0.00 | 0.75 |" in capsys.readouterr().out
    assert "seed 0 on 1 of 1 tasks" in Path("out/published.md").read_text()
    assert Path("out/published.png").exists()
    order = ["published", "small.yaml", "--out", "elsewhere", "--archive", "out/archive.json", "--scores", "scores"]
    assert dispatch(order) == 0 and "| reach | 0.00 | 0.75 |" in capsys.readouterr().out


def reference(name: str) -> Compared:
    """Return a plan of the workbench beside the scores of others, without ours."""
    folder = Path(os.environ.get("ROBO_RL_REFERENCE_DATA", ""), "scores")
    if not folder.is_dir():
        pytest.skip("ROBO_RL_REFERENCE_DATA names no folder with scores/dmc_proprio-ddpg.json.gz")
    plan = read_plan(name)
    assert isinstance(plan, Race)
    assert plan.published is not None
    return Compared(plan, plan.published, [], read_scores(folder, plan.published.suite))


@pytest.mark.slow
def test_the_scores_of_the_suite_give_the_means_that_are_known() -> None:
    """Means of 18 tasks at 100,000 steps, computed once by hand from the same files."""
    found = reference("dmc-states")
    known = {"dreamerv3": 442, "ddpg": 348, "d4pg": 339, "dmpo": 324, "mpo": 293, "ppo_fixhp": 67}
    assert {name: round(found.mean_of_means(name, found.race.tasks) or 0) for name in known} == known
    assert found.mean_of_means("tdmpc2/sac", found.race.tasks) == pytest.approx(406.5, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dmc-states", "dmc-choice", "dmc-pictures", "metaworld-ten"])
def test_every_task_of_a_plan_has_published_scores(name: str) -> None:
    found = reference(name)
    assert found.methods
    for task in found.race.tasks:
        assert any(found.scores(method, task) for method in found.methods), task
