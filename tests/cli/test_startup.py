"""Commands that only list or explain import no torch and hardly ever scipy, which take longer than all else together."""

from __future__ import annotations

import subprocess
import sys

import pytest

from robo_cli.main import COMMANDS

ROBOTS = ("robot", "console", "demo")
LISTING = [
    "recipes",
    "recipes nope",
    "train --help",
    "train arm-pik",
    "train nothing.yaml",
    "resume nope",
    "evaluate nope",
    "record",
    "data info nope",
    "reward",
    "reward fit",
    "reward list",
    "reward show program:arm_push",
    "reward packs",
    "envs",
    "envs robo",
    "envs robo/ArmPik-v0",
    "learners",
    "--version",
    *(f"{name} --help" for name in COMMANDS if name not in ROBOTS),
]
WITH_SCIPY = [  # robots have poses
    "envs robo/ArmPick-v0",
    "robot check 127.0.0.1:5000",
    *(f"{name} --help" for name in ROBOTS),
]
NAMES = ["--help", "--version", "envs", "learners", "recipes", "reward", "reward list", "bench --help"]
"""Commands that need no environment at all."""
HEAVY = ["torch", "stable_baselines3", "matplotlib", "optuna", "ray"]
SIMULATORS = ["mujoco", "dm_control", "metaworld", "minigrid", "gymnasium_robotics", "carla"]
CODE = """
import contextlib, io, sys
from robo_cli.main import dispatch
from robo_rl.errors import RoboRLError
for line in sys.argv[2:]:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown), contextlib.suppress(SystemExit, RoboRLError):
        dispatch(line.split())
    found = [name for name in sys.argv[1].split() if name in sys.modules]
    if found:
        print(f"{line}: {', '.join(found)}")
        break
"""


@pytest.mark.parametrize(
    ("lines", "heavy"),
    [
        (LISTING, [*HEAVY, *SIMULATORS[1:-1], "scipy"]),
        (WITH_SCIPY, HEAVY),
        (NAMES, [*HEAVY, *SIMULATORS, "scipy", "av", "cv2", "h5py", "gymnasium"]),
    ],
    ids=["all", "with scipy", "names"],
)
def test_listing_commands_import_nothing_that_computes(lines: list[str], heavy: list[str]) -> None:
    command = [sys.executable, "-c", CODE, " ".join(heavy), *lines]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
