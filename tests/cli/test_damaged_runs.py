"""A damaged run, a full disk or an exit of an environment: one error with a remedy, and never exit status 0."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from robo_app.jobs.interruption import resumable
from robo_app.recipes.recipe import read_recipe
from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting, RoboRLError, RunError
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.run import Run, write_text

RECIPE = "name: x\nalgorithm: rlpd\nenvironment: {name: robo/ArmReach-v0}\n"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "x"
    path.mkdir(parents=True)
    (path / "recipe.yaml").write_text(RECIPE)
    (path / "spec.json").write_text("{}")
    return path


@pytest.mark.parametrize("command", ["resume", "evaluate", "report"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"a word", b"\xff\xfe", b"[" * 100_000], ids=range(5))
def test_a_damaged_recipe_is_one_error(damaged: Path, command: str, content: bytes) -> None:
    (damaged / "recipe.yaml").write_bytes(content)
    with pytest.raises((RunError, InvalidSetting), match=r"recipe\.yaml.* is (not YAML|damaged)|cannot be read"):
        dispatch([command, str(damaged)])
    assert not (damaged / "report.html").exists()


@pytest.mark.parametrize("content", ["{", "[]", "null", "[" * 100_000], ids=range(4))
@pytest.mark.parametrize("file", ["spec.json", "run.json"])
def test_damaged_json_of_a_run_names_the_file(damaged: Path, file: str, content: str) -> None:
    (damaged / file).write_text(content)
    with pytest.raises(RunError, match=rf"{file} is damaged"):
        _ = Run(damaged).spec if file == "spec.json" else Run(damaged).description


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"seeds": 1}'])
def test_a_damaged_evaluation_names_the_file(damaged: Path, content: str) -> None:
    (damaged / "evaluation.json").write_text(content)
    with pytest.raises(RunError, match=r"(?s)evaluation\.json is damaged.*evaluate again"):
        Evaluation.read(damaged / "evaluation.json")


def test_a_damaged_line_of_metrics_is_named(damaged: Path) -> None:
    (damaged / "metrics.jsonl").write_text('{"step": 1}\n{"st\x00\n{"step": 3}\n')
    with pytest.raises(RunError, match=r"Line 2 of .*metrics\.jsonl is damaged"):
        Run(damaged).metrics()


@pytest.mark.slow
def test_a_recipe_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.yaml").write_text("a: " + "[" * 100_000)
    with pytest.raises(InvalidSetting, match=r"(?s)is not YAML.*nested too deeply"):
        read_recipe(str(tmp_path / "deep.yaml"))


def test_a_full_disk_names_file_and_remedy(damaged: Path) -> None:
    with (
        pytest.raises(RunError, match=r"(?s)runs/x cannot be written to.*make room.*robo-rl resume .*runs/x"),
        resumable(damaged),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ConnectionError), resumable(damaged):
        raise ConnectionError("a robot that is gone is another matter")


def test_a_text_that_is_not_written_leaves_nothing(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("robo_rl.runs.run.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_text(damaged / "recipe.yaml", "other")
    assert {path.name for path in damaged.iterdir()} == {"recipe.yaml", "spec.json"} and (
        damaged / "recipe.yaml"
    ).read_text() == RECIPE


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["raise SystemExit(0)", "import os; os._exit(0)", "import os; os._exit(7)"])
def test_an_environment_cannot_end_a_command_as_if_it_were_done(ending: str) -> None:
    program = f"""
from robo_cli import main
from robo_cli.train import evaluate
def run(order):
    {ending}
evaluate.run = run
main.sys.argv = ["robo-rl", "evaluate", "latest"]
main.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == (7 if "7" in ending else 1)
    assert "error: The environment, or something that it calls, ended the program." in done.stderr


def test_an_exit_in_a_training_says_how_to_go_on(damaged: Path) -> None:
    with pytest.raises(RoboRLError, match=r"(?s)SystemExit\(0\).*robo-rl resume .*runs/x"), resumable(damaged):
        raise SystemExit(0)
