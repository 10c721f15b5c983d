"""scripts/test: two passes, one closing line with the totals of both, and the status of the worse one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTEST = """#!/usr/bin/env bash
echo "$*" >> asked.txt
case "$*" in
    *"and not real_time"*) cat first.txt; exit "$(cat first.status)" ;;
    *) cat second.txt; exit "$(cat second.status)" ;;
esac
"""
FIRST = "tests/core/test_a.py ..F.\n= 3 passed in 5.00s =\nFAILED tests/core/test_a.py::test_b - assert 3 in 5s\n"
FIRST += "= 1 failed, 8036 passed, 12 skipped, 1300 deselected, 1 warning in 310.25s (0:05:10) =\n"
SECOND = "........\n=== 60 passed, 2 skipped, 9000 deselected in 41.50s ===\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with scripts/test, and with stand-ins of the setup and of pytest, which print what they are told to."""
    for folder in ("scripts", ".venv/bin", "tests/robots"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/test", tmp_path / "scripts/test")
    for name, text in {"scripts/setup": "#!/bin/sh\n", ".venv/bin/python": PYTEST}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name in ("tests/test_clock.py", "tests/robots/conftest.py"):
        (tmp_path / name).write_text("real_time")
    (tmp_path / "tests/test_other.py").write_text("real time")
    tell(tmp_path, (FIRST, 1), (SECOND, 0))
    return tmp_path


def tell(checkout: Path, first: tuple[str, int], second: tuple[str, int]) -> None:
    for name, (text, status) in {"first": first, "second": second}.items():
        (checkout / f"{name}.txt").write_text(text)
        (checkout / f"{name}.status").write_text(str(status))


def run(checkout: Path, *words: str) -> tuple[int, str, list[str]]:
    """Return the exit status, the last line of a run, and what pytest was asked for."""
    done = subprocess.run([checkout / "scripts/test", *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()[-1], (checkout / "asked.txt").read_text().splitlines()


def test_totals_of_both_passes_are_the_last_line(checkout: Path) -> None:
    status, last, asked = run(checkout)
    assert (status, last) == (1, "1 failed, 8096 passed, 14 skipped, 1 warning in 351.75s")
    assert "-m not slow and not gpu and not carla_server and not robot and not real_time -n " in asked[0]
    alone = asked[1].partition(" -m ")[2].split()
    assert " ".join(alone[:-2]) == "not slow and not gpu and not carla_server and not robot and real_time -n0"
    assert sorted(alone[-2:]) == ["tests/robots", "tests/test_clock.py"]


@pytest.mark.parametrize(("first", "second", "status"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (0, 2, 1)])
def test_status_is_that_of_the_worse_pass(checkout: Path, first: int, second: int, status: int) -> None:
    tell(checkout, (SECOND, first), (SECOND, second))
    assert run(checkout)[:2] == (status, "120 passed, 4 skipped in 83.00s")


def test_pass_that_dies_without_a_word_is_no_success(checkout: Path) -> None:
    tell(checkout, ("", 139), (SECOND, 0))
    assert run(checkout)[:2] == (1, "60 passed, 2 skipped in 41.50s")
    tell(checkout, ("", 4), ("", 4))
    assert run(checkout)[:2] == (1, "no tests ran in 0.00s")


def test_slow_and_arguments_are_handed_on(checkout: Path) -> None:
    status, _, asked = run(checkout, "slow")
    assert status == 1 and "--timeout 3600 -m slow and not gpu and not carla_server and not robot and not real_time" in asked[0]
    assert run(checkout, "tests/core", "-k", "replay")[0] == 0
    assert run(checkout, "slow", "-x")[2][-2:] == [
        "-m pytest -m not slow and not gpu and not carla_server and not robot tests/core -k replay",
        "-m pytest --timeout 3600 -m slow and not gpu and not carla_server and not robot -x",
    ]
