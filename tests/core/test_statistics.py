import numpy as np
import pytest
from scipy import stats

from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.statistics import (
    Interval,
    difference,
    interquartile_mean,
    mcnemar,
    newcombe,
    paired_comparison,
    pooled_intervals,
    rate_error,
    stratified_bootstrap,
    wilson,
)


@pytest.mark.parametrize("n", [1, 7, 50])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_wilson_agrees_with_scipy(n, confidence):
    for successes in range(n + 1):
        expected = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
        interval = wilson(successes, n, confidence)
        np.testing.assert_allclose([interval.low, interval.high], [expected.low, expected.high], atol=1e-12)
        assert 0.0 <= interval.low <= interval.estimate <= interval.high <= 1.0


@pytest.mark.parametrize("arguments", [(3, 2), (-1, 2), (0, 0)])
def test_wilson_refuses_impossible_counts(arguments):
    with pytest.raises(InvalidSetting, match=r"A success rate needs 0 <= successes <= n and n >= 1\.\n  got:     -?\d of \d"):
        wilson(*arguments)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 9, 50])
def test_the_interquartile_mean_agrees_with_scipy(n):
    values = np.random.default_rng(n).normal(size=(3, n))
    np.testing.assert_allclose(interquartile_mean(values), stats.trim_mean(values, 0.25, axis=1), rtol=1e-12)


def test_the_bootstrap_of_one_stratum_agrees_with_scipy():
    values = np.random.default_rng(1).exponential(size=40)
    expected = stats.bootstrap(
        (values,), interquartile_mean, method="percentile", n_resamples=9999, rng=np.random.default_rng(5)
    )
    interval = stratified_bootstrap([values], resamples=9999)
    assert interval.estimate == interquartile_mean(values)
    np.testing.assert_allclose(
        [interval.low, interval.high], [expected.confidence_interval.low, expected.confidence_interval.high], atol=0.02
    )


def test_the_stratified_bootstrap_agrees_with_rliable():
    # Figures of rliable 1.2.0, get_interval_estimates with 20000 repetitions, on the same scores (runs, tasks); it is no
    # dependency of the tests because it does not run with arch 8.
    generator = np.random.default_rng(0)
    tasks = [generator.normal(0, 1, 10), generator.normal(5, 2, 10), generator.normal(1, 0.5, 10)]
    iqm, mean = stratified_bootstrap(tasks, resamples=20000), stratified_bootstrap(tasks, np.mean, resamples=20000)
    np.testing.assert_allclose([iqm.estimate, iqm.low, iqm.high], [1.207, 0.808, 1.589], atol=0.02)
    np.testing.assert_allclose([mean.estimate, mean.low, mean.high], [1.728, 1.322, 2.121], atol=0.02)
    pooled = stratified_bootstrap([np.concatenate(tasks)], np.mean)
    assert pooled.high - pooled.low > 1.5 * (mean.high - mean.low)  # strata keep the spread between tasks out


def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says():
    generator = np.random.default_rng(3)
    intervals = [stratified_bootstrap([generator.normal(size=50)], np.mean, resamples=400) for _ in range(300)]
    covered = np.mean([i.low <= 0.0 <= i.high for i in intervals])
    assert 0.89 <= covered <= 0.98


def test_constant_values_have_no_interval_and_none_is_error():
    interval = stratified_bootstrap([[3.0]])
    assert interval.estimate == 3.0 and np.isnan(interval.low)
    assert str(interval) == "3 [no interval]"
    assert np.isnan(stratified_bootstrap([[2.0] * 50]).high) and np.isnan(stratified_bootstrap([[1.0] * 47 + [0.0] * 3]).low)
    with pytest.raises(InvalidSetting, match="values in every stratum"):
        stratified_bootstrap([[1.0], []])


def test_an_interval_formats_its_three_numbers_alike():
    interval = Interval(0.923, 0.811, 0.968)
    assert f"{interval:.0%}" == "92% [81%, 97%]" and str(interval) == "0.923 [0.811, 0.968]"


def test_mcnemar_counts_only_the_seeds_that_differ():
    first, second = np.zeros(20, bool), np.zeros(20, bool)
    second[:8], first[8] = True, True
    assert mcnemar(first, second) == pytest.approx(stats.binomtest(1, 9).pvalue)
    assert mcnemar(first, first) == 1.0


def test_newcombes_interval_covers_a_paired_difference_of_rates():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        hardness = generator.random(40)  # one per start, shared by both: their outcomes correlate
        first, second = hardness + 0.2 * generator.random(40) < 0.7, hardness + 0.2 * generator.random(40) < 0.9
        interval = newcombe(first, second)
        hits += interval.low <= 0.2 <= interval.high
    assert 0.93 <= hits / 600 <= 0.995


def test_newcombes_interval_is_narrower_where_outcomes_agree():
    first = np.arange(50) < 25
    agreeing, unrelated = np.arange(50) < 35, np.roll(np.arange(50) < 35, 33)  # the latter: 18 of 25 and 17 of 25 won
    with_agreement, without = newcombe(first, agreeing), newcombe(first, unrelated)
    assert with_agreement.estimate == without.estimate == pytest.approx(0.2)
    # Without correlation it is Newcombe's interval for two independent rates: squares of the Wilson margins add up.
    p, q = wilson(35, 50), wilson(25, 50)
    expected = [0.2 - np.hypot(p.estimate - p.low, q.high - 0.5), 0.2 + np.hypot(p.high - p.estimate, 0.5 - q.low)]
    np.testing.assert_allclose([without.low, without.high], expected, atol=1e-12)
    assert with_agreement.high - with_agreement.low < 0.8 * (without.high - without.low)


def test_two_perfect_policies_do_not_differ_for_certain():
    for runs in (1, 3):
        comparison = paired_comparison(np.ones((runs, 50)), np.ones((runs, 50)))
        assert comparison.mean_difference.estimate == 0.0
        assert comparison.mean_difference.high == -comparison.mean_difference.low == pytest.approx(0.0713, abs=1e-3)
        assert not comparison.is_resolved


def test_pairing_finds_small_difference_between_uneven_starts():
    generator = np.random.default_rng(0)
    first = generator.normal(0, 100, size=50)  # starts differ by far more than the policies do
    comparison = paired_comparison(first, first + 1 + generator.normal(0, 0.5, size=50))
    assert comparison.is_resolved and comparison.mean_difference.estimate == pytest.approx(1.0, abs=0.2)
    assert comparison.median_difference.low > 0.5 and comparison.improvement.estimate > 0.9
    assert comparison.p_value is None and comparison.runs == (1, 1)
    assert "on 50 shared seeds, 1 and 1 run(s)" in str(comparison)


def test_training_variance_widens_interval_of_several_runs():
    generator = np.random.default_rng(0)
    same_level = paired_comparison(generator.normal(0, 1, (4, 50)), generator.normal(1, 1, (4, 50)))
    levels = generator.normal(0, 2, (4, 1))
    uneven = paired_comparison(generator.normal(0, 1, (4, 50)), generator.normal(1, 1, (4, 50)) + levels)
    width = [c.mean_difference.high - c.mean_difference.low for c in (same_level, uneven)]
    assert width[1] > 2 * width[0]


def test_the_probability_of_improvement_counts_ties_half():
    comparison = paired_comparison([0, 0, 1, 1], [1, 0, 1, 0])
    assert comparison.improvement.estimate == 0.5
    assert paired_comparison([0, 0], [1, 2]).improvement.estimate == 1.0


def test_unequal_seeds_cannot_be_paired():
    with pytest.raises(InvalidSetting, match=r"Both sides need the same evaluation seeds\.\n  got:     3 and 2 episodes"):
        paired_comparison([1, 2, 3], [1, 2])


def test_a_pooled_interval_learns_the_deviation_from_all_groups():
    first, second = pooled_intervals([[0.0, 2.0], [10.0, 10.0]])
    half = 4.302652729696 * 1.0 / 2**0.5  # two degrees of freedom; (1 + 1 + 0 + 0) / 2 = 1
    assert (second.low, second.high) == pytest.approx((10 - half, 10 + half)), "though its own values are alike"
    own = 4.302652729696 * 2**0.5 / 2**0.5  # its own deviation is the larger one
    assert (first.low, first.high) == pytest.approx((1 - own, 1 + own))
    (floor,) = pooled_intervals([[1.0, 1.0]], [0.5])
    assert floor.high - 1.0 == pytest.approx(12.7062047364 * 0.5 / 2**0.5)


def test_a_pooled_interval_without_knowledge_has_no_bounds():
    for groups in ([[1.0], [2.0]], [[1.0, 1.0], [2.0, 2.0]]):
        assert all(np.isnan([each.low, each.high]).all() for each in pooled_intervals(groups))


def test_pooled_intervals_cover_as_often_as_they_say():
    draws = np.random.default_rng(0).normal(size=(400, 6, 3))
    found = [each for groups in draws for each in pooled_intervals(list(groups), confidence=0.9)]
    assert np.mean([each.low <= 0.0 <= each.high for each in found]) > 0.89


def test_the_error_of_a_rate_is_above_zero_at_its_ends():
    assert [rate_error(0, 20), rate_error(20, 20)] == pytest.approx([(2 / 24 * 22 / 24 / 24) ** 0.5] * 2)


def test_difference_of_rates_is_newcombes():
    found = difference(wilson(56, 70), wilson(48, 80))  # example (a) of Newcombe 1998, Statistics in Medicine 17, method 10
    assert [found.estimate, found.low, found.high] == pytest.approx([0.2, 0.0524, 0.3339], abs=1e-4)
    assert np.isnan(difference(Interval(1.0, np.nan, np.nan), wilson(1, 2)).low)
