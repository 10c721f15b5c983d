"""A run with constraint costs is judged by the limits that its learner was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import robo_rl
from factories import rest_slow
from robo_rl.evaluation.evaluation import Evaluation


def recipe(**learner: Any) -> dict[str, Any]:
    return {
        "environment": {"name": "hazards/Point-v0"},
        "algorithm": "sac-lagrangian",
        "learner": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 10}, **learner},
        "steps": 40,
        "threads": 1,
        "evaluation": {"episodes": 2, "videos": 0, "every": 20, "episodes_during": 1},
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "limit"), rest_slow([({"limits": {"hazard": 0}}, 0.0), ({"limits": {"hazard": "2"}}, 2.0), ({}, 3.0)])
)
def test_run_is_judged_by_its_own_limits(learner: dict[str, Any], limit: float, tmp_path: Path) -> None:
    run = robo_rl.train(recipe(**learner), out=tmp_path)
    during = [Evaluation.read(file) for file in run.evaluation_files.values()]
    for evaluation in (Evaluation.read(run.path / "evaluation.json"), *during, run.evaluate(1)):
        assert {measure.name: measure.limit for measure in evaluation.measures}["cost_hazard"] == limit
        assert f"above the limit of {limit:g} in" in str(evaluation)
    assert during
