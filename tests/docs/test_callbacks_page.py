"""The trackers of docs/training/callbacks.md, run as they stand against the services' offline modes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import robo_rl

PAGE = (Path(__file__).parents[2] / "docs/training/callbacks.md").read_text()
RECIPE = {
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 20}},
    "algorithm": "bc",
    "learner": {"network": {"hidden": [8]}, "batch_size": 4},
    "demonstrations": {"episodes": 2},
    "log_every": 2,
    "evaluation": {"episodes": 1, "every": 0, "videos": 0},
}


def tracker(name: str, other: str) -> robo_rl.Callback:
    """Return the callback of the page; the other service need not be installed."""
    source = re.search(r"```python\n(# trackers\.py.*?)```", PAGE, re.DOTALL)
    assert source is not None
    scope: dict[str, type] = {}
    exec(source[1].replace(f"import {other}\n", ""), scope)
    return scope[name]()


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    robo_rl.train(RECIPE, steps=4, callbacks=[tracker("WandB", "mlflow")])
    [file] = Path("wandb").glob("offline-run-*/*.wandb")
    assert file.stat().st_size > 500


@pytest.mark.filterwarnings("ignore")
def test_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(Path("mlruns").absolute().as_uri())
    robo_rl.train(RECIPE, steps=4, callbacks=[tracker("MLflow", "wandb")])
    [values] = Path("mlruns").glob("*/*/metrics/time/fps")
    assert [int(line.split()[2]) for line in values.read_text().splitlines()] == [2, 4]
