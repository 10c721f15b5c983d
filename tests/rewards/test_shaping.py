"""Stages between a reward and a policy: what they pay, what they leave as it is, and what they remember."""

import json
from dataclasses import replace
from functools import cache

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from factories import make_spec
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.runner import end_workers
from robo_rl.rewards.shaping.stages import (
    Bound,
    Clip,
    Delta,
    Gate,
    Potential,
    PreferenceAsReward,
    Scale,
    Tiers,
    shaped,
    weighed,
)
from robo_rl.rewards.step_rewards.place import Memory, Place
from robo_rl.rewards.step_rewards.steps import StepQueue
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Labels

SPEC = make_spec("test/Dot", ArraySpec("position", (2,)))
DISCOUNT = 0.9
PHI = """def reward(batch):
    return -np.linalg.norm(batch["position"], axis=1), {}
"""


def phi(position):
    return -float(np.linalg.norm(position.astype(np.float64)))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "phi.py"
    path.write_text(PHI)
    yield str(path)
    end_workers()


def place(**changes):
    return replace(Place(SPEC, DISCOUNT, memory=Memory()), **changes)


def lived(lengths, seed=0, *, environments=2, cuts=(), ends=("terminated",)):
    """Returns steps of environments that reset themselves, in several pieces, and each episode's rows and positions.

    lengths: of the episodes of each environment, one after the other. cuts: after which steps the queue is emptied. ends: how
    the episodes end, by turns.
    """
    random, queue, pieces, episodes = np.random.default_rng(seed), StepQueue(["position"]), [], []
    running = {}
    for index in range(environments):
        running[index] = _begin(queue, index, random)
    todo = {index: list(lengths) for index in range(environments)}
    row = 0
    for time in range(sum(lengths)):
        for index in range(environments):
            rows, positions = running[index]
            position = random.normal(size=2).astype(np.float32)
            positions.append(position)
            rows.append(row)
            row += 1
            is_last = len(rows) == todo[index][0]
            how = ends[len(episodes) % len(ends)]
            told = {name: is_last and how == name for name in ("terminated", "truncated")}
            queue.add(index, {"position": position}, action=np.zeros(1), reward=0.0, **told)
            if is_last:
                episodes.append((rows, positions, how))
                todo[index].pop(0)
                running[index] = _begin(queue, index, random)  # at once, as SAME_STEP does
        if time in cuts:
            pieces.append(queue.take())
    return [*pieces, queue.take()], episodes


def _begin(queue, index, random):
    first = random.normal(size=2).astype(np.float32)
    queue.begin(index, {"position": first})
    return [], [first]


def through(stage, pieces, values=None, valid=None, at=None):
    """Return values and validity of what a stage makes of zeros, or of values, piece by piece."""
    sizes = np.cumsum([len(piece) for piece in pieces])
    values = np.zeros(sizes[-1]) if values is None else np.asarray(values, np.float64)
    valid = np.ones(sizes[-1], np.bool_) if valid is None else np.asarray(valid)
    given, at = Labels.finite(values, valid, dtype=np.float64), at or place()
    found = []
    for piece, end in zip(pieces, sizes, strict=True):
        part = slice(end - len(piece), end)
        found += [stage.apply(piece, Labels(given.values[part], given.valid[part]), at)] if len(piece) else []
    joined = Labels.joined(found)
    return joined.values, joined.valid


# potentials


@pytest.mark.slow
@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    cuts=st.sets(st.integers(0, 20)),
    weight=st.floats(-3, 3),
)
def test_shaping_telescopes_to_minus_first_potential(program, lengths, seed, cuts, weight):
    pieces, episodes = lived(lengths, seed, cuts=cuts, ends=("terminated", "truncated"))
    values, known = through(Potential(program, weight=weight), pieces)
    assert known.all() and len(episodes) == 2 * len(lengths)
    for rows, positions, how in episodes:
        added = (DISCOUNT ** np.arange(len(rows)) * values[rows]).sum()
        left = DISCOUNT ** len(rows) * phi(positions[-1]) if how == "truncated" else 0.0
        assert added == pytest.approx(weight * (left - phi(positions[0])), abs=1e-9)


def test_a_potential_that_treated_all_ends_alike_would_be_found(program):
    pieces, episodes = lived([3, 4], ends=("truncated",))
    wrong = [replace(piece, terminated=piece.ended, truncated=~piece.ended) for piece in pieces]
    values, _ = through(Potential(program), wrong)
    rows, positions, _ = episodes[0]
    added = (DISCOUNT ** np.arange(len(rows)) * values[rows]).sum()
    assert abs(added - (DISCOUNT ** len(rows) * phi(positions[-1]) - phi(positions[0]))) > 0.1


def test_a_potential_has_the_learners_discount(program, tmp_path):
    with pytest.raises(
        InvalidSetting, match=r"potential has another discount than the learner\.\n.*1\.0\n.*0\.9, the learner's"
    ):
        Potential(program, discount=1.0).require(place())
    with pytest.raises(InvalidSetting, match="potential needs the discount of the learner, and none is known here"):
        Potential(program).require(place(discount=None))
    Potential(program, discount=0.5).require(place(discount=None))
    with pytest.raises(InvalidSetting, match="'discount' is out of range"):
        Potential(program, discount=1.5)
    moving = tmp_path / "moving.py"
    moving.write_text('def reward(batch):\n    return batch["position"][:, 0] - batch["previous_position"][:, 0], {}\n')
    with pytest.raises(InvalidSetting, match=r"follows from the state alone(.|\n)*got:     previous_position"):
        Potential(str(moving)).require(place())


def test_where_the_potential_is_unknown_so_is_the_reward(tmp_path):
    path = tmp_path / "phi.py"
    path.write_text('def reward(batch):\n    return np.sqrt(batch["position"][:, 0]), {}\n')  # none of a negative number
    queue = StepQueue(["position"])
    queue.begin(0, {"position": np.array([1.0, 0.0])})
    for number, x in enumerate((4.0, -1.0, 9.0, -1.0)):
        ends = {"terminated": number == 3, "truncated": False}
        queue.add(0, {"position": np.array([x, 0.0])}, action=np.zeros(1), reward=0.0, **ends)
    values, known = through(Potential(str(path), limits=Limits(invalid_share=1.0)), [queue.take()])
    assert known.tolist() == [True, False, False, True], "the last one ends the task: its potential is not asked for"
    assert values[known] == pytest.approx([DISCOUNT * 2 - 1, -3.0])


# bounds and differences


def test_clip_cuts_above_and_bound_on_both_sides():
    pieces, _ = lived([3], environments=1)
    clipped, _ = through(Clip(at=0.5), pieces, [0.2, 0.5, 7.0])
    assert clipped == pytest.approx([-0.3, 0.0, 0.0])
    bounded, _ = through(Bound(low=-1, high=2), pieces, [-5.0, 0.5, 7.0])
    assert bounded == pytest.approx([-1.0, 0.5, 2.0])
    with pytest.raises(InvalidSetting, match="'low' is out of range"):
        Bound(low=2, high=2)
    with pytest.raises(InvalidSetting, match="'at' is out of range"):
        Clip(at=float("nan"))


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), cuts=st.sets(st.integers(0, 20)))
def test_deltas_of_an_episode_add_up_to_its_last_reward(lengths, cuts):
    pieces, episodes = lived(lengths, cuts=cuts, ends=("terminated", "truncated"))
    values = np.random.default_rng(1).normal(size=sum(map(len, pieces)))
    found, known = through(Delta(), pieces, values)
    assert known.all()
    for rows, _, _ in episodes:
        assert found[rows].sum() == pytest.approx(values[rows[-1]])
        assert found[rows[0]] == values[rows[0]]


def test_gap_gives_no_delta_and_no_preference(tmp_path):
    pieces, _ = lived([4, 2], environments=1)
    known = [True, False, True, True, True, True]
    _, found = through(Delta(), pieces, valid=known)
    assert found.tolist() == [True, False, False, True, True, True]
    _, found = through(par(tmp_path, [0.0]), pieces, valid=known)
    assert found.tolist() == [True, False, True, False, True, True]


def test_tiers_are_paid_once_each():
    pieces, _ = lived([6], environments=1)
    tiers = Tiers((-2.0, -1.0, 0.0))
    found, _ = through(tiers, pieces, [-3.0, -1.5, -2.5, -1.5, 0.0, 5.0])
    assert found == pytest.approx([0.0, 1 / 3, 0.0, 0.0, 2 / 3, 0.0])
    weighted, _ = through(Tiers((-2.0, -1.0, 0.0), (1.0, 2.0, 4.0)), pieces, [-3.0, -1.5, -2.5, -0.5, -1.0, 5.0])
    assert weighted == pytest.approx([0.0, 1.0, 0.0, 2.0, 0.0, 4.0])
    gaps, known = through(tiers, pieces, [-3.0, 9.0, -1.5, -1.5, -1.5, -1.5], valid=[True, False, True, True, True, True])
    assert gaps == pytest.approx([0.0, 0.0, 1 / 3, 0.0, 0.0, 0.0]) and known.tolist() == [True, False, True, True, True, True]
    for wrong in ({"thresholds": ()}, {"thresholds": (1.0, 1.0)}, {"thresholds": (0.0,), "weights": (1.0, 2.0)}):
        with pytest.raises(InvalidSetting, match="is out of range"):
            Tiers(**wrong)


def test_tiers_that_many_pass_are_paid_less():
    """Half of each episode's outcome enters the shares: the first tier passes always, the second in the second episode."""
    pieces, _ = lived([2, 2, 2], environments=1)
    tiers = Tiers((0.0, 1.0), (1.0, 3.0), adapts=0.5)
    at = place()
    found, _ = through(tiers, pieces, [0.0, 0.5, 0.0, 1.0, 1.0, 1.0], at=at)
    second = 4.0 / (0.5 + 3.0)  # of 1 (1 - 0.5) + 3 (1 - 0), brought to the sum 4
    third = 4.0 / (0.25 + 1.5)
    assert found == pytest.approx([1.0, 0.0, 0.5 * second, 3.0 * second, 4.0, 0.0])
    assert at.memory["passed"] == pytest.approx([0.875, 0.75]) and third > second
    assert weighed([1.0, 3.0], [1.0, 1.0]) == [1.0, 3.0]
    with pytest.raises(InvalidSetting, match="follow a training"):
        tiers.require(place(is_recorded=True))


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(lengths=st.lists(st.integers(1, 6), min_size=2, max_size=4), cuts=st.sets(st.integers(0, 20)))
def test_who_came_nearer_has_never_less(lengths, cuts):
    pieces, episodes = lived(lengths, cuts=cuts, ends=("terminated", "truncated"))
    values = np.random.default_rng(5).normal(size=sum(map(len, pieces)))
    found, _ = through(Tiers((-1.0, 0.0, 1.0)), pieces, values)
    best = np.array([values[rows].max() for rows, _, _ in episodes])
    total = np.array([found[rows].sum() for rows, _, _ in episodes])
    assert (np.diff(total[np.argsort(best)]) >= -1e-12).all()
    np.testing.assert_allclose(total, [np.mean([value >= at for at in (-1.0, 0.0, 1.0)]) for value in best])


# preference as reward


def par(folder, scores, **settings):
    path = folder / "references.json"
    path.write_text(json.dumps({"scores": scores}))
    return PreferenceAsReward(str(path), **settings)


SCORES = st.floats(-50, 50)


@pytest.mark.slow
@hypothesis.given(score=SCORES, references=st.lists(SCORES, min_size=1, max_size=5), shift=SCORES, more=st.floats(0.1, 5))
def test_a_preference_is_bounded_rising_and_knows_no_zero(score, references, shift, more):
    value = shaped(score, references)
    assert 0.0 <= value <= 1.0 and shaped(score + more, references) >= value
    assert shaped(score + shift, [each + shift for each in references]) == pytest.approx(value, abs=1e-9)
    assert shaped(score, [score]) == 0.5
    slope = shaped(score + 0.01, [score]) - shaped(score - 0.01, [score])
    assert slope >= shaped(score + more + 0.01, [score]) - shaped(score + more - 0.01, [score])
    assert np.isfinite(shaped(1e300, references)) and shaped(1e300, references) == 1.0


def test_an_episode_is_paid_at_its_end_for_what_it_added_up_to(tmp_path):
    pieces, episodes = lived([3, 5], cuts=(1, 4), ends=("terminated", "truncated"))
    values = np.random.default_rng(2).normal(size=sum(map(len, pieces)))
    stage = par(tmp_path, [0.3, -1.0], slope=2.0)
    found, known = through(stage, pieces, values)
    assert known.all()
    for rows, _, _ in episodes:
        wanted = np.mean([1 / (1 + np.exp(-2.0 * (values[rows].sum() - each))) for each in (0.3, -1.0)]) - 0.5
        assert found[rows[-1]] == pytest.approx(wanted) and (found[rows[:-1]] == 0).all()


def test_references_are_read_strictly(tmp_path):
    for content in ("{}", "[1", '{"scores": []}', '{"scores": ["a"]}', '{"scores": [NaN]}'):
        (tmp_path / "wrong.json").write_text(content)
        with pytest.raises(InvalidSetting, match=r"wrong\.json holds no references"):
            _ = PreferenceAsReward(str(tmp_path / "wrong.json")).scores
    with pytest.raises(InvalidSetting, match="'slope' is out of range"):
        PreferenceAsReward("x", slope=0.0)


def test_preferences_limit_gain_of_a_hack(tmp_path):
    """A policy moves its two actions up the gradient of its pay: the score likes quality, and a quirk without bound."""

    def climbed(pay, steps=200, samples=32, rate=0.3):
        random, mean = np.random.default_rng(0), np.zeros(2)
        for _ in range(steps):
            noise = random.normal(size=(samples, 2))
            actions = mean + 0.3 * noise
            paid = np.array([pay(-((quality - 1) ** 2) + quirk) for quality, quirk in actions])
            mean += rate * (noise * (paid - paid.mean())[:, None]).mean(axis=0) / 0.3
        return mean

    stage = par(tmp_path, [-1.0, -0.8])
    quality, quirk = climbed(lambda score: score)
    safe_quality, safe_quirk = climbed(stage.of)
    assert quality == pytest.approx(1.0, abs=0.3) and safe_quality == pytest.approx(1.0, abs=0.5)
    assert quirk > 50 and safe_quirk < 8, "unshaped the quirk grows by the same every step; shaped its gain fades"


# scale


def test_scale_divides_by_deviation_of_discounted_return():
    pieces, _ = lived([4, 3], environments=1)
    values = np.random.default_rng(3).normal(2.0, 5.0, 7)
    stage = Scale(bound=100.0)
    found, known = through(stage, pieces, values)
    returns, total = [], 0.0
    for row, value in enumerate(values):
        total = value + (0.0 if row in (0, 4) else DISCOUNT * total)
        returns.append(total)
    assert known.all() and found == pytest.approx(values / np.std(returns))
    with pytest.raises(InvalidSetting, match="follows the rewards of a training, and these episodes are recorded"):
        Scale().require(place(is_recorded=True))


def owned(pieces, rewards):
    """Return pieces with the environment's own rewards."""
    ends = np.cumsum([len(piece) for piece in pieces])
    return [replace(piece, rewards=rewards[end - len(piece) : end]) for piece, end in zip(pieces, ends, strict=True)]


def test_gate_pays_progress_only_beside_an_outcome():
    pieces, _ = lived([3, 3], environments=1, cuts=(1,), ends=("terminated", "truncated"))
    own = np.array([0.0, 0.0, 1.0, 0.0, 0.4, 0.0])
    pieces = owned(pieces, own)
    found, known = through(Gate(above=0.5), pieces, [0.1, 0.2, 0.3, 0.1, 0.2, 0.3])
    assert known.all() and found == pytest.approx([0, 0, 1.6, 0, 0.4, 0.0])
    found, known = through(Gate(above=0.3, at_end=False), pieces, [0.1, 0.2, 0.3, 0.1, 0.2, 0.3])
    assert known.all() and found == pytest.approx([0, 0, 1.3, 0, 0.6, 0.3])
    found, known = through(Gate(above=0.5, outcome=0.0), pieces, np.ones(6), [True, False, True, True, False, True])
    assert found.tolist() == [0.0] * 6 and known.tolist() == [True, True, False, True, True, True]


def learned(pays, updates=150, seed=0):
    """Return the success of a policy of ten steps, each work or a tap, by REINFORCE on `pays(own, taps)`.

    Five steps of work make the outcome 1, four in five have an effect, and each tap looks like progress.
    """
    random, logits = np.random.default_rng(seed), np.zeros(2)
    for _ in range(updates):
        chance = np.exp(logits) / np.exp(logits).sum()
        work = random.random((32, 10)) < chance[0]
        done = (work & (random.random((32, 10)) < 0.8)).sum(1) >= 5
        returns = np.array([pays(float(own), 0.3 * taps) for own, taps in zip(done, (~work).sum(1), strict=True)])
        share = (work - chance[0]).sum(1) / 10
        logits += 0.8 * np.mean((returns - returns.mean()) * share) * np.array([1.0, -1.0]) * 10
    work = random.random((1000, 10)) < np.exp(logits[0]) / np.exp(logits).sum()
    return float(np.mean((work & (random.random((1000, 10)) < 0.8)).sum(1) >= 5))


def test_gated_progress_is_not_collected_instead_of_the_outcome():
    def gated(above):
        @cache
        def pays(own, taps):
            pieces, _ = lived([2], environments=1)
            found, _ = through(Gate(above=above), owned(pieces, np.array([0.0, own])), [0.0, taps])
            return found.sum()

        return pays

    assert learned(lambda own, taps: own) > 0.9
    assert learned(lambda own, taps: own + taps) < 0.05  # the sum is worth more with ten taps
    assert learned(gated(0.5)) > 0.8  # seven to eight steps of work, and taps beside, are best: 85 to 94 % succeed
    assert learned(gated(-0.5)) < 0.05  # a gate that is always open


STATEFUL = {
    "gate": lambda folder: Gate(above=-1.0),
    "delta": lambda folder: Delta(),
    "tiers": lambda folder: Tiers((-0.5, 0.5, 1.0), adapts=0.3),
    "par": lambda folder: par(folder, [0.1]),
    "scale": lambda folder: Scale(),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_a_stage_that_is_restored_goes_on_as_it_would_have(name, tmp_path):
    stage = STATEFUL[name](tmp_path)
    pieces, _ = lived([5, 6], cuts=(2, 6))
    values = np.random.default_rng(4).normal(size=sum(map(len, pieces)))
    whole, _ = through(stage, pieces, values)
    first, second, size = place(), place(), len(pieces[0])
    through(stage, pieces[:1], values[:size], at=first)
    second.memory.load_state_dict(json.loads(json.dumps(first.memory.state_dict())))
    rest, _ = through(stage, pieces[1:], values[size:], at=second)
    np.testing.assert_array_equal(rest, whole[size:])
