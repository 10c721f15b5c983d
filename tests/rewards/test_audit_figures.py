"""The figures of an audit: by hand, by brute force, and by what they must not depend on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from factories import make_episode
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.figures import (
    close_pair_accuracy,
    episode_correlation,
    mean_of,
    pair_accuracy,
    pooled,
    rank_correlations,
    ratio_of,
    step_correlation,
    unknown,
)
from robo_rl.evaluation.statistics import rank_correlation
from robo_rl.evaluation.verdicts import graded
from robo_rl.rewards.audit.evidence import (
    BLANK_PICTURES,
    HIDDEN_REWARDS,
    LOITERING,
    REVERSED,
    SHUFFLED_TIME,
    held_from,
    progress_of,
    wrong_text,
)
from robo_rl.rewards.score_statistics import (
    area_under_curve,
    by_rank,
    expected_calibration_error,
    reliability,
    roc_curve,
    value_order_correlation,
)
from robo_rl.types import Episode

NUMBERS = st.lists(st.integers(-5, 5), min_size=2, max_size=30)


def episode(steps: int = 5, success: bool | None = True) -> Episode:
    random = np.random.default_rng(steps)
    return make_episode(
        {
            "camera_front": random.integers(1, 255, (steps + 1, 4, 4, 3), dtype=np.uint8),
            "place": np.arange(steps + 1, dtype=np.float32)[:, None] * [[3, 4]],
            "goal": np.zeros((steps + 1, 2), np.float32),
        },
        rewards=np.arange(1, steps + 1, dtype=np.float32),
        terminated=True,
        success=success,
        seed=1,
        instruction="lift the red cube",
        reward_terms={"reach": np.full(steps, 0.5, np.float32)},
    )


# ---------------------------------------------------------------------------------------------- correlations
@settings(max_examples=40)
@given(NUMBERS, st.randoms(use_true_random=False))
def test_rank_correlation_is_spearmans(first, chance):
    second = [*first]
    chance.shuffle(second)
    found = rank_correlation(first, second)
    if len({*first}) == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(spearmanr(first, second).statistic)


def test_the_order_in_time_by_hand():
    rising, all_valid = np.arange(5.0), np.ones(5, np.bool_)
    assert value_order_correlation(rising, all_valid) == 1 and value_order_correlation(-rising, all_valid) == -1
    there_and_back = np.array([0.0, 1, 2, 1, 0])
    assert value_order_correlation(there_and_back, all_valid) == pytest.approx(0)
    # ranks 1 3 2 of times 1 2 3: 1 - 6 (0 + 1 + 1) / (3 * 8)
    gap = np.array([True, True, False, True])
    assert value_order_correlation(np.array([1.0, 3.0, 99.0, 2.0]), gap) == pytest.approx(0.5)
    for valid in (np.zeros(5, np.bool_), np.eye(5, dtype=np.bool_)[0]):
        assert np.isnan(value_order_correlation(rising, valid))
    assert np.isnan(value_order_correlation(np.full(5, 2.0), all_valid))


def test_what_is_missing_is_left_out_and_not_zero():
    scores = [np.array([np.nan, 1, 2]), np.array([np.nan, np.nan]), np.array([3, 4, 5.0])]
    truth = [np.array([9, 1, 2.0]), np.array([1, 2.0]), np.array([3, np.nan, 5])]
    steps = pooled(scores, truth)
    np.testing.assert_array_equal(steps.scores, [1, 2, 3, 5])
    np.testing.assert_array_equal(steps.episode, [0, 0, 1, 1])
    assert steps.episodes == 2 and steps.usual == 1.5
    found = step_correlation(steps)
    assert (found.interval.estimate, found.n, found.of) == (1, 4, "steps of 2 episodes")
    nothing = pooled([np.array([np.nan])], [np.array([1.0])])
    for figure in (step_correlation(nothing), pair_accuracy(nothing), close_pair_accuracy(nothing)):
        assert not figure.is_measured and figure.n == 0


def world(episodes: int, steps: int, noise: float, seed: int = 0):
    random = np.random.default_rng(seed)
    truth = [random.normal(size=steps).cumsum() for _ in range(episodes)]
    return [each + noise * random.normal(size=steps) for each in truth], truth


def test_pairs_are_judged_by_their_order():
    scores, truth = world(20, 30, 0.0)
    for sign, wanted in ((1, 1.0), (-1, 0.0), (0, 0.5)):
        steps = pooled([sign * each for each in scores], truth)
        assert pair_accuracy(steps).interval.estimate == close_pair_accuracy(steps).interval.estimate == wanted
        assert np.isnan(pair_accuracy(steps).interval.low)  # all resamples alike
    noisy = pooled(*world(20, 30, 1.0))
    assert 0.5 < close_pair_accuracy(noisy).low < close_pair_accuracy(noisy).high < pair_accuracy(noisy).low < 1
    coins = pooled(world(20, 30, 0.0, seed=5)[0], truth)
    assert pair_accuracy(coins).low < 0.5 < pair_accuracy(coins).high


def test_close_pairs_differ_by_about_one_step():
    """Within a step of each other the score is turned round, further apart it is right."""
    truth = [np.arange(50.0) for _ in range(3)]
    scores = [np.floor(each / 3) * 3 - 0.1 * (each % 3) for each in truth]
    steps = pooled(scores, truth)
    pairs = [(a, b) for a in range(50) for b in range(50) if 0.5 <= b - a <= 2]
    right = np.mean([scores[0][b] > scores[0][a] for a, b in pairs])
    assert close_pair_accuracy(steps).interval.estimate == pytest.approx(right, abs=0.03)
    assert pair_accuracy(steps).interval.estimate > 0.95
    sparse = pooled(scores, [(each == 49).astype(np.float64) for each in truth])
    assert pair_accuracy(sparse).is_measured and not close_pair_accuracy(sparse).is_measured


def test_the_interval_is_over_episodes_not_over_steps():
    """PooledSteps of one episode say the same: more of them do not make the interval narrower."""
    random = np.random.default_rng(0)
    truth, noise = random.normal(size=(2, 25))
    widths = []
    for steps in (2, 40):
        constant = [
            pooled([np.full(steps, a + b) for a, b in zip(truth, noise, strict=True)], [np.full(steps, a) for a in truth])
        ]
        figure = step_correlation(constant[0])
        widths.append(figure.high - figure.low)
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
    alone = episode_correlation(truth + noise, truth)
    assert alone.high - alone.low == pytest.approx(widths[0], rel=0.2) and alone.n == 25


def test_ranks_are_taken_anew_in_each_resample():
    random = np.random.default_rng(0)
    first, second = random.integers(0, 6, (2, 12)).astype(np.float64)
    counts = random.integers(0, 3, (20, 12))
    found = rank_correlations(first, second, counts.astype(np.float64))
    brute = [rank_correlation(np.repeat(first, row), np.repeat(second, row)) for row in counts]
    np.testing.assert_allclose(found, brute)
    assert np.isnan(rank_correlations(first, np.ones(12), counts.astype(np.float64))).all()


def test_means_and_ratios():
    figure = mean_of([1.0, np.nan, 3.0], "clips")
    assert (figure.interval.estimate, figure.n) == (2, 2) and figure.low == 1 and figure.high == 3
    assert not mean_of([np.nan], "clips").is_measured
    assert ratio_of([1, 2, np.nan], [2, 4, 6], "clips").interval.estimate == pytest.approx(0.5)
    assert not ratio_of([1, 2], [-1, 0.5], "clips").is_measured  # a share of nothing
    assert unknown("clips").to_json() == {"estimate": None, "low": None, "high": None, "n": 0, "of": "clips"}


# ---------------------------------------------------------------------------------------------- separation, calibration
@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=25))
def test_the_area_is_the_share_of_pairs(cases):
    scores, successes = np.array([a for a, _ in cases], np.float64), np.array([b for _, b in cases])
    won, lost = scores[successes], scores[~successes]
    if not len(won) or not len(lost):
        with pytest.raises(InvalidSetting, match="needs successes and failures"):
            area_under_curve(scores, successes)
        return
    brute = np.mean([(a > b) + (a == b) / 2 for a in won for b in lost])
    found, turned = area_under_curve(scores, successes), area_under_curve(-scores, successes)
    assert found.estimate == pytest.approx(brute) and 0 <= found.low <= brute + 1e-9 and brute - 1e-9 <= found.high <= 1
    np.testing.assert_allclose([turned.low, turned.high], [1 - found.high, 1 - found.low], atol=1e-6)
    false, true = roc_curve(scores, successes)
    assert np.trapezoid(true, false) == pytest.approx(brute) and (false[-1], true[-1]) == (1, 1)


def test_auc_interval_covers_truth_and_is_wide_for_few():
    random, covered = np.random.default_rng(0), 0
    labels = np.arange(40) < 20
    for _ in range(300):
        found = area_under_curve(random.normal(size=40) + 1.19 * labels, labels)  # true area 0.8
        covered += found.low <= 0.8 <= found.high
    assert 0.9 < covered / 300 < 0.99
    perfect = area_under_curve(np.arange(4.0), np.arange(4) > 1)
    assert perfect.estimate == perfect.high == 1 and perfect.low < 0.5


def test_calibration_by_hand():
    probabilities = np.array([0.05, 0.05, 0.95, 0.95, 1.0])
    successes = np.array([False, True, True, True, False])
    bins = reliability(probabilities, successes)
    assert [each.n for each in bins] == [2, 3]
    assert [each.rate.estimate for each in bins] == [0.5, pytest.approx(2 / 3)]
    score = (0.95 + 0.95 + 1) / 3
    assert expected_calibration_error(bins) == pytest.approx(0.4 * 0.45 + 0.6 * (score - 2 / 3))
    assert np.isnan(expected_calibration_error([]))
    groups = by_rank(np.array([-3.0, 1, 1, 1, 50]), successes, bins=2)
    assert [each.n for each in groups] == [4, 1] and groups[0].score == 0


@settings(max_examples=20)
@given(st.integers(1, 400))
def test_every_case_is_in_one_bin(count):
    random = np.random.default_rng(count)
    probabilities = random.random(count)
    for bins in (reliability(probabilities, probabilities > 0.5), by_rank(probabilities, probabilities > 0.5)):
        assert sum(each.n for each in bins) == count


def test_a_calibrated_score_has_a_small_error():
    random = np.random.default_rng(0)
    many = random.random(5000)
    assert expected_calibration_error(reliability(many, random.random(5000) < many)) < 0.05
    assert expected_calibration_error(reliability(many, random.random(5000) < many**3)) > 0.15


@pytest.mark.parametrize(
    ("bounds", "outcome"),
    [((0.95, 0.91, 0.97), "good"), ((0.95, 0.4, 0.99), "not known"), ((0.6, 0.4, 0.8), "bad"), ((0.7, 0.6, 0.8), "middling"),
     ((0.1, 0.0, 0.2), "bad"), ((0.85, 0.6, 0.95), "middling")],
)  # fmt: skip
def test_an_outcome_follows_from_the_interval(bounds, outcome):
    from robo_rl.evaluation.figures import Figure
    from robo_rl.evaluation.statistics import Interval

    assert graded(Figure(Interval(*bounds), 20, "episodes"), 0.9, 0.5) == outcome


# ---------------------------------------------------------------------------------------------- truth, spoilt clips
def test_progress_by_name():
    won, lost = episode(4), episode(4, success=False)
    np.testing.assert_array_equal(progress_of("time-to-success").of(won), [-3, -2, -1, 0])
    assert np.isnan(progress_of("time-to-success").of(lost)).all()
    np.testing.assert_array_equal(progress_of("reward").of(won), [1, 2, 3, 4])
    np.testing.assert_array_equal(progress_of("sum").of(won), [1, 3, 6, 10])
    np.testing.assert_array_equal(progress_of("sum:reach").of(won), [0.5, 1, 1.5, 2])
    np.testing.assert_array_equal(progress_of("near:place,goal").of(won), [-5, -10, -15, -20])
    np.testing.assert_array_equal(progress_of("near:place").of(won), [-5, -10, -15, -20])
    assert str(progress_of("sum:reach")) == "the sum so far of the reward term reach"
    for text, message in (("tim", "kind of progress"), ("reward:rech", "'reach'"), ("near:plac", "'place'")):
        with pytest.raises(UnknownName, match=message):
            progress_of(text).of(won)
    with pytest.raises(InvalidSetting, match="one observation or two"):
        progress_of("near:")


def test_spoilt_clips():
    real, random = episode(5), np.random.default_rng(0)
    pictures, places = real.observations["camera_front"], real.observations["place"]
    before = {name: array.copy() for name, array in real.observations.items()}
    black = BLANK_PICTURES.apply(real, random)
    assert not black.observations["camera_front"].any() and black.observations["place"] is places
    back = REVERSED.apply(real, random)
    np.testing.assert_array_equal(back.observations["camera_front"], pictures[::-1])
    still = LOITERING.apply(real, random).observations["camera_front"]
    assert held_from(5) == 3
    np.testing.assert_array_equal(still[:4], pictures[:4])
    assert (still[3:] == pictures[3]).all()
    dealt = SHUFFLED_TIME.apply(real, random)
    order = [int(row[0]) // 3 for row in dealt.observations["place"]]
    assert order[0] == 0 and sorted(order) == [*range(6)] and order != [*range(6)]
    np.testing.assert_array_equal(dealt.observations["camera_front"], pictures[order])
    assert wrong_text("push it").apply(real, random).instruction == "push it"
    assert wrong_text("").apply(real, random).instruction == real.instruction
    hidden = HIDDEN_REWARDS.apply(real, random)
    assert not hidden.rewards.any() and hidden.success is None and not hidden.reward_terms and hidden.stop_reason == "unknown"
    assert real.success and all((before[name] == array).all() for name, array in real.observations.items())
