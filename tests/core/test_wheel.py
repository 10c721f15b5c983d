"""The wheel alone: unpacked into a fresh environment outside the checkout, without the packages of the extras."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
from importlib import metadata
from pathlib import Path

import pytest

from factories import bare_environment

ROOT = Path(__file__).parents[2]
TINY = "--learner.replay.learning-starts 20 --learner.batch-size 8 --evaluation.episodes 1 --evaluation.every 0"
BLOCKED = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def modules_of_extras():
    """Returns the modules that only the packages of the extras bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(needs):
        return {re.match(r"[\w-]+", need)[0].lower().replace("-", "_") for need in needs}

    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name not in ("dev", "bench", "all")}
    optional = names(need for needs in extras.values() for need in needs) - names(project["dependencies"])
    found = metadata.packages_distributions().items()
    return {module for module, owners in found if {owner.lower().replace("-", "_") for owner in owners} & optional}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run a command of the wheel in a folder of its own; returns what it printed."""
    home = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "venv")], check=True)
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    shutil.unpack_archive(wheel, site, "zip")
    blocked = modules_of_extras()
    assert {"av", "minigrid", "tensorboard", "sb3_contrib", "websockets"} <= blocked and not {"torch", "numpy"} & blocked
    (site / "sitecustomize.py").write_text(BLOCKED.format(names=blocked))
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")  # whose own .pth files are not read
    (home / "work").mkdir()

    def run(*words, status=0):
        command = [str(home / "venv" / "bin" / "python"), "-m", "robo_cli.main", *" ".join(words).split()]
        done = subprocess.run(
            command, cwd=home / "work", env=bare_environment(), check=False, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    run.folder, run.python = home / "work", home / "venv" / "bin" / "python"
    return run


def test_modules_are_those_of_the_wheel(run):
    code = "import robo_rl, robo_sims, robo_policies, robo_real, robo_datasets, robo_app, robo_cli; print(robo_rl.__file__)"
    told = subprocess.run(
        [run.python, "-c", code], cwd=run.folder, env=bare_environment(), check=False, capture_output=True, text=True
    )
    assert told.stdout.startswith(str(run.folder.parent / "venv")), told.stderr


def test_it_trains_evaluates_records_and_labels(run):
    told = run(f"train arm-reach-sac --steps 60 --name first {TINY}")
    assert "robo-rl[films]" in told and "robo-rl[board]" in told, "what is missing is said, and ends nothing"
    assert "MissingExtra" not in told, "in words"
    assert "1 episode," in run("evaluate latest --episodes 1 --videos 0")
    run("record robo/ArmPush-v0 --policy scripted --episodes 2 --out data/push")
    assert "2 episodes" in run("label data/push --reward oracle --name recorded")
    assert run("data verify data/push")


def test_it_serves_a_twin(run):
    command = [run.python, "-u", "-m", "robo_cli.main", "robot", "serve", "--driver", "twin", "--port", "0"]
    server = subprocess.Popen(command, cwd=run.folder, env=bare_environment(), stdout=subprocess.PIPE, text=True)
    try:
        address = next(found for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))[0]
        with urllib.request.urlopen(f"{address}/robo/spec", timeout=20) as answer:
            assert answer.status == 200
    finally:
        server.terminate()
        server.communicate(timeout=20)


MISSING = {
    "contrib": "train sb3-tqc --environment gymnasium/Hopper-v5 --steps 10",
    "metaworld": "train sac --environment metaworld/reach-v3 --steps 10",
    "minigrid": "train ppo --environment minigrid/MiniGrid-Empty-5x5-v0 --steps 10",
}


MISSES = """
import sys
from robo_cli.main import dispatch
from robo_rl.errors import MissingExtra
for line in sys.argv[1:]:
    try:
        dispatch(line.split())
    except MissingExtra as error:
        print(error.fix)
"""


@pytest.mark.slow
def test_a_missing_extra_is_one_error(run):
    command = [run.python, "-c", MISSES, *MISSING.values()]
    done = subprocess.run(
        command, cwd=run.folder, env=bare_environment(), check=False, capture_output=True, text=True, timeout=600
    )
    assert done.stdout.splitlines() == [f'pip install "robo-rl[{extra}]"' for extra in MISSING], done.stderr
