"""The package on docs/training/networks.md, installed as any external package, trains through the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from factories import rest_slow
from robo_cli.main import dispatch
from robo_policies.networks.conformance import check_encoder
from robo_rl.environments.make import make_environment

PAGE = (Path(__file__).parents[2] / "docs" / "training/networks.md").read_text()
TINY = "--evaluation.every 0 --evaluation.episodes 1 --evaluation.videos 0"
TRAININGS = {
    "sac": "arm-reach-sac --steps 60 --learner.replay.learning-starts 20 --learner.batch-size 8 --learner.network.hidden 16 "
    "--learner.network.encoder my-encoder --learner.network.critic my_package.nets:MyLayers",
    "rlpd": "arm-pick-rlpd --steps 60 --learner.replay.learning-starts 20 --learner.batch-size 8 --learner.network.hidden 16 "
    "--demonstrations.episodes 1 --environment.arguments.cameras [wrist] --environment.arguments.image-size 32 "
    "--learner.network.encoder my-encoder",
    "ppo": "halfcheetah-ppo --steps 64 --learner.num-envs 2 --learner.steps-per-env 16 --learner.batch-size 16 "
    "--learner.network.encoder my_package.nets:MyEncoder --learner.network.actor my_package.nets:MyLayers",
}


@pytest.fixture
def installed(tmp_path):
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "nets.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])
    information = tmp_path / "my_package-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 0.1\n")
    point = re.search(r"```toml\n.*?\n(.*?)\n```", PAGE)[1].replace('"', "")
    (information / "entry_points.txt").write_text(f"[robo_rl.networks]\n{point}\n")
    return tmp_path


@pytest.fixture
def imported(installed, monkeypatch):
    """Have the package installed in this process, too, which saves seconds of imports for each command."""
    monkeypatch.syspath_prepend(installed)
    monkeypatch.chdir(installed)
    yield installed
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]


def robo_rl(folder, *words):
    command = [sys.executable, "-m", "robo_cli.main", *words]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False, env=environment)


@pytest.mark.parametrize("training", rest_slow(TRAININGS.values()), ids=TRAININGS)
def test_own_networks_train_and_resume(imported, training, capsys):
    assert dispatch(["train", *training.split(), *TINY.split()]) == 0
    assert dispatch(["resume", "latest", "--steps", "128"]) == 0
    assert "resumed at step 6" in capsys.readouterr().out
    assert dispatch(["evaluate", "latest", "--episodes", "1"]) == 0


@pytest.mark.slow
def test_run_with_own_networks_needs_the_package(installed):
    done = robo_rl(installed, "train", *TRAININGS["sac"].split(), *TINY.split())
    assert done.returncode == 0, done.stdout + done.stderr
    run = str(next((installed / "runs").glob("2*")))
    alone = robo_rl(installed / "runs", "evaluate", run, "--episodes", "1")
    assert alone.returncode == 1 and "my" in alone.stderr and "Traceback" not in alone.stderr, "the package is needed again"


def test_example_passes_its_checks():
    example, checks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict = {}
    exec(example, names)
    exec(checks, names)
    cameras = make_environment("robo/ArmPick-v0", cameras=["wrist"], image_size=32)
    assert "image" in {array.role for array in cameras.environment_spec.observation.arrays}
    check_encoder(names["MyEncoder"], cameras.environment_spec)
    cameras.close()


@pytest.mark.slow
def test_missing_class_of_the_package_is_one_error(installed):
    done = robo_rl(installed, "train", "arm-reach-sac", "--learner.network.encoder", "my_package.nets:Absent")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: network cannot be imported." in done.stderr and "my-encoder" in done.stderr.split("allowed:")[1]
