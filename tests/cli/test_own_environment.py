"""An environment of anybody's from the command line, in an empty folder, without registration: trained to watched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from factories import bare_environment

SOURCE = """
import gymnasium as gym
import numpy as np


class Chase(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, size=1.0, render_mode=None):
        self.size, self.render_mode = size, render_mode
        place = gym.spaces.Box(-size, size, (1,))
        self.observation_space = gym.spaces.Dict({"agent": gym.spaces.Dict({"pos": place}), "target": place})
        self.action_space = gym.spaces.Box(-0.2, 0.2, (1,), np.float32)

    def _seen(self):
        return {"agent": {"pos": np.float32([self.x])}, "target": np.float32([self.target])}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.target = self.np_random.uniform(-self.size, self.size, 2)
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        self.x = float(np.clip(self.x + action[0], -self.size, self.size))
        self.steps += 1
        distance = abs(self.x - self.target)
        return self._seen(), -distance, bool(distance < 0.05), self.steps >= 20, {}

    def render(self):
        picture = np.full((64, 256, 3), 255, np.uint8)
        for value, colour in ((self.target, (0, 180, 0)), (self.x, (200, 0, 0))):
            column = int((value / self.size + 1) / 2 * 247)
            picture[20:44, column : column + 8] = colour
        return picture
"""
SCRIPT = """
import robo_rl
from my_package.envs import Chase

SMALL = {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 20}}
run = robo_rl.train("sac", environment=Chase, steps=30, learner=SMALL, evaluation={"episodes": 2, "videos": 0}, out="mine")
print(len(run.evaluate(episodes=3)), robo_rl.resume(run, steps=40).path == run.path)
"""
SMALL = (
    "--learner.network.hidden 8 --learner.batch-size 8 --learner.replay.learning-starts 20 "
    "--evaluation.episodes 2 --evaluation.videos 1"
)
TRAIN = f"train sac --environment my_package.envs:Chase --environment.arguments.size 0.5 --steps 60 {SMALL}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (tmp_path / "my_package" / "envs.py").write_text(SOURCE)
    return tmp_path


def robo_rl(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    return started(folder, "-m", "robo_cli.main", *line.split())


def started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = bare_environment(ROBO_RL_CACHE=str(folder / "cache"))
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.slow
def test_a_class_in_a_file_is_trained_in(folder: Path) -> None:
    done = robo_rl(folder, TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("says nothing about units") == 1 and "success  " not in done.stdout
    [run] = (folder / "runs").iterdir()
    judged = json.loads((run / "evaluation.json").read_text())
    assert judged["successes"] == [None, None] and len(judged["videos"]) == 1  # unknown, and no failure
    assert "arguments:\n    size: 0.5" in (run / "recipe.yaml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_everything_along_the_line_works_with_it(folder: Path) -> None:
    record = "record my_package.envs:Chase --policy random --episodes 3 --out data --environment.arguments.size 0.5"
    lines = [
        TRAIN,
        "evaluate latest --episodes 2",
        "resume latest --steps 80",
        "play latest --video film.mp4 --episodes 1",
        "report latest --out report.html",
        "watch latest --once page.html",
        "envs my_package.envs:Chase",
        f"{TRAIN} --collectors 2",
        record,
        "train bc --dataset data --steps 5 --evaluation.episodes 2 --evaluation.videos 0",
    ]
    for settings in (
        "ppo --steps 64 --learner.steps-per-env 8",
        "sb3-ppo --steps 64 --learner.n-steps 32",
        "sb3-sac --steps 120",
    ):
        lines.append(f"train {settings} --environment my_package.envs:Chase --evaluation.episodes 2 --evaluation.videos 0")
    failed = {line: done.stderr[-1500:] for line in lines if (done := robo_rl(folder, line)).returncode != 0}
    assert not failed
    assert (folder / "film.mp4").stat().st_size > 500


@pytest.mark.slow
def test_a_class_is_given_in_python(folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT)
    done = started(folder, "script.py")
    assert (done.returncode, done.stdout) == (0, "3 True\n"), done.stderr
    [run] = (folder / "mine").iterdir()
    assert "name: my_package.envs:Chase" in (run / "recipe.yaml").read_text()
    again = robo_rl(folder, f"evaluate {run} --episodes 2")  # by its name, in another process
    assert again.returncode == 0, again.stderr


OBJECTS = """
import sys
import numpy as np
import torch
import robo_rl
from my_package.envs import Chase


class MyEncoder(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.size = 4
        self.layer = torch.nn.Linear(sum(array.size for array in spec.observation.vectors.values()), 4)

    def forward(self, rows):
        return torch.tanh(self.layer(torch.cat([row.flatten(1) for row in rows.values()], 1)))


def far(batch):
    return -np.abs(batch["agent_pos"] - batch["target"])[:, 0]


sys.modules["__main__"].__file__ = None  # as in a notebook
SMALL = {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 20}}
MORE = {"steps": 30, "learner": SMALL, "evaluation": {"episodes": 1, "videos": 0}, "out": "mine"}
run = robo_rl.train("sac", environment=Chase(size=0.5), reward=far, network=MyEncoder, **MORE)
print(len(robo_rl.evaluate(run, Chase(size=0.5), 2)), run.recipe["learner"]["network"]["encoder"], run.recipe["reward"]["name"])
"""


@pytest.mark.slow
def test_objects_of_a_notebook_are_trained_with(folder: Path) -> None:
    (folder / "notebook.py").write_text(OBJECTS)
    done = started(folder, "notebook.py")
    assert (done.returncode, done.stdout) == (0, "2 __main__:MyEncoder __main__:far\n"), done.stderr
    assert done.stderr.count("has no name that can be imported") == 3
    [run] = (folder / "mine").iterdir()
    again = robo_rl(folder, f"evaluate {run} --episodes 1")  # in another process
    assert again.returncode == 1 and "move it to a file such as mine.py" in again.stderr, again.stderr


def test_objects_of_files_in_the_folder_are_named(folder: Path) -> None:
    source = OBJECTS[: OBJECTS.index("sys.modules")].replace("from my_package.envs import Chase", "")
    (folder / "mine.py").write_text(source)
    words = "--learner.network.encoder mine:MyEncoder --reward.name mine:far --steps 30"
    done = robo_rl(folder, f"{TRAIN.replace('--steps 60', words)} --evaluation.videos 0")
    assert done.returncode == 0, done.stderr
    assert "reward/model_return" in next((folder / "runs").glob("*/metrics.jsonl")).read_text()


@pytest.mark.slow
def test_a_learner_without_an_environment_says_how_to_name_one(folder: Path) -> None:
    done = robo_rl(folder, "train sac")
    assert done.returncode == 1 and "--environment NAME" in done.stderr
    wrong = robo_rl(folder, "train sac --environment my_package.envs:Chaser")
    assert wrong.returncode == 1 and "did you mean 'Chase'?" in wrong.stderr
