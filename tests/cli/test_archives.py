"""Archives of experiments: what they hold counts as finished, tables are made from them, others are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from robo_app.experiments.archive import Archive, require_own
from robo_app.experiments.archived import page_of
from robo_app.experiments.records import Circumstances, CurvePoints, Record
from robo_app.experiments.results import Results
from robo_cli.main import dispatch
from robo_rl.errors import RunError
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.measures import Measure

TINY: dict[str, Any] = {
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 10}},
    "algorithm": "sac",
    "learner": {"network": {"hidden": [8, 8]}, "batch_size": 8, "replay": {"learning_starts": 10}},
    "steps": 20,
    "log_every": 0,
    "evaluation": {"episodes": 2, "every": 10, "episodes_during": 1, "videos": 0},
}
RACE = {"summary": "One.", "recipe_of_all": TINY, "methods": {"plain": {}}, "tasks": {"Reach": {}}, "seeds": [0]}
ORDER = ["experiment", "plan.yaml", "--archive", "kept.json", "--out"]


def evaluation(seed: int, returns: tuple[float, ...], successes: tuple[bool, ...]) -> Evaluation:
    count = len(returns)
    return Evaluation(
        *("drive/Town", "0", None, (7, 8, 3)[:count], returns, (5, 5, 4)[:count], successes, ("end",) * count),
        deterministic=True,
        duration=1.0,
        training_seed=seed,
        measures=(Measure("way", "km"),),
        measured={"way": (0.5,) * count},
    )


def record(method: str, seed: int = 0, **more: Any) -> Record:
    made = Circumstances("abc", {"torch": "2"}, "3.11", {"cores": 2}, 1)
    final = evaluation(seed, (1.0, 2.0, 0.25), (True, False, True))
    curve = CurvePoints("drive/Town", (10, 20), (0.5, 1.0), (0.0, 1.0))
    fixed = {"settings": {"steps": 20, "learner.lr": 0.1}, "circumstances": made, "final": final, "curve": curve}
    return Record(method, "", seed, **{**fixed, **more})


def test_a_written_archive_reads_back_equal(tmp_path: Path) -> None:
    other = record("other", 1, settings={"steps": 20, "learner.lr": 0.2, "learner.tau": 1.0}, content={"content": "f"})
    measured = Record("figures", "grid", 2, figures={"rate": 0.25, "worst": [1.0, 2.0]})
    archive = Archive("mine", "study", {"summary": "One."}).with_records([record("plain"), other, measured])
    archive.write(tmp_path / "mine.json")
    assert Archive.read(tmp_path / "mine.json") == archive
    assert len((tmp_path / "mine.json").read_text().splitlines()) < 20, "a line for each training"


def test_an_archive_keeps_its_own_study(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    Archive("mine", "study").with_records([record("plain")]).write(file)
    with pytest.raises(RunError, match="archive of another study"):
        require_own(file, "other")
    file.write_text(json.dumps({"format": 1, "study": "mine", "kind": "race", "table": {"rows": []}, "trainings": []}))
    with pytest.raises(RunError, match="holds a table alone"):
        require_own(file, "mine")
    for text, words in (('{"format": 2}', "another format"), ('{"format": 1}', "no archive of a study"), ("[1]", "damaged")):
        file.write_text(text)
        with pytest.raises(RunError, match=words):
            Archive.read(file)


def test_a_training_counts_by_settings_and_content() -> None:
    kept = record("plain", content={"content": "f"})
    assert kept.counts({"steps": 20, "learner.lr": 0.1}, {"content": "f"}) and kept.counts({"steps": 20}, {})
    assert kept.counts({"steps": 20, "new": 1}, {}), "a setting that came with a version"
    assert not kept.counts({"steps": 30, "learner.lr": 0.1}, {})
    assert not kept.counts({"steps": 20}, {"content": "g"})
    assert not replace(kept, settings={}).counts({"steps": 20}, {}), "settings are not known"


@pytest.mark.slow
def test_an_archived_training_is_not_repeated_elsewhere(in_this_process: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.yaml").write_text(yaml.safe_dump(RACE))
    assert dispatch([*ORDER, "here"]) == 0
    (kept,) = Archive.read(Path("kept.json")).records
    assert kept.settings["steps"] == 20 and kept.curve.steps == (10, 20) and len(kept.evaluation) == 2
    assert kept.circumstances.packages["torch"] and kept.circumstances.machine["processor"] and kept.seconds is not None
    shutil.rmtree("here")
    Path("plan.yaml").write_text(yaml.safe_dump({**RACE, "seeds": [0, 1]}))
    capsys.readouterr()
    assert dispatch([*ORDER, "there", "--table"]) == 0
    assert "1 of 2 trainings are finished; missing seeds:\n  plain on Reach" in capsys.readouterr().out
    assert dispatch([*ORDER, "there"]) == 0
    assert [job.name for job in in_this_process] == ["plain--reach-0", "plain--reach-1"]
    archive = Archive.read(Path("kept.json"))
    assert [each.seed for each in archive.records] == [0, 1] and archive.records[0] == kept
    assert page_of(archive) == Path("there/table.md").read_text() and Path("there/curves.png").exists()
    changed = {**RACE, "recipe_of_all": {**TINY, "steps": 30}}
    Path("plan.yaml").write_text(yaml.safe_dump(changed))
    assert dispatch([*ORDER, "anew"]) == 0 and len(in_this_process) == 3, "other settings are another training"


def test_results_are_made_once_and_again_with_other_settings() -> None:
    made = []

    def measure() -> dict[str, Any]:
        made.append(len(made))
        return {"score": 1.5 + made[-1], "episodes": [0.0, 1.0]}

    file = Path("studies/mine.json")
    assert Results("mine", file, {"steps": 10}).measured("a", 0, measure, lr=0.1)["score"] == 1.5
    again = Results("mine", file, {"steps": 10})
    assert again.measured("a", 0, measure, lr=0.1)["score"] == 1.5 and made == [0]
    assert again.measured("a", 1, measure, lr=0.1)["score"] == 2.5
    assert again.page().splitlines()[-1] == "| a | 0, 1 | **2** (1.5, 2.5) | **0.5** (0.5, 0.5) |"
    (first, _) = again.archive.records
    assert first.circumstances.packages["numpy"] and first.started and first.outcomes("episodes") == [0.0, 1.0]
    assert Results("mine", file, {"steps": 20}).measured("a", 0, measure, lr=0.1)["score"] == 3.5
    with pytest.raises(RunError, match="another study"):
        Results("other", file, {})


def test_two_processes_add_to_one_archive(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    code = f"""
import sys
from pathlib import Path
from robo_app.experiments.results import Results
for seed in range(10):
    Results("mine", Path({str(file)!r}), {{}}).measured(sys.argv[1], seed, lambda: {{"score": 1.0}})
"""
    both = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "ab"]
    assert [each.wait(60) for each in both] == [0, 0]
    assert [*Archive.read(file).by_cell] == [(name, "", seed) for name in "ab" for seed in range(10)]
