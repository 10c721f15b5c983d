"""The table of `robo-rl learners` cannot lie: a sample of its cells is trained, or refused, for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from factories import rest_slow
from robo_cli import main
from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.contract import Feature
from robo_rl.runs.run import find_run
from robo_rl.training.compatibility import Capabilities

F = Feature
SMALL: dict[str, dict[str, Any]] = {
    "sac": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 5}},
    "rlpd": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 5}},
    "drq": {"network": {"hidden": [8], "convolutions": [4]}, "batch_size": 8, "replay": {"learning_starts": 5}},
    "hil-serl": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 5}},
    "ppo": {"num_envs": 2, "steps_per_env": 4, "batch_size": 4, "epochs": 1, "network": {"hidden": [8]}},
    "bc": {"network": {"hidden": [8]}, "batch_size": 8},
    "hg-dagger": {"network": {"hidden": [8]}, "batch_size": 8},
    "iql": {"network": {"hidden": [8]}, "batch_size": 8},
    "dqn": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 5}},
    "sb3-sac": {"learning_starts": 5, "batch_size": 8, "device": "cpu", "policy_kwargs": {"net_arch": [8]}},
    "sb3-ppo": {"n_steps": 8, "batch_size": 8, "device": "cpu", "policy_kwargs": {"net_arch": [8]}},
    "sb3-dqn": {"learning_starts": 5, "batch_size": 8, "device": "cpu", "policy_kwargs": {"net_arch": [8]}},
}
CHANGES: dict[Feature, dict[str, Any]] = {
    F.PERSON: {"human": {"kind": "perfect"}},
    F.LEARNER_PROCESS: {"learner_process": "on"},
    F.RECORDING: {"record_episodes": True},
    F.DEMONSTRATIONS: {"demonstrations": {"episodes": 1}},
    F.ONLINE_PHASE: {"online": {"steps": 6}},
    F.DISCRETE: {"environment": {"name": "minigrid/MiniGrid-Empty-5x5-v0"}},
    F.COLLECTORS: {},
    F.ENVIRONMENTS: {"environments": 2},
}
CELLS = [
    *((name, feature) for name in ("sac", "ppo", "bc", "sb3-sac") for feature in (F.PERSON, F.RECORDING, F.ONLINE_PHASE)),
    *((name, feature) for name in ("rlpd", "sac", "ppo", "iql", "sb3-ppo") for feature in (F.DEMONSTRATIONS, F.COLLECTORS)),
    *((name, F.DISCRETE) for name in ("sac", "ppo", "dqn", "iql", "sb3-ppo", "sb3-dqn", "sb3-sac")),
    *((name, F.LEARNER_PROCESS) for name in ("hil-serl", "ppo", "sb3-sac")),
    *((name, F.PERSON) for name in ("hg-dagger", "hil-serl", "drq", "sb3-ppo")),
    *(("drq", feature) for feature in (F.COLLECTORS, F.DISCRETE)),
    ("dqn", F.COLLECTORS),
    *((name, F.ENVIRONMENTS) for name in ("sac", "dqn", "ppo", "sb3-sac", "bc", "hg-dagger")),
]
SLOW = [
    ("rlpd", F.COLLECTORS),
    ("dqn", F.COLLECTORS),
    ("ppo", F.COLLECTORS),
    ("drq", F.COLLECTORS),
    ("hil-serl", F.LEARNER_PROCESS),
    ("sac", F.COLLECTORS),
    ("sb3-ppo", F.DISCRETE),
    ("rlpd", F.DEMONSTRATIONS),
    ("drq", F.PERSON),
]
"""Cells whose trainings take seconds, most of them since they start processes."""


def recipe_with(name: str, features: frozenset[Feature]) -> dict[str, Any]:
    """Return a recipe of a few steps that asks for these features, in an environment that fits the learner."""
    able = Capabilities.of(load("learners", name)())
    discrete = F.CONTINUOUS not in able.spaces or F.DISCRETE in features
    arm = {"name": "robo/ArmReach-v0", "arguments": {"sees": "front", "image_size": 16} if name == "drq" else {}}
    environment = {"name": "minigrid/MiniGrid-Empty-5x5-v0"} if discrete else arm
    recipe = {"environment": environment, "algorithm": name, "learner": SMALL[name], "steps": 16}
    for feature in features:
        recipe |= CHANGES[feature]
    return recipe | {"evaluation": {"episodes": 1, "videos": 0}}


@pytest.mark.parametrize(
    ("name", "feature"), [*(cell for cell in CELLS if cell not in SLOW), *rest_slow(SLOW, fast=0)], ids=str
)
def test_cell_is_what_happens(name: str, feature: Feature) -> None:
    able = Capabilities.of(load("learners", name)())
    cell = able.cell(feature)
    features = frozenset({feature}) | (able.missing({feature, *(able.spaces & {F.CONTINUOUS})}) - {F.CONTINUOUS, F.DISCRETE})
    features |= able.requires
    Path("tiny.yaml").write_text(yaml.safe_dump(recipe_with(name, features)))
    words = ["train", "tiny.yaml", *(["--collectors", "2"] if feature is F.COLLECTORS else [])]
    if cell in ("no", "set"):
        with pytest.raises(InvalidSetting, match=rf"The learner {name} cannot be trained with (.|\n)*{feature.noun}"):
            main.dispatch(words)
        assert not Path("runs").exists(), "refused before anything is written"
    else:
        assert main.dispatch(words) == 0
        assert find_run("latest", Path("runs")).load().step >= 16


def test_pictures_alone_are_refused_by_learners_of_vectors() -> None:
    assert Capabilities.of(load("learners", "sac")()).cell(F.PICTURES) == "no"
    assert Capabilities.of(load("learners", "sb3-sac")()).cell(F.PICTURES) == "yes"


def test_table_and_one_learner_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.dispatch(["learners"]) == 0
    assert "\nsac                      Soft actor-critic: Haarnoja et al. 2018" in capsys.readouterr().out
    assert main.dispatch(["learners", "--features"]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert lines["learner"][1:4] == ["person", "reward", "relabelled"] and lines["sac"][1] == "yes" and lines["ppo"][1] == "no"
    assert main.dispatch(["learners", "sb3-ppo"]) == 0
    assert "set learner.clone_epochs" in capsys.readouterr().out
