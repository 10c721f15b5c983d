"""Collectors as actors of a small Ray cluster of this machine: the same bits as without it, whoever is killed."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file

from robo_app.training import collecting
from robo_app.training.collector import collector_of
from robo_cli import main
from robo_rl.cluster import head_monitor
from robo_rl.cluster.local import InProcessEngine
from robo_rl.errors import ClusterUnavailable
from robo_rl.runs.observer import RunRecord
from robo_rl.runs.run import Run, find_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
PENDULUM = {"name": "gymnasium/InvertedPendulum-v5"}
USUAL: dict[str, Any] = {"environment": PENDULUM, "checkpoint_every": 64, "evaluation": {"episodes": 1, "videos": 0}}
PPO = {"num_envs": 4, "steps_per_env": 8, "batch_size": 8, "epochs": 2, "network": {"hidden": [8]}}
SAC = {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 20}}


@pytest.fixture(autouse=True)
def where_ray_is_installed() -> None:
    if importlib.util.find_spec("ray") is None:  # loaded here, it would keep the environment that it finds
        pytest.skip("Ray is not installed")


def written(folder: Path, algorithm: str, learner: Any, steps: int) -> str:
    path = folder / f"{algorithm}.yaml"
    path.write_text(yaml.safe_dump({**USUAL, "algorithm": algorithm, "learner": learner, "steps": steps}))
    return str(path)


def train(recipe: str, out: Path) -> Run:
    assert main.dispatch(["train", recipe, "--collectors", "2", "--ray", "auto", "--out", str(out)]) == 0
    return find_run("latest", out)


def learnt(run: Run, step: int) -> dict[str, bytes]:
    state = load_file(run.path / "checkpoints" / f"{step:010d}" / "learner.safetensors")
    return {name: value.tobytes() for name, value in state.items()}


def descendants(name: str) -> list[int]:
    """Returns the processes below this one whose command begins with a word that ends so."""
    stats = {int(path.parent.name): path.read_text() for path in Path("/proc").glob("[0-9]*/stat")}
    parents = {pid: int(stat.rpartition(")")[2].split()[1]) for pid, stat in stats.items()}
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode() for pid in found}
    return [pid for pid, word in words.items() if word.endswith(name) or word.startswith(name)]


def at(monkeypatch: pytest.MonkeyPatch, last: int, deed: Callable[[], Any]) -> None:
    original = RunRecord.on_step

    def on_step(self: RunRecord, step: int, training: Any) -> None:
        original(self, step, training)
        if step == last:
            deed()

    monkeypatch.setattr(RunRecord, "on_step", on_step)


def kill(name: str) -> None:
    found = descendants(name)
    assert found, f"no {name} runs"
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def test_ppo_learns_the_same_bits_on_a_cluster_as_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = written(tmp_path, "ppo", PPO, 128)
    there = train(recipe, tmp_path / "there")
    monkeypatch.setattr(collecting, "engine_of", lambda run, settings: InProcessEngine(collector_of))
    here = train(recipe, tmp_path / "here")
    assert learnt(here, 128) == learnt(there, 128)
    assert not descendants("gcs_server") and not descendants("ray::")


def test_killed_actors_are_replaced_while_learning_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at(monkeypatch, 70, lambda: kill("ray::Host"))
    run = train(written(tmp_path, "sac", SAC, 300), tmp_path)
    parts = run.load().parts
    assert parts["training"]["step"] == 300 == int(parts["replay"]["rows"]["starts"].sum())
    assert parts["learner"]["updates"] == 300 - 20 + 1 and parts["training"]["births"] == 4
    assert capsys.readouterr().out.count("is replaced; its environments begin new episodes") == 2


def test_killed_head_is_reported_and_run_resumes_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(head_monitor, "POLL_PERIOD", 0.01)
    with (
        monkeypatch.context() as patched,
        pytest.raises(ClusterUnavailable, match=r"is gone.\n.*refused\n.*\n.*robo-rl resume"),
    ):
        at(patched, 64, lambda: kill("gcs_server"))
        train(written(tmp_path, "ppo", PPO, 160), tmp_path)
    assert main.dispatch(["resume", "latest", "--runs", str(tmp_path)]) == 0
    assert "resumed at step 64, exact" in capsys.readouterr().out
    assert find_run("latest", tmp_path).load().step == 160
