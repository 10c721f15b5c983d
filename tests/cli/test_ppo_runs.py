"""PPO from the command line: a run interrupted inside a rollout goes on exactly; the log stands at the steps asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from robo_cli import main
from robo_rl.runs.run import find_run

RECIPE = """
environment: {name: gymnasium/InvertedPendulum-v5}
algorithm: ppo
learner: {num_envs: 3, steps_per_env: 16, batch_size: 16, epochs: 2, hidden: [8], policy: beta, lr_schedule: linear}
steps: 240
log_every: 40
checkpoint_every: 96
evaluation: {episodes: 2, every: 100, episodes_during: 1, videos: 0}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "pendulum.yaml"
    path.write_text(RECIPE)
    return path


def parameters(folder: Path) -> dict[str, bytes]:
    state = load_file(folder / "checkpoints" / "0000000240" / "learner.safetensors")
    return {name: value.tobytes() for name, value in state.items()}


def test_ppo_resumes_exactly_inside_a_rollout(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], interrupted_at: Any
) -> None:
    assert main.dispatch(["train", str(recipe), "--out", str(tmp_path / "whole")]) == 0
    whole = find_run("latest", tmp_path / "whole")
    with interrupted_at(111):
        main.dispatch(["train", str(recipe), "--out", str(tmp_path / "cut")])
    cut = find_run("latest", tmp_path / "cut")
    assert main.dispatch(["resume", str(cut.path)]) == 0
    assert "resumed at step 111, exact" in capsys.readouterr().out
    assert parameters(cut.path) == parameters(whole.path)
    assert main.dispatch(["evaluate", str(cut.path), "--episodes", "2"]) == 0
    for run in (whole, cut):
        # three environments take three steps at once: a line comes with the first step that reaches a multiple of 40
        assert [line["step"] for line in run.metrics()] == [42, 81, 102, 120, 162, 201, 240]
        assert [line["step"] for line in run.metrics() if "eval/mean_reward" in line] == [102, 201]
    assert {"train/approx_kl", "time/simulate_s", "time/infer_s", "time/update_s"} <= set(whole.metrics()[-1])
