"""A reward from comparisons: the loss by hand, what noise does to it, and that the order of a pair means what it says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.preferences.preference_reward import (
    BradleyTerryConfig,
    Pairs,
    RewardEnsemble,
    accuracy,
    fit,
    logits_of,
    loss,
)

QUICK = BradleyTerryConfig(hidden=(64, 64), epochs=12)


def states(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 4)).astype(np.float32)


def worth(states: np.ndarray) -> np.ndarray:
    """Nearness of a point to a goal, both in the state."""
    return -np.linalg.norm(states[..., :2] - states[..., 2:], axis=-1)


def comparisons(count: int, mistakes: float, *, length: int = 1, seed: int = 0) -> Pairs:
    random = np.random.default_rng(seed)
    first, second = (states(count * length, seed + index).reshape(count, length, 4) for index in (1, 2))
    right = worth(second).sum(1) > worth(first).sum(1)
    return Pairs(first, second, (right ^ (random.random(count) < mistakes)).astype(np.float32))


def correlation(pairs: Pairs, config: BradleyTerryConfig = QUICK) -> float:
    reward, seen = fit(pairs, states(2000, 7), config).reward, states(1000, 8)
    return float(spearmanr(reward.rewards(seen)[0], worth(seen)).statistic)


def test_the_loss_is_that_of_the_paper():
    reward = RewardEnsemble(4, BradleyTerryConfig(members=2, hidden=(8,)))
    pairs = comparisons(5, 0.3, length=3)
    labels = torch.tensor([0.0, 1.0, 0.5, 1.0, 0.0])
    first, second = torch.from_numpy(pairs.first), torch.from_numpy(pairs.second)
    total = 0.0
    for member in range(2):
        for pair in range(5):
            sums = [reward(part[pair])[member].sum() for part in (first, second)]
            better = torch.exp(sums[1]) / (torch.exp(sums[0]) + torch.exp(sums[1]))
            total = total - (labels[pair] * better.log() + (1 - labels[pair]) * (1 - better).log()) / 5
    torch.testing.assert_close(loss(reward, first, second, labels), total)


def test_swapping_the_segments_turns_the_sign():
    reward = RewardEnsemble(4, BradleyTerryConfig(hidden=(8,)))
    pairs = [torch.from_numpy(part) for part in comparisons(6, 0.0)[:2]]
    torch.testing.assert_close(logits_of(reward, *pairs), -logits_of(reward, *reversed(pairs)))


@pytest.mark.slow
def test_noise_is_tolerated_and_inversion_inverts_reward():
    assert correlation(comparisons(2000, 0.2)) >= 0.95
    assert correlation(comparisons(2000, 0.8)) <= -0.9


@pytest.mark.slow
def test_nothing_is_learned_from_coins():
    """What a network makes of coins leans one way or the other by chance, so several throws are looked at together."""
    assert abs(np.mean([correlation(comparisons(1000, 0.5, seed=seed)) for seed in (0, 10, 20)])) < 0.3
    report = fit(comparisons(1000, 0.5, seed=30), states(100, 7), replace(QUICK, epochs=2, held_out=0.5)).report
    assert abs(report["held_out"] - 0.5) < 0.1


@pytest.mark.slow
def test_sums_over_segments_teach_the_reward_of_a_step():
    assert correlation(comparisons(1500, 0.0, length=4)) >= 0.95


@pytest.mark.slow
def test_reward_has_data_scale_and_doubts_outside():
    seen = states(2000, 7)
    fitted = fit(comparisons(1000, 0.1), seen, QUICK)
    rewards, doubt = fitted.reward.rewards(seen)
    assert rewards.mean() == pytest.approx(0, abs=1e-3) and rewards.std() == pytest.approx(1, abs=1e-2)
    assert fitted.reward.rewards(seen * 20)[1].mean() > 3 * doubt.mean()
    assert 0.75 < fitted.report["held_out"] < 1 and fitted.report["pairs"] == 1000
    assert (fitted.report["train_decided"], fitted.report["held_out_decided"]) == (900, 100)


def test_the_same_seed_gives_the_same_reward():
    one, other, third = (
        fit(comparisons(60, 0.0), states(50, 1), BradleyTerryConfig(hidden=(8,), epochs=2, seed=seed)).reward
        for seed in (0, 0, 1)
    )
    seen = states(20, 3)
    np.testing.assert_array_equal(one.rewards(seen)[0], other.rewards(seen)[0])
    assert not np.array_equal(one.rewards(seen)[0], third.rewards(seen)[0])


def test_ties_count_in_loss_but_not_in_accuracy():
    reward = RewardEnsemble(4, BradleyTerryConfig(hidden=(8,)))
    first, second = (torch.from_numpy(part) for part in comparisons(4, 0.0)[:2])
    better = (logits_of(reward, first, second).mean(0) > 0).float()
    assert accuracy(reward, first, second, better) == 1
    better[0] = 0.5
    assert accuracy(reward, first, second, better) == 1
    assert np.isnan(accuracy(reward, first, second, torch.full((4,), 0.5)))


@pytest.mark.parametrize("wrong", [{"members": 0}, {"epochs": 0}, {"held_out": 1.0}, {"hidden": ()}, {"lr": 0.0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidSetting, match=f"'{next(iter(wrong))}' is out of range"):
        BradleyTerryConfig(**wrong)


def test_what_is_not_finite_is_left_out():
    pairs, seen = comparisons(200, 0.0), states(300, 7)
    clean = fit(Pairs(*(part[1:] for part in pairs)), seen[1:], QUICK)
    pairs.first[0, 0, 0] = seen[0, 2] = np.nan
    fitted = fit(pairs, seen, QUICK)
    assert fitted.report == clean.report and fitted.report["pairs"] == 199
    np.testing.assert_array_equal(fitted.reward.rewards(seen[1:])[0], clean.reward.rewards(seen[1:])[0])


def test_one_comparison_is_too_few():
    with pytest.raises(InvalidSetting, match="too few comparisons"):
        fit(comparisons(1, 0.0), states(5, 0), QUICK)
