"""A reader of one step passes through few files; no learner inherits from another one, and none has many settings."""

import ast
import dataclasses
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from robo_policies.learners.sac import SACConfig
from robo_real.fake_reach import fake_reach
from robo_rl.entry_points import known, load
from robo_rl.environments.make import make_environment
from robo_rl.rollout.episode import Rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import specification
from robo_rl.training.off_policy import online_training

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "robo_rl",
    "sims/robo_sims",
    "policies/robo_policies",
    "real_robot/robo_real",
    "datasets/robo_datasets",
    "scripts/robo_app",
)
HOMES = tuple(f"{ROOT / folder}/" for folder in FOLDERS)
MOST = 20
"""Settings of a learner outside its groups."""


def traced(action: Callable[[], object], within: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of files and of Python calls of an action whose code lies under one of the folders."""
    files, calls = set[str](), 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(within):
            files.add(frame.f_code.co_filename)
            calls += 1

    threading.setprofile(note)  # of threads that begin now
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(files), calls


def heirs(classes: dict[str, list[str]]) -> list[str]:
    """Return the classes that inherit from a learner, or from the settings of one, that has an entry point."""
    settings = {load("learners", name).__name__ for name in known("learners")}
    concrete = settings | {name.removesuffix("Config") for name in settings}
    return sorted(name for name, bases in classes.items() if {*bases} & concrete)


def classes_of_policies() -> dict[str, list[str]]:
    """Return the classes in policies with the names of their bases."""
    found = {}
    for path in sorted((ROOT / "policies" / "robo_policies").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                found[node.name] = [ast.unparse(base) for base in bases]
    return found


def settings_outside_groups(kind: Any) -> int:
    return sum(not dataclasses.is_dataclass(each.default) for each in dataclasses.fields(kind))


def test_files_and_calls_within_a_folder_are_counted(tmp_path, monkeypatch):
    (tmp_path / "counted_outer.py").write_text(
        "import counted_inner\n\ndef go():\n    return [counted_inner.one() for _ in range(3)]\n"
    )
    (tmp_path / "counted_inner.py").write_text("def one():\n    return str(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    outer = __import__("counted_outer")
    files, calls = traced(outer.go, (str(tmp_path),))
    comprehension = sys.version_info < (3, 12)  # a function of its own until then
    assert (files, calls) == (2, 4 + comprehension)
    assert traced(outer.go, (str(tmp_path / "elsewhere"),)) == (0, 0)


def test_a_step_of_sac_passes_through_few_files():
    environment = make_environment("gymnasium/HalfCheetah-v5")
    network, replay = {"hidden": (16, 16), "engine": "reference"}, {"learning_starts": 20, "capacity": 1_000}
    config = updated(SACConfig(), network=network, replay=replay, batch_size=16)
    learner = config.build(specification(environment), 0)
    training = online_training(environment, learner, config.sampling, steps=60, seed=0)
    nothing = lambda *_, **__: None  # noqa: E731
    observer: Any = SimpleNamespace(on_step=nothing, on_episode=nothing, on_metrics=nothing)
    training.run(observer)
    training.steps = training.step + 1
    files, calls = traced(lambda: training.run(observer), HOMES)
    environment.close()
    assert 5 < files <= 20 and files < calls <= 220


def test_a_step_of_a_robot_passes_through_few_files():
    environment = fake_reach()
    config = updated(SACConfig(), network={"hidden": (16, 16)}, replay={"capacity": 1_000})
    episode = Rollout(environment, config.build(specification(environment), 0).policy, seed=0)
    episode.step()
    files, _ = traced(episode.step, HOMES)
    environment.close()
    assert 5 < files <= 20


def test_heirs_of_a_learner_are_found():
    classes = {"SACConfig": ["NetworkSettings"], "MineConfig": ["SACConfig", "Shared"], "Mine": ["SAC"], "Alone": ["Learned"]}
    assert heirs(classes) == ["Mine", "MineConfig"]


@pytest.mark.slow
def test_no_learner_inherits_from_another():
    assert heirs(classes_of_policies()) == []


@pytest.mark.slow
def test_a_learner_has_few_settings_of_its_own():
    kinds = {name: load("learners", name) for name in known("learners")}
    counts = {name: settings_outside_groups(kind) for name, kind in kinds.items() if dataclasses.is_dataclass(kind)}
    assert {"sac", "ppo", "group-ppo", "sb3-tqc"} <= set(counts) and max(counts.values()) <= MOST, counts
