"""Commands as a stranger starts them: a process of their own, no display, and none of the variables that tests set."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from page_commands import served

import robo_rl
from factories import bare_environment
from robo_cli.main import COMMANDS
from robo_rl.evaluation.video import read_frames

EACH = """
import contextlib, io, re, sys
from robo_cli.main import dispatch
lines, seen = [*sys.argv[1:]], 0
while lines:
    line, shown = lines.pop(), io.StringIO()
    try:
        with contextlib.redirect_stdout(shown):
            status = dispatch([*line.split(), "--help"])
    except SystemExit as ended:
        status = ended.code
    said, seen = shown.getvalue(), seen + 1
    if status or not said.startswith("usage: robo-rl") or "Needs a checkout" in said:
        print(f"{line}: {status}, {said[:100]}")
    if " ACTION ..." in said:
        lines += [f"{line} {name}" for name in re.findall("^  ([a-z-]+) ", said, re.MULTILINE)]
print(seen > 60)
"""
"""Asks each command, and each of its actions, for its help."""
TINY = (
    "--learner.network.hidden 8 --learner.batch-size 8 --log-every 0 --checkpoint-every 0 "
    "--evaluation.every 0 --evaluation.episodes 1"
)
CAMERAS = "--environment.arguments.cameras [front] --environment.arguments.image_size"
FITS = "--settings.see-steps 4 --settings.read-steps 4"
FITTED = "embedded-progress --reward.settings.folder rewards/pick"
DRAWING = [
    f"train arm-pick-rlpd --steps 40 --learner.replay.learning-starts 20 --demonstrations.episodes 1 {TINY}",
    "evaluate latest --episodes 1 --videos 1",
    "evaluate latest --episodes 1 --perturb plan.yaml",
    "play latest --video pick.mp4 --episodes 1",
    "play latest --no-browser --port 0 --episodes 1",
    "watch latest --once page.html",
    "report latest --out report.html",
    f"record robo/ArmPick-v0 --policy mix:scripted=0.5,random=0.5 --episodes 6 --out data/seen {CAMERAS} 192",
    "data info data/seen",
    f"reward fit embedded --environment robo/ArmPick-v0 --pictures 120 --out rewards/pick {FITS}",
    f"audit {FITTED} --dataset data/seen --clips 2 --out audits/pick",
    f"label data/seen --reward {FITTED} --name mine",
    f"reward bench {FITTED} --environment robo/ArmPick-v0 --pictures 320 --each 2",
    "fit-encoder robo/ArmPick-v0 --out encoders/pick --settings.frames 1000 --settings.updates 2",
    f"train arm-reach-drq --steps 30 --learner.replay.learning-starts 20 {TINY}",
    "play latest --video seen.mp4 --episodes 1",
    f"train halfcheetah-sac --steps 40 --learner.replay.learning-starts 20 {TINY}",
    "play latest --video cheetah.mp4 --episodes 1",
    "robot serve --driver twin --driver.settings.cameras [front] --port 0",
    "console --twin --no-browser --port 0",
    "demo hil --human simulated --steps 20 --episodes 1 --speed 3",
    "bench render --only 84x84 --seconds 0.05 --repeats 1",
    "doctor",
]
"""Commands that draw, or that start a process which does, in an order in which each has what it reads."""


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, or, if it serves, until it says where."""
    command = [sys.executable, "-m", "robo_cli.main", *shlex.split(line)]
    more = bare_environment(ROBO_RL_CACHE=str(folder / "cache"))
    with subprocess.Popen(command, cwd=folder, env=more, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        said = ""
        try:
            if (says := served(line.split())) is not None and "--episodes" not in line:
                assert process.stdout is not None
                said = next((shown for shown in process.stdout if says in shown), "")
                process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=600)
        finally:
            process.kill()
    return subprocess.CompletedProcess(command, process.returncode, said + out, errors)


def test_tests_variables_are_not_there() -> None:
    assert "MUJOCO_GL" in os.environ
    command = [sys.executable, "-c", "import json, os; print(json.dumps([*os.environ]))"]
    left = json.loads(subprocess.check_output(command, env=bare_environment()))
    assert not {"MUJOCO_GL", "OMP_NUM_THREADS", "SDL_VIDEODRIVER", "DISPLAY"} & {*left}


@pytest.mark.slow
def test_every_command_explains_itself() -> None:
    command = [sys.executable, "-c", EACH, *COMMANDS]
    done = subprocess.run(command, env=bare_environment(), capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_play_draws_without_a_display(tmp_path: Path) -> None:
    recipe = {
        "environment": {"name": "gymnasium/InvertedPendulum-v5"},
        "algorithm": "ppo",
        "learner": {"network": {"hidden": [8]}, "batch_size": 5, "num_envs": 2, "steps_per_env": 5, "epochs": 1},
        "evaluation": {"episodes": 1, "videos": 0},
    }
    trained = robo_rl.train({"name": "pendulum", **recipe}, steps=10, out=tmp_path)
    done = run(f"play {trained.path} --video film.mp4 --episodes 1", tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_frames(tmp_path / "film.mp4", [0.5])[0].std() > 5


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_that_draw_run_from_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("grids:\n  - {mass: [0.5, 1]}\n")
    failed = {line: done.stderr for line in DRAWING if (done := run(line, tmp_path)).returncode != 0}
    assert not failed, "\n".join(f"{line}:\n{errors[-1500:]}" for line, errors in failed.items())
    assert all(read_frames(film, [0.5])[0].std() > 5 for film in tmp_path.glob("*.mp4")) and len([*tmp_path.glob("*.mp4")]) == 3
