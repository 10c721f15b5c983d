"""robo-rl train --collectors: trained, killed, resumed; refused where it cannot be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from robo_app.recipes.recipe import parse_recipe, to_yaml
from robo_app.training import collecting
from robo_app.training.collecting import CollectingSettings, require_collectable
from robo_app.training.collector import collector_of
from robo_cli import main
from robo_rl.cluster.local import InProcessEngine
from robo_rl.errors import InvalidSetting
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.runs.observer import RunRecord
from robo_rl.runs.run import Run, find_run

PPO: dict[str, Any] = {
    "name": "waited-for",
    "environment": {"name": "gymnasium/InvertedPendulum-v5"},
    "algorithm": "ppo",
    "learner": {
        "num_envs": 4,
        "steps_per_env": 8,
        "batch_size": 8,
        "epochs": 2,
        "network": {"hidden": [8]},
        "lr_schedule": "linear",
    },
    "steps": 160,
    "log_every": 32,
    "checkpoint_every": 64,
    "evaluation": {"episodes": 1, "every": 64, "episodes_during": 1, "videos": 0},
}
RLPD: dict[str, Any] = {
    "name": "rushing",
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"action_repeat": 3, "max_steps": 15}},
    "algorithm": "rlpd",
    "learner": {
        "network": {"hidden": [8]},
        "batch_size": 8,
        "replay": {"learning_starts": 20},
        "critics": 2,
        "updates_per_step": 2,
    },
    "demonstrations": {"episodes": 2},
    "steps": 230,
    "log_every": 40,
    "checkpoint_every": 50,
    "evaluation": {"episodes": 1, "videos": 0},
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[[dict[str, Any]], str]:
    def write(recipe: dict[str, Any]) -> str:
        path = tmp_path / f"{recipe['name']}.yaml"
        path.write_text(yaml.safe_dump(recipe))
        return str(path)

    return write


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectors without processes, which take seconds to start."""
    monkeypatch.setattr(collecting, "engine_of", lambda run, settings: InProcessEngine(collector_of))


def learnt(run: Run, step: int) -> dict[str, bytes]:
    state = load_file(run.path / "checkpoints" / f"{step:010d}" / "learner.safetensors")
    return {name: value.tobytes() for name, value in state.items()}


@pytest.mark.slow
def test_killed_collector_run_resumes_bit_for_bit(
    written: Any, tmp_path: Path, in_this_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = written(PPO)
    assert main.dispatch(["train", recipe, "--collectors", "4", "--out", str(tmp_path / "whole")]) == 0
    script = Path(__file__).with_name("collect_and_die.py")
    died = subprocess.run([sys.executable, script, recipe, tmp_path / "cut", "96"], timeout=280, check=False)
    assert died.returncode == -signal.SIGKILL, "two processes collected for it"
    cut, whole = find_run("latest", tmp_path / "cut"), find_run("latest", tmp_path / "whole")
    assert main.dispatch(["resume", str(cut.path), "--ray", "here"]) == 0
    assert "resumed at step 64, exact" in capsys.readouterr().out
    assert learnt(cut, 160) == learnt(whole, 160)
    for run in (cut, whole):
        assert [line["step"] for line in run.metrics()] == [32, 64, 96, 128, 160]
        assert run.metrics()[-1]["collect/lost"] == 0
        assert json.loads((run.path / "evaluation.json").read_text())["returns"]
    assert cut.description["collectors"]["count"] == 2


@pytest.mark.slow
def test_off_policy_uses_every_step_after_interruption(
    written: Any, tmp_path: Path, in_this_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = RunRecord.on_step

    def interrupted(self: RunRecord, step: int, training: Any) -> None:
        if step == 71:
            signal.raise_signal(signal.SIGINT)
        original(self, step, training)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RunRecord, "on_step", interrupted)
        main.dispatch(["train", written(RLPD), "--collectors", "2", "--out", str(tmp_path)])
    run = find_run("latest", tmp_path)
    assert run.load().step == 71
    assert main.dispatch(["resume", str(run.path)]) == 0
    parts = run.load().parts
    assert parts["training"]["step"] == 230 == int(np.sum(parts["replay"]["rows"]["starts"]))
    assert parts["learner"]["updates"] == 230 - 20 + 1
    assert parts["training"]["births"] == 4
    logged = [line for line in run.metrics() if "collect/staleness" in line]
    assert logged and max(line["collect/stalest"] for line in logged) <= 4 * 64 + 10


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learner": {"num_envs": 6, "steps_per_env": 8, "batch_size": 8}}, "a divisor of learner.num_envs"),
        ({"algorithm": "bc", "learner": {}}, "The learner bc cannot be trained with collectors"),
        ({"algorithm": "sb3-ppo", "learner": {}}, "The learner sb3-ppo cannot be trained with collectors"),
        ({"algorithm": "iql", "learner": {}}, "The learner iql cannot be trained with collectors"),
        ({"environment": {"name": "robot:http://127.0.0.1:5000"}}, "an environment at an address"),
        ({"record_episodes": True}, "record_episodes"),
        ({"environment": {"name": "carla/Ring-v0", "arguments": {"host": "h"}}}, "an environment at an address"),
        ({"initial": {"run": "latest"}}, "initial.run"),
        ({"learner_process": "on"}, "learner_process: on"),
        ({"human": {"kind": "perfect"}}, "human.kind"),
        ({"reward": {"name": "vlm-rm"}}, "reward.name"),
    ],
)
def test_what_collectors_cannot_do_is_refused(changes: dict[str, Any], words: str) -> None:
    recipe = parse_recipe({**PPO, **changes}, source="a test")
    with pytest.raises(InvalidSetting, match=words):
        require_collectable(recipe, CollectingSettings(4))


def test_a_run_that_acts_itself_has_no_collectors_to_move(written: Any, tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    assert collecting.settings_of(run) is None
    with pytest.raises(InvalidSetting, match="has no collectors"):
        collecting.settings_of(run, "auto")
    run.describe(collectors=CollectingSettings(3).to_json())
    assert collecting.settings_of(run, "10.0.0.1:6379") == CollectingSettings(3, "10.0.0.1:6379") == collecting.settings_of(run)
    assert collecting.settings_of(run, "here") == CollectingSettings(3)


def test_seeds_and_collectors_are_not_combined(written: Any) -> None:
    with pytest.raises(InvalidSetting, match="--seeds 0-1 --collectors 2"):
        main.dispatch(["train", written(PPO), "--seeds", "0-1", "--collectors", "2"])


def test_an_actor_of_a_cluster_answers_as_a_process_does() -> None:
    recipe = parse_recipe(PPO, source="a test")
    job = {"recipe": to_yaml(recipe), "index": 1, "count": 2, "birth": 1}
    remote, here = collector_of(packed(job)), collector_of(packed(job))
    parameters = packed(recipe.learner.build(find_spec(recipe), 7).policy.parameters())
    here.load_parameters(unpacked(parameters))
    request = {"do": "rollout", "step": 0, "steps": 8, "version": 0}
    assert remote.answer(packed(request), parameters) == packed(here.handle(request))


def find_spec(recipe: Any) -> Any:
    from robo_app.recipes.environments import spec_of

    return spec_of(recipe)
