"""Every bench runs from the command line for an instant; the costly ones in the slow tests."""

import json
import subprocess
import sys

import pytest

from robo_bench.command import BENCHES, cases_of
from robo_bench.measurement import Effort

KEYS = {"bench", "case", "unit", "ours", "peers", "limit", "ratio", "spread", "ratios"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "robo_cli.main", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows_of(name: str, only: str = "") -> list[dict]:
    done = bench(name, "--seconds", "0.05", "--repeats", "1", "--threads", "1", "--only", only, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(set(row) == KEYS and row["bench"] == name and row["ours"] > 0 for row in rows)
    assert rows[-1]["unit"] == "MB"
    return rows


CHEAP = {
    "env": "HalfCheetah-v5, 16",
    "data": "transitions of 17 numbers",
    "reward": "from the cache",
    "collectors": "unpack: a frame",
    "robot": "guard, a command",
    "drive": "grid, 20 cars more, 84x84",
}


SLOW = ("reward", "collectors", "drive")
"""Of these each takes ten seconds: models, processes and a server start."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CHEAP])
def test_a_bench_prints_one_object_per_line_and_its_memory_last(name):
    rows = rows_of(name, CHEAP[name])
    assert len(rows) >= 2
    assert rows[0]["peers"] or name in ("collectors", "drive", "robot")  # these cases have no peer


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHES)
def test_every_case_runs(name):
    effort = Effort(seconds=0.05, repeats=1, threads=1)
    assert [row["case"] for row in rows_of(name)[:-1]] == [case.name for case in cases_of(name, effort)]


@pytest.mark.slow
def test_an_unknown_case_lists_those_that_there_are():
    done = bench("memory", "--only", "nothing")
    assert done.returncode == 1
    assert "Unknown case of bench memory 'nothing'" in done.stderr
    assert "replay of 10000 pictures 84x84 in RAM" in done.stderr


@pytest.mark.slow
def test_an_unknown_bench_names_the_nearest():
    done = bench("rendr")
    assert done.returncode == 1
    assert "Unknown bench 'rendr'" in done.stderr
    assert "did you mean 'render'" in done.stderr


HIDDEN = """
import sys
class Hide:
    def find_spec(name, *_):
        if name == "robo_bench":
            raise ModuleNotFoundError("No module named 'robo_bench'", name=name)
sys.meta_path.insert(0, Hide)
from robo_cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [("bench", "env"), ("reward", "bench", "oracle", "--environment", "robo/ArmReach-v0")])
def test_bench_without_checkout_is_one_clear_error(words):
    """As in an installation from a wheel, which has no robo_bench."""
    done = subprocess.run([sys.executable, "-c", HIDDEN, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Benchmarks need a checkout") and "do:      clone" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("words", "needs"), [(("env", "--processor-time"), "learner"), (("env", "--beside", "x"), "updates")])
def test_bench_refuses_options_of_another_bench(words, needs):
    done = bench(*words)
    assert done.returncode == 1
    assert f"{words[1]} is for one bench" in done.stderr and f"allowed: {needs}" in done.stderr


@pytest.mark.slow
def test_bench_prints_a_table_with_ratios(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    done = bench("memory", "--seconds", "0.05", "--repeats", "1", "--only", "in RAM")
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("ours", "limit", "pictures 84x84 in RAM", "sb3")) and "x)" in done.stdout


@pytest.mark.slow
def test_bench_measures_another_interpreter_beside_this_one(tmp_path):
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    options = ("--seconds", "0.05", "--repeats", "1", "--only", "td3-bc", "--json", "--beside", str(other))
    done = bench("updates", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["peers"].keys() == {"engine reference", str(other)}
