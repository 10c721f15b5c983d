"""Learning curves as a picture: what is drawn is what the evaluations found."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from robo_app.display.learning_curves import Curve, _mean, curve, draw_curves
from robo_rl.evaluation.evaluation import Evaluation


def evaluated(
    run: Path, found: dict[int, list[float]], *, declared: bool = True, environment: str = "robo/ArmReach-v0"
) -> Path:
    """Writes evaluations of a run: step -> outcome of each episode."""
    (run / "evaluations").mkdir(parents=True)
    for step, values in found.items():
        count = len(values)
        one = Evaluation(
            environment=environment,
            spec_fingerprint="0",
            success_rule="it is there" if declared else None,
            seeds=tuple(range(count)),
            returns=tuple(10 * value for value in values),
            lengths=(1,) * count,
            successes=tuple(bool(value) for value in values) if declared else (None,) * count,
            stop_reasons=("goal",) * count,
            deterministic=True,
            duration=1.0,
        )
        (run / "evaluations" / f"{step:010}.json").write_text(json.dumps(one.to_json()))
    return run


def test_curve_is_success_or_return_if_undeclared(tmp_path):
    outcomes = {100: [0, 0, 1, 0], 200: [1, 1, 1, 0]}
    assert curve(evaluated(tmp_path / "a", outcomes)) == Curve("robo/ArmReach-v0", (100, 200), (0.25, 0.75), "success")
    assert curve(evaluated(tmp_path / "b", outcomes, declared=False)).values == pytest.approx((2.5, 7.5))
    (tmp_path / "a" / "evaluations" / "town-test.json").write_text("{}")  # an evaluation elsewhere
    assert curve(tmp_path / "a").steps == (100, 200)
    (tmp_path / "empty" / "evaluations").mkdir(parents=True)
    assert curve(tmp_path / "empty") is None
    assert draw_curves({"a": [tmp_path / "empty"]}, tmp_path / "none.png") is None


def test_the_mean_is_taken_where_every_seed_was_evaluated():
    seeds = [Curve("e", (1, 2, 3), (0.0, 0.5, 1.0), "success"), Curve("e", (1, 3), (1.0, 0.5), "success")]
    assert _mean(seeds) == ([1, 3], [0.5, 0.75])


@pytest.mark.slow
def test_each_environment_has_a_panel(tmp_path):
    reach = [evaluated(tmp_path / f"reach-{seed}", {100: [0, seed], 200: [1, seed]}) for seed in (0, 1)]
    pick = evaluated(tmp_path / "pick", {100: [0, 1], 200: [1, 1]}, environment="robo/ArmPick-v0")
    one = cv2.imread(str(draw_curves({"a": reach}, tmp_path / "one.png")))
    two = cv2.imread(str(draw_curves({"a": reach, "b": [pick]}, tmp_path / "two.png")))
    assert two.shape[1] == 2 * one.shape[1] and two.shape[0] == one.shape[0]
    assert one.std() > 5, "something is drawn"


def test_a_training_that_was_evaluated_once_is_a_point(tmp_path):
    once = evaluated(tmp_path / "once", {100: [0, 1]})
    picture = cv2.imread(str(draw_curves({"a": [once]}, tmp_path / "one.png")))
    middle = picture[100:200, 100:300].astype(int)  # of the only panel; the legend is above it
    assert (np.ptp(middle, axis=2) > 60).any(), "a point in colour"
