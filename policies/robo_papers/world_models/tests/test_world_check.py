"""Checks of worlds: known errors, controls that must fail, policies that are overrated, words and JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from markupsafe import escape
from worlds.point import SPEC, episode, episodes, learned

from factories import make_spec
from robo_papers.world_models.check import PolicyTrial, check_world
from robo_papers.world_models.check_page import write_check
from robo_rl.errors import SpecMismatch
from robo_rl.spec.environment import ArraySpec

HELD_OUT = episodes(30, first=1000)


def finding(check, start):
    return next(each for each in check.verdict.findings if each.rule.startswith(start))


def changed(world, **buffers):
    """Returns a copy of a world with other values in buffers of its dynamics."""
    dynamics = type(world.dynamics)(2, 1, world.dynamics.config)
    dynamics.load_state_dict(world.dynamics.state_dict())
    with torch.no_grad():
        for name, value in buffers.items():
            getattr(dynamics, name).copy_(torch.as_tensor(value))
    return replace(world, dynamics=dynamics)


def test_good_world_is_trusted():
    found = check_world(learned(), HELD_OUT)
    assert found.saved[1].interval.estimate > 0.7 and found.saved[5].interval.estimate > 0.7
    assert found.by_actions.low > 0.3 and found.rewards.interval.estimate > 0.8
    assert found.verdict.color == "good", found.verdict.reasons
    json.dumps(found.to_json(), allow_nan=False)


def test_error_of_a_world_without_change_is_the_trivial_one():
    still = changed(learned(), scale=[0.0, 0.0, 1.0], centre=[0.0, 0.0, 0.0])
    found = check_world(still, HELD_OUT)
    for horizon in (1, 5, 20):
        assert found.errors[horizon].interval.estimate == pytest.approx(found.trivial[horizon].interval.estimate)
        assert found.saved[horizon].interval.estimate == pytest.approx(0.0, abs=1e-9)
    assert found.verdict.color == "bad" and "as good" in finding(found, "after 1 steps").text


def test_errors_by_hand():
    still = changed(learned(), scale=[0.0, 0.0, 1.0], centre=[0.1, 0.0, 0.0])
    one = [episode(3)]
    found = check_world(still, one, seed=0)
    states = one[0].observations["place"][:, 0].astype(float)
    # the goal never moves: one element counts
    squares = (np.diff(states) - 0.1) ** 2 / states[:-1].var()
    assert found.errors[1].interval.estimate <= np.sqrt(squares.max()) + 1e-6
    assert found.errors[1].interval.estimate >= np.sqrt(squares.min()) - 1e-6
    assert found.verdict.headline == "Cannot tell: too few episodes."


@pytest.mark.slow
def test_shuffled_actions_fail():
    found = check_world(learned(shuffles_actions=True), HELD_OUT)
    assert finding(found, "the right actions").outcome == "bad"
    assert found.verdict.color == "bad" and "does not answer to actions" in " ".join(found.verdict.reasons)


def test_overconfidence_is_told():
    sure = learned()
    dynamics = type(sure.dynamics)(2, 1, sure.dynamics.config)
    dynamics.load_state_dict(sure.dynamics.state_dict())
    with torch.no_grad():
        dynamics.elites[:] = dynamics.elites[0]
        dynamics.largest_log_variance.fill_(-12.0)
        dynamics.least_log_variance.fill_(-14.0)
    found = check_world(replace(sure, dynamics=dynamics), HELD_OUT)
    assert "too sure" in finding(found, "80%").text


def test_overrated_policy_is_bad():
    losing = [replace(each, success=False) for each in HELD_OUT]
    winning = [replace(each, success=True) for each in HELD_OUT]
    found = check_world(learned(), HELD_OUT, [PolicyTrial("mine", losing, winning)])
    assert found.verdict.color == "bad" and "promises more for mine" in " ".join(found.verdict.reasons)
    worse = check_world(learned(), HELD_OUT, [PolicyTrial("mine", winning, losing)])
    assert worse.verdict.color == "middling" and "does not let mine reach" in " ".join(worse.verdict.reasons)
    fair = check_world(learned(), HELD_OUT, [PolicyTrial("mine", losing, losing)])
    assert fair.verdict.color == "good"


def test_order_of_policies_and_distance_to_data():
    groups = [sorted(HELD_OUT, key=lambda each: each.undiscounted_return)[k::3] for k in range(3)]
    trials = [PolicyTrial(str(k), group, group) for k, group in enumerate(groups)]
    found = check_world(learned(), HELD_OUT, trials)
    assert found.order.interval.estimate == pytest.approx(1.0)
    assert all(each.near.outside < 0.2 for each in found.policies)
    far = [replace(each, actions=each.actions + 50) for each in HELD_OUT]
    told = check_world(learned(), HELD_OUT, [PolicyTrial("far", HELD_OUT, far)])
    assert told.policies[0].near.outside == 1.0 and "100% of the imagined steps of far" in " ".join(told.verdict.reasons)


@pytest.mark.slow
def test_calibration_and_what_foretells_errors():
    found = check_world(learned(), HELD_OUT)
    shares = [each.interval.estimate for each in found.coverage.values()]
    assert shares == sorted(shares) and shares[0] < 0.5 < shares[-1] <= 1.0
    assert found.near.outside < 0.2 and found.near.median < found.near.largest and found.near.beyond < 0.02
    # pushes twice as long as any that was recorded: farther away and less certain
    away = [replace(each, actions=each.actions * np.where(np.arange(len(each)) % 2, 3, 1)[:, None]) for each in HELD_OUT]
    told = check_world(learned(), [replace(each, actions=each.actions.astype(np.float32)) for each in away])
    assert told.by_distance.low > 0.3 and told.by_doubt.low > found.by_doubt.interval.estimate
    assert 0.2 < told.near.beyond < 0.5 and told.near.outside > 0.2


def test_page(tmp_path):
    facts = {"world": "worlds/<b>", "dataset": "data/other", "content": "0123456789abcdef0"}
    trials = [PolicyTrial(name, HELD_OUT[:10], HELD_OUT[:10]) for name in ("scripted", "mine & yours")]
    found = check_world(learned(), HELD_OUT, trials, facts=facts)
    text = write_check(found, learned(), tmp_path / "check.html").read_text()
    assert found.verdict.headline in text and "worlds/&lt;b&gt;" in text and "mine &amp; yours" in text
    assert all(str(escape(each.rule)) in text for each in found.verdict.findings) and "the compared episodes" in text
    assert text.count("<svg") == 2 and "<video" not in text and "http" not in text
    assert f"{found.saved[20].interval.estimate:.1%}" in text


def test_other_spec_is_refused():
    other = make_spec("point", ArraySpec("place", (2,)))
    with pytest.raises(SpecMismatch, match=r"Not this one(.|\n)*place(.|\n)*robo-rl world fit"):
        learned().require(other, "Not this one")
    learned().require(replace(SPEC, max_steps=5), "a time limit may differ")
