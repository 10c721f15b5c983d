"""The worked example of docs/extending/adding-a-simulator.md runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from robo_rl.conformance.environments import ENVIRONMENT_CHECKS

PAGE = (Path(__file__).parents[2] / "docs" / "extending/adding-a-simulator.md").read_text()
BLOCKS = re.findall(r"```(python|toml)\n(.*?)```", PAGE, flags=re.DOTALL)
LISTING = """
from robo_rl.environments.make import environment_names, make_environment
from robo_rl.spec.environment import specification
assert environment_names()["rail"] is None
environment = make_environment("rail", max_steps=7)
print(specification(environment).action.units, specification(environment).max_steps)
"""


@pytest.fixture
def package(tmp_path):
    """The example's files, with the entry point as pip would write it."""
    for language, text in BLOCKS:
        if language == "python":
            (tmp_path / re.match(r"# (\w+\.py)", text)[1]).write_text(text)
    information = tmp_path / "my_simulator-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-simulator\nVersion: 0.1\n")
    point = next(text for language, text in BLOCKS if language == "toml").splitlines()[1].replace('"', "")
    (information / "entry_points.txt").write_text(f"[robo_rl.environments]\n{point}\n")
    return tmp_path


def run(package, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(package)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=package, capture_output=True, text=True, timeout=280, check=False, env=environment
    )


def test_the_page_shows_one_file_one_entry_point_and_one_test():
    assert [language for language, _ in BLOCKS] == ["python", "toml", "python"]


@pytest.mark.slow
def test_the_examples_test_row_passes(package):
    done = run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_simulator.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ENVIRONMENT_CHECKS)} passed" in done.stdout


@pytest.mark.slow
def test_the_example_is_found_by_name(package):
    done = run(package, "-c", LISTING)
    assert done.stdout == "('m/s',) 7\n", done.stderr
