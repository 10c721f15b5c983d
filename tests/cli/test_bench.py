"""Every bench runs, as a stranger would run it, for an instant."""

import json
import subprocess
import sys

import pytest

from robo_cli.bench import BENCHES

KEYS = {"bench", "case", "unit", "ours", "peers", "limit", "ratio", "spread"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "robo_cli.main", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_prints_one_object_per_line_and_its_memory_last(name):
    done = bench(name, "--seconds", "0.05", "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) >= 2
    assert all(set(row) == KEYS and row["bench"] == name and row["ours"] > 0 for row in rows)
    assert rows[-1]["unit"] == "MB"


def test_an_unknown_bench_names_the_nearest():
    done = bench("rendr")
    assert done.returncode == 1
    assert "Unknown bench 'rendr'" in done.stderr
    assert "did you mean 'render'" in done.stderr
