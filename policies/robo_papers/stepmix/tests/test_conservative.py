"""StepMix and EpsMix: bounds by hand, mixtures at the threshold, no violation where optimism alone violates, resume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robo_papers.stepmix.learner import StepMixConfig
from robo_papers.stepmix.study import ALPHA, METHODS, train
from robo_papers.stepmix.tabular import EstimatedModel, Mixture
from robo_rl.conformance.learners import check_policy
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint

EPISODES = 1500


@pytest.fixture(scope="module")
def played():
    """Return name -> (training, exact values, value of the baseline) on the trap."""
    return {name: train("tabular/Trap-v0", config, EPISODES, seed=0) for name, config in METHODS.items()}


def violations(values, baseline):
    return sum(value < (1 - ALPHA) * baseline - 1e-9 for value in values)


@pytest.mark.parametrize("name", ["StepMix", "EpsMix"])
@pytest.mark.slow
def test_guarantee_holds_in_every_episode(played, name):
    training, values, baseline = played[name]
    assert violations(values, baseline) == 0
    assert values[-1] > baseline + 0.02, "it does not stay with the baseline"
    assert 0 < training.baseline_episodes < EPISODES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["UCB alone", "StepMix that trusts estimates", "StepMix with bounds of no width"])
def test_controls_violate(played, name):
    _, values, baseline = played[name]
    assert violations(values, baseline) >= 5


@pytest.mark.slow
def test_stepmix_regrets_less_than_epsmix(played):
    assert np.mean(played["StepMix"][1]) > np.mean(played["EpsMix"][1])


def test_simulation_values_are_exact():
    simulation = make_environment("tabular/Trap-v0").get_wrapper_attr("simulation")
    safe, better, trapped = (np.zeros((6, 7, 8)) for _ in range(3))
    safe[..., 0] = better[..., 1] = trapped[..., 2] = 1.0
    assert simulation.value(safe) == pytest.approx(3.6) and simulation.value(better) == pytest.approx(4.5)
    assert simulation.value(trapped) == pytest.approx(0.9 * sum(0.4**step for step in range(6)))


def test_bounds_by_hand():
    """One state, one action, two steps, nine visits that paid 3: r = 1/3, width w, bounds 2 r +- (2 w + w)."""
    model = EstimatedModel(1, 1, 2, 0.5)
    for number in range(9):
        model.add(0, 0, float(number < 3), 0)
    width = 0.5 * np.sqrt(np.log(2 * 1 * 2 * 10) / 18)
    policy = np.ones((2, 1, 1))
    assert model.bound(policy, upper=True) == pytest.approx(2 / 3 + 3 * width)
    assert model.bound(policy) == pytest.approx(max(1 / 3 - 2 * width + max(1 / 3 - width, 0), 0))
    assert model.optimistic()[1] == pytest.approx(2 / 3 + 3 * width)


def test_unvisited_actions_are_optimal_or_worthless():
    model = EstimatedModel(1, 2, 3, 0.2)
    for _ in range(100):
        model.add(0, 0, 0.0, 0)
    policy, value = model.optimistic()
    assert value == 3.0 and policy[0, 0].tolist() == [0.0, 1.0]
    assert model.bound(policy) == 0.0


class Known(EstimatedModel):
    """Bounds that the test chooses, by the number of optimistic steps."""

    def __init__(self, lower, upper_of_baseline):
        super().__init__(1, 2, 3, 0.0)
        self._lower, self._upper = lower, upper_of_baseline

    def optimistic(self):
        return np.tile([0.0, 1.0], (3, 1, 1)), 3.0

    def bound(self, policy, *, upper=False):
        return self._upper if upper else self._lower[int(policy[:, 0, 1].sum())]


BASELINE = np.tile([1.0, 0.0], (3, 1, 1))


def test_stepmix_mixes_neighbours_at_the_threshold():
    mixture = StepMixConfig(0.5).plan(Known([1.9, 1.5, 0.5, 0.0], 2.0), BASELINE)
    assert (mixture.first[:, 0, 1].tolist(), mixture.second[:, 0, 1].tolist()) == ([0, 0, 1], [0, 1, 1])
    assert mixture.share == pytest.approx(0.5)
    certain = StepMixConfig(0.5).plan(Known([1.9, 1.8, 1.7, 1.6], 2.0), BASELINE)
    assert certain.first[:, 0, 1].tolist() == [1, 1, 1] and certain.share == 0.0


def test_epsmix_mixes_at_the_threshold():
    mixture = StepMixConfig(0.5, mixture="eps").plan(Known([1.9, 1.5, 0.5, 0.1], 2.0), BASELINE)
    assert mixture.share == pytest.approx(0.5)
    assert StepMixConfig(0.5, mixture="eps").plan(Known([1.9, 1.8, 1.7, 1.6], 2.0), BASELINE).first[:, 0, 1].all()


@pytest.mark.parametrize("config", [StepMixConfig(0.5), StepMixConfig(0.5, mixture="eps")])
def test_baseline_is_played_while_its_own_bound_is_low(config):
    mixture = config.plan(Known([0.9, 0.0, 0.0, 0.0], 2.0), BASELINE)
    assert mixture.first is BASELINE and mixture.share == 0.0


def test_mixture_plays_one_policy_for_a_whole_episode():
    training = StepMixConfig().training(lambda: make_environment("tabular/Trap-v0"), steps=0, seed=0)
    other = training.baseline[..., [1, 0, *range(2, 8)]]
    training.policy.mixture = Mixture(training.baseline, other, 0.5)
    observed = {"state": np.eye(7, dtype=np.float32)[0], "time": np.eye(6, dtype=np.float32)[0]}
    actions = []
    for _ in range(40):
        training.policy.reset()
        actions.append({int(training.policy.act(observed)) for _ in range(5)})
    assert sorted(map(tuple, {frozenset(each) for each in actions})) == [(0,), (1,)]
    check_policy(training.policy, training.policy.environment_spec)


def test_resumed_training_goes_on_from_its_counts(tmp_path):
    training, _, _ = train("tabular/Trap-v0", StepMixConfig(), 50, seed=1)
    save_checkpoint(tmp_path / "state", Checkpoint(training.step, training.state_dict()))
    other = StepMixConfig().training(lambda: make_environment("tabular/Trap-v0"), steps=600, seed=1)
    other.load_state_dict(load_checkpoint(tmp_path / "state").parts)
    assert (other.step, other.episodes, other.resumed) == (300, 50, "warm")
    np.testing.assert_array_equal(other.model.visits, training.model.visits)
    assert other.policy.mixture.share == training.policy.mixture.share


def test_environment_without_a_table_is_refused():
    with pytest.raises(InvalidSetting, match="is no table"):
        StepMixConfig().training(lambda: make_environment("minigrid/MiniGrid-DoorKey-5x5-v0"), steps=10, seed=0)


@pytest.mark.parametrize("settings", [{"alpha": 2.0}, {"bonus_scale": -1.0}, {"mixture": "never"}])
def test_settings_out_of_range_are_named(settings):
    with pytest.raises(InvalidSetting, match=next(iter(settings))):
        replace(StepMixConfig(), **settings)


@pytest.mark.parametrize("horizon", [0, True, 2.5])
def test_horizon_out_of_range_is_named(horizon):
    with pytest.raises(InvalidSetting, match="horizon"):
        make_environment("tabular/Trap-v0", horizon=horizon)
