"""No loop takes more steps in its environments than the recipe says; one that cannot take them all says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from factories import rest_slow
from robo_app.recipes import environments
from robo_app.training import assembly
from robo_cli import main  # assembly, so that its own environments, which evaluate, are not counted
from robo_rl.environments import make
from robo_rl.runs.run import find_run

ARM = {"environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 7}}}
GRID = {"environment": {"name": "minigrid/MiniGrid-Empty-5x5-v0", "arguments": {}}}
DATA = {"demonstrations": {"episodes": 2}}
SAC = {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 5}}
THEIRS = {"learning_starts": 5, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}, "device": "cpu"}
EPISODES = {"train_freq": [1, "episode"], "gradient_steps": 1}
ROLLOUTS = {"num_envs": 3, "steps_per_env": 5, "batch_size": 5, "epochs": 1, "network": {"hidden": [8]}}

IN_PROCESS = {
    "steps": (40, 40, {**ARM, "algorithm": "sac", "learner": SAC}),
    "two processes": (40, 40, {**ARM, "algorithm": "sac", "learner": SAC, "learner_process": "on"}),
    "data, then steps": (
        40,
        45,
        {
            "environment": {"name": "robo/ArmReach-v0"},
            **DATA,
            "algorithm": "bc",
            "learner": {"network": {"hidden": [8]}, "batch_size": 8},
            "online": {"steps": 40},
            "steps": 5,
        },
    ),
    "rollouts": (39, 39, {**GRID, "algorithm": "ppo", "learner": ROLLOUTS}),
    "own, on-policy": (32, 32, {**GRID, "algorithm": "sb3-a2c", "learner": {"n_steps": 16, "device": "cpu"}}),
    "own, off-policy": (40, 40, {**ARM, "algorithm": "sb3-sac", "learner": THEIRS}),
    "own, two environments": (40, 40, {**ARM, "algorithm": "sb3-sac", "learner": {**THEIRS, "n_envs": 2}}),
    "own, episodes": (40, 40, {**ARM, "algorithm": "sb3-sac", "learner": {**THEIRS, **EPISODES}}),
}
"""Loop -> environment steps that fit into the budget of 40, those of the run, and its recipe."""


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the steps of every environment that is trained in, not of those that evaluate."""
    steps: list[int] = []
    assert assembly.make_environment is make.make_environment, "those that evaluate are made by this name"

    def counted(make: Any, count: Any) -> Any:
        def make_counted(*arguments: Any, **settings: Any) -> Any:
            environment = make(*arguments, **settings)
            step = environment.step

            def taken(action: Any) -> Any:
                steps.extend([1] * count(environment))
                return step(action)

            environment.step = taken
            return environment

        return make_counted

    expert = make.make_environment("robo/ArmReach-v0")
    monkeypatch.setattr(assembly, "drawn_environment", lambda recipe: expert)  # in which demonstrations are recorded
    many = counted(environments.make_vector_environment, lambda environment: environment.num_envs)
    monkeypatch.setattr(environments, "make_environment", counted(environments.make_environment, lambda environment: 1))
    monkeypatch.setattr(environments, "make_vector_environment", many)
    return steps


def trained(recipe: dict[str, Any], *words: str) -> Any:
    told = {"steps": 40, "evaluation": {"episodes": 1, "videos": 0}, **recipe}
    Path("tiny.yaml").write_text(yaml.safe_dump(told))
    assert main.dispatch(["train", "tiny.yaml", *words]) == 0
    return find_run("latest", Path("runs"))


@pytest.mark.slow
@pytest.mark.parametrize("loop", IN_PROCESS)
def test_no_step_beyond_the_budget(loop: str, stepped: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    acted, reached, recipe = IN_PROCESS[loop]
    run = trained(recipe)
    assert run.load().step == reached
    assert len(stepped) == acted
    assert ("are too few for another step or rollout" in capsys.readouterr().out) == (reached < 40)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", rest_slow(["sac", "ppo"]))
def test_collectors_take_no_step_beyond_the_budget(algorithm: str) -> None:
    recipe = {**ARM, "algorithm": "sac", "learner": SAC} if algorithm == "sac" else {**GRID, "algorithm": "ppo"}
    run = trained(recipe | ({} if algorithm == "sac" else {"learner": {**ROLLOUTS, "num_envs": 4}}), "--collectors", "2")
    parts = run.load().parts
    assert run.load().step == 40
    if algorithm == "sac":
        assert int(np.sum(parts["replay"]["rows"]["starts"])) == 40
