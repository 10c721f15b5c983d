"""Evaluations that end early: an environment that raises after two episodes, from the command line."""

import json
import signal
import sys
from pathlib import Path

import pytest

from robo_cli.main import dispatch
from robo_rl.errors import EnvironmentFailed
from robo_rl.evaluation.evaluation import FIRST_SEED, Evaluation
from robo_rl.runs.run import find_run

SOURCE = """
import os
from pathlib import Path

import gymnasium
import numpy as np


class Fragile(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.seed = 0, seed
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.seed == 1_000_002 and Path("broken").exists():
            if sent := Path("broken").read_text():
                os.kill(os.getpid(), int(sent))
            raise RuntimeError("the cable is out")
        return np.zeros(1, np.float32), float(self.seed % 10), False, self.steps == 3, {}
"""
TRAIN = (
    "train sac --environment fragile_world:Fragile --steps 4 --evaluation.episodes 4 --evaluation.videos 0"
    " --learner.network.hidden [4] --learner.batch-size 2 --learner.replay.learning-starts 1"
)
pytestmark = pytest.mark.filterwarnings("ignore::robo_rl.environments.foreign.UnitsUnknown")
TWO = (FIRST_SEED, FIRST_SEED + 1)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Return a function that trains in the fragile environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("fragile_world.py").write_text(SOURCE)
    yield lambda: dispatch(TRAIN.split())
    sys.modules.pop("fragile_world", None)


@pytest.mark.slow
def test_early_end_is_kept_printed_and_compared(train, capsys):
    train()
    run = find_run("latest", Path("runs"))
    Path("broken").write_text("")
    for number in (1, 2):
        capsys.readouterr()
        with pytest.raises(EnvironmentFailed, match="the cable is out"):
            dispatch(["evaluate", "latest", "--json"])
        said = capsys.readouterr()
        file = run.path / "evaluations" / f"evaluation-incomplete-{number}.json"
        found = Evaluation.read(file)
        assert found == Evaluation.from_json(json.loads(said.out)) and str(file) in said.err
        assert found.seeds == TWO and found.incomplete.planned == 50 and "the cable is out" in found.incomplete.reason
    assert not any(part.name.startswith("evaluation-") for part in run.path.glob("evaluation*.json"))
    assert dispatch(["compare", str(file), str(run.path)]) == 0
    said = capsys.readouterr().out
    assert "2 shared evaluation seeds" in said and "ended early, after 2 of 50 episodes: EnvironmentFailed" in said
    dispatch(["report", "latest"])
    assert "ended early, after 2 of 50 episodes" in run.report.read_text()


@pytest.mark.slow
def test_final_evaluation_that_ends_early_is_resumed(train, capsys):
    Path("broken").write_text("")
    with pytest.raises(EnvironmentFailed):
        train()
    run = find_run("latest", Path("runs"))
    (file,) = (run.path / "evaluations").glob("*-incomplete-*.json")
    assert Evaluation.read(file).seeds == TWO and run.evaluation is None
    Path("broken").unlink()
    assert dispatch(["resume", "latest"]) == 0
    assert len(run.evaluation) == 4 and run.evaluation.incomplete is None and file.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_keeps_finished_episodes(train, number, capsys):
    train()
    Path("broken").write_text(str(int(number)))
    with pytest.raises(KeyboardInterrupt):
        dispatch(["evaluate", "latest", "--episodes", "9"])
    (file,) = (find_run("latest", Path("runs")).path / "evaluations").glob("*.json")
    assert Evaluation.read(file).early_end == "ended early, after 2 of 9 episodes: interrupted"
    assert f"WARNING  {Evaluation.read(file).early_end}" in capsys.readouterr().out
