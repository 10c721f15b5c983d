"""SubPO: gains of coverage by hand, their sum, and learning from them."""

from __future__ import annotations

import numpy as np
import pytest

from factories import axes, make_episode, make_spec
from robo_papers.subpo.reward import CoverageReward
from robo_papers.subpo.study import covered_share
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.spec.environment import ArraySpec

SPEC = make_spec("a/Plane", ArraySpec("place", (2,)), action=axes("dx"))


def episode(places):
    return make_episode({"place": np.array(places, np.float32)}, actions=np.zeros((len(places) - 1, 1), np.float32))


def test_gains_by_hand():
    walk = episode([[0.5, 0.5], [1.5, 0.5], [0.5, 0.6], [-0.5, 0.5], [1.2, 0.2]])
    assert CoverageReward(entry="place", cell=1.0).label(walk).values.tolist() == [1, 0, 1, 0]
    wide = CoverageReward(entry="place", cell=1.0, radius=1.0, weight_each=0.5)
    assert len(wide.covered(np.array([0.5, 0.5]))) == 5  # its own cell and the four beside it
    assert wide.label(walk).values.tolist() == [1.5, 0, 1.5, 0]


def test_rewards_sum_to_the_task():
    """All cells within reach of an episode, less those of its first observation."""
    places = np.random.default_rng(0).uniform(-2, 2, (60, 2))
    reward = CoverageReward(entry="place", cell=0.3, radius=0.5)
    paid = reward.label(episode(places)).values.sum()
    cells = [set(reward.covered(np.float64(np.float32(each)))) for each in places]
    assert paid == len(set().union(*cells)) - len(cells[0])
    shuffled = np.concatenate([places[:1], np.random.default_rng(1).permutation(places[1:])])
    assert reward.label(episode(shuffled)).values.sum() == paid  # a function of the set


def test_episodes_begin_with_nothing_seen_and_resumes_go_on():
    walk = episode([[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [1.5, 0.5]])
    reward, place = CoverageReward(entry="place", cell=1.0), Place(SPEC, 1.0)
    first = reward.score_steps(Steps.of(walk), place).labels.values
    assert first.tolist() == reward.score_steps(Steps.of(walk), place).labels.values.tolist() == [1, 1, 0]
    steps = Steps.of(walk)
    running, resumed = Place(SPEC, 1.0), Place(SPEC, 1.0)
    half = [np.arange(3) < 2, np.arange(3) >= 2]
    reward.score_steps(taken(steps, half[0]), running)
    resumed.memory.load_state_dict(running.memory.state_dict())
    assert reward.score_steps(taken(steps, half[1]), resumed).labels.values.tolist() == [0]
    assert reward.score_steps(taken(steps, half[1]), Place(SPEC, 1.0)).labels.values.tolist() == [1]


def taken(steps, mask):
    arrays = {name: getattr(steps, name)[mask] for name in ("index", "number", "terminated", "truncated", "rewards", "actions")}
    sides = {side: {name: each[mask] for name, each in getattr(steps, side).items()} for side in ("before", "after")}
    return Steps(**arrays, **sides, instructions=[None] * int(mask.sum()))


def test_bad_settings_have_one_clear_error():
    walk = episode([[0.0, 0.0], [1.0, 0.0]])
    with pytest.raises(UnknownName, match="set entry"):
        CoverageReward().label(walk)
    with pytest.raises(InvalidSetting, match="too many cells"):
        CoverageReward(entry="place", cell=0.01, radius=1.0).label(walk)
    for settings in ({"cell": 0.0}, {"radius": -1.0}, {"weight_each": float("nan")}):
        with pytest.raises(InvalidSetting):
            CoverageReward(entry="place", **settings)


@pytest.mark.slow
def test_gains_teach_more_than_sums_or_places():
    gains, everything, places = (covered_share(kind, 0) for kind in ("gains", "all", "places"))
    assert gains > everything + 0.05 and everything > places
