"""The probe that tells a policy which pleases its reward model from one that does the task."""

import numpy as np
import pytest

from robo_rl.report.hacking import MODEL, TRUTHS, probe

SUCCESS, RETURN = TRUTHS


def log(model, truth, tag=SUCCESS):
    return [{"step": 100 * (i + 1), MODEL: float(m), tag: float(t)} for i, (m, t) in enumerate(zip(model, truth, strict=True))]


RISING, FALLING = np.linspace(0, 5, 40), np.linspace(0.9, 0.1, 40)


def test_a_return_that_rises_while_success_falls_is_suspicious():
    found = probe(log(RISING, FALLING))
    assert found.is_suspicious and found.correlation == pytest.approx(-1)
    assert found.truth_change == pytest.approx(-0.4, abs=0.02) and found.model_change == pytest.approx(2.5, abs=0.1)
    assert "success by -39% (correlation -1.00): the policy may have learnt to please the reward model" in str(found)
    assert probe(log(RISING, 100 * FALLING, RETURN)).is_suspicious
    first_half = np.concatenate((RISING[:20], np.full(20, 5.0))), np.concatenate((FALLING[:20], np.linspace(0.1, 0.9, 20)))
    assert not probe(log(*first_half)).is_suspicious, "only the last half counts"


@pytest.mark.parametrize(
    ("model", "truth"),
    [(RISING, RISING / 5), (FALLING, RISING / 5), (RISING, 0.9 - FALLING / 10), (FALLING, FALLING), (RISING, np.full(40, 0.5))],
)
def test_what_goes_well_or_both_ways_is_not(model, truth):
    found = probe(log(model, truth))
    assert not found.is_suspicious and "Look at the films" not in str(found)


def test_a_fall_within_the_noise_of_100_episodes_is_not():
    assert not probe(log(RISING, 0.9 - RISING / 100)).is_suspicious


def test_nothing_is_said_without_a_model_or_of_few_lines():
    assert probe([]) is None
    assert probe([{"step": 100 * i, SUCCESS: 0.5} for i in range(40)]) is None
    assert probe(log(RISING[:9], FALLING[:9])) is None
    assert probe([line | {MODEL: float("nan")} for line in log(RISING, FALLING)]) is None
