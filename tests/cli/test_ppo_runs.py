"""PPO from the command line: a run interrupted inside a rollout goes on exactly; the log stands at the steps asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from robo_cli import main
from robo_rl.errors import UnknownName
from robo_rl.runs.run import find_run

RECIPE = """
environment: {name: gymnasium/InvertedPendulum-v5}
algorithm: ppo
learner:
  {num_envs: 3, steps_per_env: 16, batch_size: 16, epochs: 2, network: {hidden: [8], distribution: beta}, lr_schedule: linear}
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_robustness_is_measured_kept_and_shown(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.dispatch(["train", str(recipe), "--out", str(tmp_path)]) == 0
    run, plan = find_run("latest", tmp_path), tmp_path / "mine.yaml"
    plan.write_text("grids: [{mass: [0.5, 1], gravity: [0, 1]}, {latency: [0, 1]}]")
    words = ["evaluate", str(run.path), "--perturb", str(plan), "--episodes", "2"]
    capsys.readouterr()
    assert "--perturb physics" in run.report.read_text()
    assert main.dispatch(words) == 0
    assert 'href="robustness.html"' in run.report.read_text()
    said = capsys.readouterr()
    assert "mass (down), gravity (across)" in said.out and "worst " in said.out and "5 of 5" in said.err
    kept = {path: path.stat().st_mtime_ns for path in (run.path / "robustness").glob("????????/*.json")}
    page = (run.path / "robustness.html").read_text()
    assert len(kept) == 5 and "gravity=0" in page
    assert main.dispatch([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    cells = {name: cell["estimate"] for name, cell in found["cells"].items()}
    assert found["measure"] == "return" and cells["gravity=0"] > cells["nominal"]  # an untrained policy falls more slowly
    with pytest.raises(UnknownName, match="physics, timing"):
        main.dispatch(["evaluate", str(run.path), "--perturb", "wind"])
