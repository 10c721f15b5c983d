"""An adversary learns against the frozen policy of a run, by the wrapper `adversary`."""

from pathlib import Path

import pytest

import robo_rl
from robo_rl.environments.make import make_environment
from robo_rl.environments.wrapping import read_wrappers
from robo_rl.errors import InvalidSetting

PENDULUM = {"name": "gymnasium/InvertedPendulum-v5"}
SHORT = {"evaluation": {"every": 0, "episodes": 2, "videos": 0}}


@pytest.mark.slow
def test_an_adversary_learns_against_a_run(tmp_path: Path) -> None:
    learner = {"num_envs": 3, "steps_per_env": 16, "batch_size": 16, "epochs": 2, "network": {"hidden": [8]}}
    ours = robo_rl.train({"environment": PENDULUM, "algorithm": "ppo", "learner": learner, "steps": 240, **SHORT}, out=tmp_path)
    wrapper = {"name": "adversary", "policy": str(ours.path), "force": 50, "bodies": ["pole"], "axes": "x"}
    learner = {"network": {"hidden": [8]}, "batch_size": 16, "replay": {"learning_starts": 50}}
    there = {**PENDULUM, "wrappers": [wrapper]}
    adversary = robo_rl.train(
        {"environment": there, "algorithm": "sac", "learner": learner, "steps": 100, **SHORT}, out=tmp_path
    )
    assert adversary.evaluate(2, seed=0).mean_return.estimate < 0  # the opposite of the policy's return, which is above 0


@pytest.mark.parametrize("name", ["", "latest"])
def test_an_adversary_without_a_named_policy_is_refused(name: str) -> None:
    [wrapper] = read_wrappers([{"name": "adversary", "policy": name}])
    with pytest.raises(InvalidSetting, match=r"needs a named policy(.|\n)*policy: RUN"):
        wrapper.wrap(make_environment(PENDULUM["name"]))
