"""Several seeds of one recipe: which they are, that nothing is trained twice, and the table of all."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console

from robo_app.display.job_display import Board, last_line
from robo_app.experiments.seeds import seeds_of
from robo_app.jobs.jobs import fitting
from robo_cli import main
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.evaluation.statistics import student_interval

SHORT = [
    *(
        "arm-reach-sac",
        "--steps",
        "60",
        "--learner.replay.learning-starts",
        "30",
        "--evaluation.every",
        "0",
        "--checkpoint-every",
        "20",
    ),
    *("--evaluation.episodes", "2", "--evaluation.videos", "0"),
]


@given(some.sets(some.integers(0, 10_000), min_size=1, max_size=20))
def test_seeds_are_read_back(seeds):
    assert {*seeds_of(",".join(map(str, seeds)))} == seeds


@pytest.mark.parametrize(("text", "seeds"), [("3", (3,)), ("0-3", (0, 1, 2, 3)), ("0, 7-8,2", (0, 7, 8, 2)), ("5-5", (5,))])
def test_ranges_include_their_ends(text, seeds):
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,1", "0-3,2", "-1", "0-", "1.5", "0-100000", "0..3"])
def test_what_names_no_seeds_is_refused(text):
    with pytest.raises(InvalidSetting, match="0-9"):
        seeds_of(text)


def test_there_is_always_room_for_one_training():
    assert fitting(10_000) == 1 and fitting(1) >= 1


def test_the_interval_over_seeds_is_students():
    found = student_interval([1.0, 2.0, 3.0])
    assert found.estimate == 2.0
    assert found.high - 2.0 == pytest.approx(4.302652729696 / 3**0.5)  # of two degrees of freedom, deviation 1
    assert found.low == pytest.approx(4.0 - found.high)
    assert "no interval" in str(student_interval([1.0])) and "no interval" in str(student_interval([1.0, 1.0]))


@pytest.mark.slow
def test_seeds_are_trained_once_and_tabled_together(tmp_path, capsys, in_this_process):
    out = str(tmp_path)
    assert main.dispatch(["train", *SHORT, "--seeds", "0-1", "--out", out]) == 0
    folder = tmp_path / "arm-reach-sac-seeds"
    runs = sorted((folder / "runs").iterdir())
    assert len(runs) == 2 and (folder / "report.html").exists()
    assert "| 1 |" in capsys.readouterr().out
    (runs[0] / "evaluation.json").unlink()  # as if killed before its end
    assert main.dispatch(["train", *SHORT, "--seeds", "0-1", "--out", out]) == 0
    assert [job.name for job in in_this_process] == ["seed-0", "seed-1", "seed-0"]
    assert sorted((folder / "runs").iterdir()) == runs, "one is resumed, no other begun"
    finals = [json.loads((run / "evaluation.json").read_text())["returns"] for run in runs]
    assert finals[0] != finals[1], "seeds differ"
    with pytest.raises(RunError, match="other settings"):
        main.dispatch(["train", *SHORT, "--learner.lr", "1e-5", "--seeds", "0-1", "--out", out])


@pytest.mark.slow
def test_a_seed_that_fails_is_told_and_the_others_count(tmp_path, capsys, in_this_process):
    out = str(tmp_path)
    folder = tmp_path / "arm-reach-sac-seeds"
    assert main.dispatch(["train", *SHORT, "--seeds", "0", "--out", out]) == 0
    broken = folder / "runs" / "20260101-000000-arm-reach-sac-1"
    broken.mkdir()
    (broken / "recipe.yaml").write_text("name: nothing")
    with pytest.raises(RunError, match=r"seed-1\.log"):
        main.dispatch(["train", *SHORT, "--seeds", "0-1", "--out", out])
    assert "1 training seeds" in capsys.readouterr().out


def test_the_board_shows_what_each_job_printed_last(tmp_path):
    console = Console(file=io.StringIO(), width=120)
    with Board("race", 2, tmp_path, console) as board:
        board.begin("one")
        board.begin("two")
        (tmp_path / "one.log").write_text("begins\n12/100 | success 5%\n\n")
        console.print(board.table())
        board.end("one", 0)
        assert board.table().row_count == 1, "what has ended is no longer shown"
        board.end("two", 1)
        console.print(board.table())
    lines = console.file.getvalue().splitlines()
    assert any("one" in line and "success 5%" in line for line in lines)
    assert "race 1/2: one done" in lines and "race 2/2: two failed" in lines
    assert "2 of 2 done" in "".join(lines)


def test_the_last_line_of_a_long_log_is_found(tmp_path):
    log = tmp_path / "log"
    assert last_line(log) == ""
    log.write_bytes(b"x" * 10_000 + "\n\xff\nlast \u00fc\n".encode())
    assert last_line(log) == "last ü"
