"""Self-play: games with a known solution, episodes compared as a whole, stored ones compared again."""

from __future__ import annotations

import copy
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from factories import axes, choices, make_episode, make_spec
from robo_bench.trainings import Silent
from robo_cli.main import dispatch
from robo_papers.spo.mixture import MixturePolicy
from robo_papers.spo.reward import SelfPlayReward
from robo_papers.spo.study import CIRCLE, WINNER, fitted_reward, played
from robo_papers.spo.win_rates import WinRates
from robo_policies.learners.ppo import PPOConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.rewards.preferences.raters import Measure, MeasuresRater, Segment
from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Batch

SPEC = make_spec("line", ArraySpec("position", (2,)), action=axes("step"))


def test_worth_is_the_share_of_wins_less_a_half():
    wins = WinRates[int](lambda one, other: float(one > other) + 0.5 * (one == other), queue=4, opponents=0, seed=0)
    assert wins.worth(3) == 0.0  # nobody to compare with
    for item in (9, 1, 2, 3, 4):  # 9 has left
        wins.push(item)
    assert [wins.worth(each) for each in (0, 3, 9)] == [-0.5, 0.125, 0.5]
    assert wins.comparisons == 12
    unknown = WinRates[int](lambda one, other: None, queue=2, opponents=1, seed=0)
    unknown.push(1)
    assert np.isnan(unknown.worth(2))
    again = WinRates[int](lambda one, other: float(one > other), queue=4, opponents=2, seed=5)
    again.load_state_dict(copy.deepcopy(wins.state_dict()))
    assert len(again) == 4 and again.comparisons == 12


@pytest.mark.slow
def test_in_a_circle_the_average_is_even_not_the_last_policy():
    average, last = played(CIRCLE, 0, steps=3000)
    np.testing.assert_allclose(average, 1 / 3, atol=0.05)
    assert last.max() > 0.45
    stale, _ = played(CIRCLE, 0, steps=3000, queue=4096)  # the control: opponents of long ago
    assert np.abs(stale - 1 / 3).max() > 0.05


@pytest.mark.slow
def test_a_winner_is_found_and_fitted_rewards_follow_frequencies():
    average, last = played(WINNER, 0, steps=1500, coins=0.4)
    assert average[0] > 0.9 and last[0] > 0.95
    often = fitted_reward(CIRCLE, 0, np.array([0.6, 0.3, 0.1]), pairs=600)
    otherwise = fitted_reward(CIRCLE, 0, np.array([0.1, 0.6, 0.3]), pairs=600)
    assert often.argmax() != otherwise.argmax()  # an order that the game does not have


def segment(length: int, *, terminated: bool = True, height: float = 0.0, rewards: float = 0.0) -> Segment:
    positions = np.linspace([0, 0], [height, 3], length + 1, dtype=np.float32)
    episode = make_episode({"position": positions}, actions=np.zeros((length, 1), np.float32))
    changes = {"rewards": np.full(length, rewards, np.float32), "terminated": terminated, "truncated": not terminated}
    return Segment(replace(episode, **changes), 0, length)


def test_measures_by_hand():
    found = {
        text: Measure(text).of(segment(4, height=2.0, rewards=0.5))
        for text in ("return", "-length", "terminated", "success", "peak position", "last position[0]", "-mean position[1]~0.1")
    }
    assert found == pytest.approx(
        {
            "return": 2.0,
            "-length": -4.0,
            "terminated": 1.0,
            "success": 0.0,
            "peak position": np.hypot(2, 3),
            "last position[0]": 2.0,
            "-mean position[1]~0.1": -np.mean([0.75, 1.5, 2.25, 3.0]),
        }
    )
    assert Measure("-mean position[1]~0.1").margin == 0.1
    part = replace(segment(4), start=0, stop=2)
    assert Measure("terminated").of(part) == 0.0 and Measure("length").of(part) == 2.0


def test_first_measure_decides_or_the_majority():
    short, long, failed = segment(3), segment(5), segment(2, terminated=False)
    rater = MeasuresRater(("terminated", "-length"))
    assert rater.compare(short, long) == 0.0 and rater.compare(long, short) == 1.0
    assert rater.compare(failed, long) == 1.0 and rater.compare(long, long) == 0.5
    assert MeasuresRater(("-length~2",)).compare(short, long) == 0.5
    circle = [segment(1, height=2, rewards=3), segment(2, height=3, rewards=0.5), segment(3, height=1, rewards=2 / 3)]
    votes = MeasuresRater(("length", "last position[0]", "return"), rule="majority")
    answers = [votes.compare(circle[at], circle[(at + 1) % 3]) for at in range(3)]
    assert answers == [1.0, 0.0, 0.5] or len({*answers}) == 1 or sorted(answers) == [0.0, 0.5, 1.0]
    missing = segment(3)
    missing.episode.rewards[1] = np.nan
    assert MeasuresRater(("return",)).compare(missing, short) == "skip"


def test_a_majority_goes_round_in_circles():
    """Three segments, three measures: each is best in one and second in another."""
    one, two, three = (
        segment(3, height=1, rewards=2 / 3),
        segment(2, height=3, rewards=0.5),
        segment(1, height=2, rewards=3.0),
    )  # length 3 2 1, height 1 3 2, return 2 1 3
    votes = MeasuresRater(("length", "last position[0]", "return"), rule="majority")
    assert [votes.compare(one, two), votes.compare(two, three), votes.compare(three, one)] == [0.0, 0.0, 0.0]


def test_bad_measures_and_settings_have_one_clear_error():
    with pytest.raises(InvalidSetting, match="measure is not known"):
        MeasuresRater(("speed",))
    with pytest.raises(InvalidSetting, match="one or more"):
        MeasuresRater(())
    with pytest.raises(UnknownName, match="force"):
        MeasuresRater(("peak force",)).compare(segment(2), segment(2))
    with pytest.raises(InvalidSetting, match="fewer numbers"):
        MeasuresRater(("peak position[7]",)).compare(segment(2), segment(2))
    with pytest.raises(UnknownName, match="nobody"):
        SelfPlayReward(rater="nobody")
    with pytest.raises(UnknownName, match="speed"):
        SelfPlayReward(rater_settings={"speed": 1})
    with pytest.raises(InvalidSetting, match="queue"):
        SelfPlayReward(queue=0)
    reward = SelfPlayReward().online(SPEC, weight=1.0, discount=0.9)
    with pytest.raises(InvalidSetting, match="compares a policy with itself"):
        reward.labelled(segment(3).episode, SPEC)


def taken(index: int, length: int, *, terminated: bool = True) -> Steps:
    steps = Steps.of(segment(length, terminated=terminated).episode)
    return replace(steps, index=np.full(length, index))


def test_an_episode_in_parts_is_paid_at_its_end():
    reward = SelfPlayReward(opponents=0)
    running = reward.online(SPEC, weight=2.0, discount=0.9)
    place = running.place
    first, second = taken(0, 4), taken(1, 2)
    np.testing.assert_array_equal(reward.score_steps(first, place).total, 0.0)  # nobody to compare with
    part = Steps.joined([cut(second, slice(0, 1))])
    np.testing.assert_array_equal(reward.score_steps(part, place).total, [0.0])
    np.testing.assert_array_equal(reward.score_steps(cut(second, slice(1, 2)), place).total, [0.5])  # it is shorter
    np.testing.assert_array_equal(reward.score_steps(taken(0, 3), place).total, [0, 0, 0.0])  # one win, one loss
    assert reward.metrics(place)["reward/comparisons"] == 3.0


def cut(steps: Steps, rows: slice) -> Steps:
    arrays = {name: getattr(steps, name)[rows] for name in ("index", "number", "terminated", "truncated", "rewards", "actions")}
    sides = {side: {name: each[rows] for name, each in getattr(steps, side).items()} for side in ("before", "after")}
    return Steps(**arrays, **sides, instructions=steps.instructions[rows])


def test_stored_episodes_are_compared_again():
    reward = SelfPlayReward(opponents=0, relabels=True)
    place = reward.online(SPEC, weight=3.0, discount=0.9).place
    relabelling = reward.relabelling(place)
    assert relabelling is not None and reward.is_weighted
    relabelling.reserve(100)
    numbers = [reward.score_steps(taken(0, length), place).total for length in (4, 2)]
    assert [each.tolist() for each in numbers] == [[0.0] * 4, [1.0] * 2]
    kept = copy.deepcopy(place.memory.state_dict())
    half = reward.score_steps(cut(taken(0, 5), slice(0, 2)), place).total
    assert np.isnan(half).all()  # an episode that is not whole
    rest = Steps.joined([cut(taken(0, 5), slice(2, 5)), taken(0, 3)])  # its end, and a whole one after it
    assert reward.score_steps(rest, place).total.tolist() == [2, 2, 2, 3, 3, 3]
    place.memory.load_state_dict(kept)
    batch = batch_of([0.0, 1.0])
    np.testing.assert_allclose(relabelling.relabel(batch).rewards, [0.0, 3.0 * 0.5 / 2])
    for _ in range(2):
        relabelling.update()
    # each has met itself and the other by now: a quarter and three quarters of wins
    np.testing.assert_allclose(relabelling.relabel(batch).rewards, [3.0 * -0.25 / 4, 3.0 * 0.25 / 2])
    again = SelfPlayReward(opponents=0, relabels=True)
    other = again.online(SPEC, weight=3.0, discount=0.9).place
    other.memory.load_state_dict(copy.deepcopy(place.memory.state_dict()))
    found = again.relabelling(other)
    assert found is not None
    np.testing.assert_allclose(found.relabel(batch).rewards, relabelling.relabel(batch).rewards)


def batch_of(rewards) -> Batch:
    count = len(rewards)
    observations = {"position": np.zeros((count, 2), np.float32)}
    ones = np.ones(count, np.float32)
    rewards = np.array(rewards, np.float32)
    nobody = np.zeros(count, np.bool_)
    return Batch(observations, np.zeros((count, 1), np.float32), rewards, ones, ones, observations, ones, nobody)


class Order(gymnasium.Env):
    """Five places in a row; an agent that begins in the middle is to see the left end before the right one."""

    environment_spec = make_spec(
        "a/Order",
        ArraySpec("place", (5,)),
        ArraySpec("seen", (2,), meaning="whether the left and the right end were visited"),
        action=choices("left", "right"),
        max_steps=12,
    )
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at, self._steps, self._seen = 2, 0, [False, False]
        self.ordered = False
        return self._observed(), {}

    def step(self, action):
        self._at = int(np.clip(self._at + (1 if action else -1), 0, 4))
        self._steps += 1
        if self._at == 4 and not self._seen[1]:
            self.ordered = self._seen[0]
        self._seen = [self._seen[0] or self._at == 0, self._seen[1] or self._at == 4]
        done = self._steps == 12
        return self._observed(), 0.0, False, done, {"success": done and self.ordered}

    def _observed(self):
        return {"place": np.eye(5, dtype=np.float32)[self._at], "seen": np.array(self._seen, np.float32)}


def in_order(segment: Segment) -> bool:
    seen = segment.episode.observations["seen"]
    first = [int(np.argmax(seen[:, side])) if seen[:, side].any() else 99 for side in (0, 1)]
    return first[0] < first[1] < 99


class OrderRater(MeasuresRater):
    """Prefers the episode that saw the left end first."""

    def compare(self, first, second):
        return 0.5 + 0.5 * (float(in_order(second)) - float(in_order(first)))


class ReversedRater(OrderRater):
    def compare(self, first, second):
        return super().compare(second, first)


class Ordered(SelfPlayReward):
    judge = OrderRater()


class Reversed(SelfPlayReward):
    judge = ReversedRater()


@pytest.mark.slow
def test_a_rule_of_order_is_learned_and_a_reversed_one_is_not():
    config = PPOConfig(
        num_envs=8, steps_per_env=48, batch_size=96, network=PolicyValueNetwork(hidden=(32,)), lr=3e-3, entropy_coefficient=0.01
    )
    shares = []
    for kind in (Ordered, Reversed):
        reward = kind(queue=32, opponents=8).online(Order.environment_spec, weight=1.0, discount=0.99)
        training = config.training(Order, steps=9_000, seed=0, reward=reward)
        training.run(Silent())
        shares.append(np.mean(evaluate(training.policy, Order(), seeds=range(20), deterministic=False).successes))
    assert shares[0] > 0.8 and shares[1] < 0.2


class Same:
    environment_spec = SPEC

    def __init__(self, value):
        self.value = value

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.full(1, self.value, np.float32)


def test_a_mixture_draws_one_policy_for_a_whole_episode():
    mixture = MixturePolicy([Same(0.0), Same(1.0)], seed=0)
    found = []
    for _ in range(200):
        mixture.reset()
        actions = {float(mixture.act({})[0]) for _ in range(3)}
        assert len(actions) == 1
        found += actions
    assert 0.4 < np.mean(found) < 0.6
    with pytest.raises(InvalidSetting, match="no policies"):
        MixturePolicy([])


@pytest.mark.slow
def test_a_recipe_trains_resumes_and_is_evaluated_as_a_mixture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = [
        "--learner.num-envs",
        "2",
        "--learner.steps-per-env",
        "32",
        "--learner.batch-size",
        "32",
        "--learner.network.hidden",
        "8",
    ]
    quiet = ["--evaluation.every", "0", "--evaluation.episodes", "1", "--evaluation.videos", "0", "--checkpoint-every", "64"]
    quick = ["--environment.arguments.max-steps", "8", "--log-every", "64"]
    assert dispatch(["train", "arm-reach-spo", "--steps", "192", *small, *quiet, *quick]) == 0
    assert dispatch(["resume", "latest", "--steps", "320"]) == 0
    capsys.readouterr()
    assert dispatch(["spo", "evaluate", "latest", "--episodes", "3"]) == 0
    assert "3 episodes" in capsys.readouterr().out
    assert any("mixture" in path.name for path in tmp_path.glob("runs/*/evaluations/*.json"))


@pytest.mark.slow
def test_a_replay_learner_is_relabelled_in_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "--reward.name",
        "spo",
        "--reward.settings.relabels",
        "True",
        "--environment.arguments.reward",
    ]
    quiet = [
        "--evaluation.every",
        "0",
        "--evaluation.episodes",
        "1",
        "--evaluation.videos",
        "0",
        "--learner.network.hidden",
        "8",
    ]
    quick = ["--environment.arguments.max-steps", "10", "--learner.replay.learning-starts", "20", "--learner.batch-size", "8"]
    assert dispatch(["train", "arm-reach-short", "--steps", "60", *words, "sparse", *quiet, *quick]) == 0
    assert dispatch(["resume", "latest", "--steps", "90"]) == 0
