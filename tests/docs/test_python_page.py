"""The page about Python: its script runs from an empty folder, and what it says of names and errors is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import robo_rl

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "python.md").read_text()


@pytest.mark.slow
def test_example_runs_from_an_empty_folder(tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "examples" / "first_policy.py")]
    environment = os.environ | {"STEPS": "60"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "first_policy.png").stat().st_size > 5000
    (run,) = (tmp_path / "runs").iterdir()
    assert robo_rl.open_run(run).checkpoints[-1] == 75
    for words in (
        f"Run('runs/{run.name}')",
        "Wilson 95%",
        "with 95 % confidence",
        "training episodes",
        "resumed at step 60, exact",
    ):
        assert words in done.stdout, done.stdout


def test_page_names_everything_public() -> None:
    functions = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)) - {"run"}
    assert functions == {name for name in robo_rl.__all__ if name.islower()}
