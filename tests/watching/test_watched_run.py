"""State of a run from its folder alone: running, ended, killed, copied, torn, rewound."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from factories import axes, make_spec
from robo_app.watching.json_lines import GrowingLines
from robo_app.watching.selection import MOST_RUNS, Selection
from robo_app.watching.watched_run import Seen, WatchedRun
from robo_rl.errors import RunError
from robo_rl.runs.run import Run
from robo_rl.runs.status import FRESH, RunStatus
from robo_rl.spec.environment import ArraySpec
from robo_rl.system.durable_files import exclusive_lock, is_locked

SPEC = make_spec("test/Reach", ArraySpec("position", (2,), unit="m", frame="world"), action=axes("x", "y"))
TRAIN_AND_HANG = """
import sys, time
from pathlib import Path
from robo_rl.runs.run import Run
with Run(Path(sys.argv[1])) as run:
    run.log(10, {"eval/mean_reward": 1.0}, elapsed=2.0)
    run.announce(12, "training")
    print("trains", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "runs", recipe_name="reach", seed=3, recipe="name: reach\nsteps: 50\n", spec=SPEC)


def seen(run, watched=None):
    found = (watched or WatchedRun(run.path)).look()
    assert isinstance(found, Seen), found
    return found


def age(run, seconds):
    """Has all files of a run look that old."""
    status = RunStatus.read(run.path)
    for path in run.path.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)
    assert RunStatus.read(run.path) == status


@pytest.mark.slow
def test_killed_training_is_running_and_then_crashed(run):
    with subprocess.Popen([sys.executable, "-c", TRAIN_AND_HANG, run.path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"trains\n"
        found = seen(run)
        assert (found.verdict, found.activity, found.step, found.total) == ("running", "training", 12, 50)
        process.send_signal(signal.SIGKILL)
    found = seen(run)
    assert found.verdict == "crashed" and "killed" in found.troubles[0]
    assert found.step == 10  # the last that was logged


@pytest.mark.parametrize(
    ("error", "verdict"), [(None, "finished"), (KeyboardInterrupt(), "interrupted"), (RunError("Disk gone."), "failed")]
)
def test_end_of_a_training_is_its_state(run, error, verdict):
    try:
        with run:
            run.announce(0, "training")
            if error is not None:
                raise error
    except (KeyboardInterrupt, RunError):
        pass
    found = seen(run)
    assert found.verdict == verdict
    assert found.troubles == (["Disk gone."] if verdict == "failed" else [])


def test_run_that_is_only_opened_keeps_its_state(run):
    with run:
        run.announce(20, "training")
    with pytest.raises(RunError), run:
        raise RunError("The environment has changed.")
    assert seen(run).verdict == "finished"


def test_copied_folder_is_judged_by_its_changes(run, tmp_path):
    with run:
        run.log(10, {"x": 1.0}, elapsed=1.0)
        copy = Run(shutil.copytree(run.path, tmp_path / "copy"))
        watched = WatchedRun(copy.path)
        age(copy, 10)
        assert seen(copy, watched).verdict == "running"
        age(copy, FRESH + 10)
        assert seen(copy).verdict == "silent"
        status = RunStatus.read(copy.path)
        for host in ("elsewhere", status.host):
            replace(status, host=host).write(copy.path)  # a change, whatever the clocks say
            os.utime(copy.path / "status.json", (0, 0))
            assert seen(copy, watched).verdict == "running"


def test_run_of_an_older_version_has_a_state(run):
    assert seen(run).verdict == "running"
    age_of = [run.path / "recipe.yaml", run.path / "spec.json", run.path / "run.json"]
    for path in age_of:
        os.utime(path, (time.time() - FRESH - 5,) * 2)
    assert seen(run).verdict == "unfinished"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"state": "running", "step": "x"}', '{"step": 1e999}', "\0" * 40])
def test_damaged_status_is_none(run, text):
    (run.path / "status.json").write_text(text)
    assert RunStatus.read(run.path) is None
    assert seen(run).verdict == "running"


def test_watching_never_keeps_a_training_from_its_lock(run):
    (run.path / "lock").touch()
    held = exclusive_lock(run.path / "lock", RunError("busy"))
    assert is_locked(run.path / "lock")
    held.close()
    assert not is_locked(run.path / "lock") and not is_locked(run.path / "none")
    code = "import sys\nfrom pathlib import Path\nfrom robo_rl.system.durable_files import is_locked\nprint(1, flush=True)\n"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}while True: is_locked(Path(sys.argv[1]))", run.path / "lock"], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"1\n"
        for _ in range(200):
            with run:
                pass
        other.kill()


def test_lines_are_read_on_while_they_are_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = GrowingLines(path)
    assert lines.read() == []
    with path.open("a") as file:
        for text, steps in (('{"step": 1}\n{"st', [1]), ('ep": 2}', [1]), ("\n", [1, 2]), ('{"step": 3}\n{"step"', [1, 2, 3])):
            file.write(text)
            file.flush()
            assert [line["step"] for line in lines.read()] == steps
    first = lines.read()
    assert lines.read() is first  # nothing is parsed twice


@pytest.mark.parametrize("how", ["replaced", "in place", "shorter", "removed"])
def test_rewound_lines_are_read_again(tmp_path, how):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}}}\n' for step in (1, 2, 3)))
    lines = GrowingLines(path)
    assert len(lines.read()) == 3
    if how == "replaced":
        (tmp_path / "new").write_text('{"step": 1}\n{"step": 2}\n{"step": 9}\n')
        (tmp_path / "new").rename(path)
    elif how == "in place":
        path.write_text('{"step": 1}\n{"step": 2}\n{"step": 9}\n')
    elif how == "shorter":
        path.write_text('{"step": 1}\n')
    else:
        path.unlink()
    wanted = {"replaced": [1, 2, 9], "in place": [1, 2, 9], "shorter": [1], "removed": []}[how]
    assert [line["step"] for line in lines.read()] == wanted


def test_damaged_lines_are_left_out_and_counted(run):
    (run.path / "metrics.jsonl").write_bytes(
        b'{"step": 1}\n\xff\xfe\n{"step": "2"}\n[1]\n\n{"step": 4}\n' + b"[" * 9000 + b"\n"
    )
    found = seen(run)
    assert [line["step"] for line in found.run.metrics] == [1, 4]
    assert "4 damaged lines" in found.troubles[0]


def test_values_that_are_not_finite_are_named(run):
    with run:
        for step, loss in ((1, 0.5), (2, float("nan")), (3, 0.4), (4, float("inf")), (5, float("nan"))):
            run.log(step, {"train/loss": loss, "train/fine": 1.0}, elapsed=step)
    assert seen(run).troubles == ["train/loss is not a finite number since step 4."]


def test_messages_are_shown_and_rewound(run):
    with run:
        for step in (10, 20):
            run.log(step, {"x": 1.0}, elapsed=step)
            run.note(step, f"diverged at {step}")
        run.rewind(10)
    (said,) = [text for text in seen(run).remarks if "diverged" in text]
    assert said.endswith("step 10: diverged at 10")


def test_speed_and_time_left_are_of_the_newest_lines(run):
    with run:
        for number in range(20):
            run.log(number, {"train/updates": 4.0 * number}, elapsed=number * (1.0 if number < 10 else 2.0))
        found = seen(run)
        assert found.speed == pytest.approx(0.5) and found.updates == pytest.approx(2.0)
        assert found.left == pytest.approx((50 - 19) / 0.5)


def test_evaluations_are_parsed_once(run, monkeypatch):
    from robo_rl.evaluation.evaluation import Evaluation

    (run.path / "evaluations").mkdir()
    (run.path / "evaluations" / "0000000010.json").write_text("{}")
    parsed = []
    monkeypatch.setattr(Evaluation, "read", parsed.append)
    watched = WatchedRun(run.path)
    for _ in range(3):
        seen(run, watched)
    (run.path / "evaluations" / "0000000010.json").write_text("{} ")
    seen(run, watched)
    assert len(parsed) == 2


def test_selection_finds_runs_by_name_folder_and_pattern(tmp_path):
    selection = Selection(["latest"], tmp_path)
    assert selection.find() == ([], ["latest"], 0)
    made = []
    for seed in range(3):
        made.append(Run.create(tmp_path / "study" / "runs", recipe_name="a", seed=seed, recipe="{}", spec=SPEC).path)
        os.utime(made[-1] / "spec.json", (seed + 1, seed + 1))
    for names in (
        ["study"],
        [str(tmp_path)],
        ["study/runs/*-a-*"],
        ["*-a-*"],
        [made[0].name, made[1].name, made[2].name],
        [str(path) for path in made],
        ["study", made[0].name],
    ):
        assert Selection(names, tmp_path).find()[0] == made
    for root in (tmp_path, tmp_path / "study" / "runs"):
        assert Selection(["latest"], root).find()[0] == made[-1:]
    assert Selection([made[1].name, "none"], tmp_path / "study" / "runs").find() == ([made[1]], ["none"], 0)


@pytest.mark.slow
def test_selection_leaves_out_the_oldest_of_many(tmp_path):
    for seed in range(MOST_RUNS + 2):
        path = Run.create(tmp_path, recipe_name="a", seed=seed, recipe="{}", spec=SPEC).path
        os.utime(path / "spec.json", (seed + 1, seed + 1))
    paths, _, left_out = Selection([str(tmp_path)], tmp_path).find()
    assert (len(paths), left_out) == (MOST_RUNS, 2) and paths[-1] == path


def test_folder_without_a_sound_recipe_gives_a_reason(run):
    (run.path / "recipe.yaml").write_text("a: [")
    assert "recipe.yaml" in WatchedRun(run.path).look()
    shutil.rmtree(run.path)
    assert "not a run folder" in WatchedRun(run.path).look()


def test_status_says_nothing_about_a_full_disk(run, monkeypatch):
    with run:
        shutil.rmtree(run.path)
        run.announce(1, "training")
        run.note(1, "text")
    assert json.dumps(RunStatus.read(run.path)) == "null"
