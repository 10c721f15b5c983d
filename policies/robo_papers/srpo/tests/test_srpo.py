"""SRPO: scores and advantages by hand, and a clone that it improves."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from factories import axes, make_episode, make_spec
from robo_bench.trainings import Successes
from robo_cli.main import dispatch
from robo_papers.srpo.learner import (
    Resemblance,
    SRPOConfig,
    density_clusters,
    failure_scores,
    group_advantages,
    to_successes,
)
from robo_policies.learners.episodic import Cloning
from robo_policies.learners.episodic_settings import EpisodeNetwork
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import ArraySpec


def test_scores_of_failures_are_those_of_the_page():
    found = failure_scores(np.array([0.0, 0.25, 0.5, 0.75, 1.0]), 0.0, 1.0)
    np.testing.assert_allclose(found[::-1], [0.004, 0.046, 0.3, 0.554, 0.596], atol=1e-3)
    assert failure_scores(np.array([7.0]), 7.0, 7.0) == pytest.approx(0.3)  # a lone failure, near or far
    assert failure_scores(np.array([-9.0, 99.0]), 0.0, 1.0) == pytest.approx([0.596, 0.004], abs=1e-3)


def test_advantages_of_groups_by_hand():
    found = group_advantages(np.array([1.0, 0.0, 0.5, 0.5, 1.0, 1.0]), 2)
    np.testing.assert_allclose(found, [1, -1, 0, 0, 0, 0])
    three = group_advantages(np.array([1.0, 0.0, 0.2]), 3)
    np.testing.assert_allclose(three, (np.array([1.0, 0.0, 0.2]) - 0.4) / np.std([1.0, 0.0, 0.2]))


def test_clusters_are_those_of_dbscan():
    points = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 9.0])[:, None]
    distances = np.abs(points - points.T)
    labels = density_clusters(distances, 0.15, 2)
    assert labels.tolist() == [0, 0, 0, 1, 1, -1]
    assert (density_clusters(distances, 0.01, 2) == -1).all()
    successes = np.array([0.0, 0.1, 0.2, 0.1, 5.0, 5.1, 5.2, 5.1])[:, None]
    found = to_successes(np.array([[0.0], [5.3], [2.0]]), successes, "quantile")
    centres = np.array([0.4 / 3, 15.2 / 3])  # the points at 0 and 5.2 are noise
    np.testing.assert_allclose(found, [centres[0], 5.3 - centres[1], 2 - centres[0]], atol=1e-6)


def test_in_many_dimensions_the_official_clusters_are_the_mean():
    random = np.random.default_rng(0)
    successes, failures = random.normal(size=(8, 30)), random.normal(size=(5, 30))
    expected = np.linalg.norm(failures - successes.mean(0), axis=1)
    np.testing.assert_allclose(to_successes(failures, successes, "official"), expected)
    one = to_successes(failures, successes[:1], "quantile")
    np.testing.assert_allclose(one, np.linalg.norm(failures - successes[0], axis=1))


class Line(gymnasium.Env):
    """A point that is to stop at 1 after eight steps; demonstrators get about half of the way."""

    environment_spec = make_spec("a/Line", ArraySpec("x", (1,)), action=axes("dx"), max_steps=8)
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._x, self._steps = np.float32(self.np_random.uniform(-0.2, 0.2)), 0
        return {"x": np.array([self._x], np.float32)}, {}

    def step(self, action):
        self._x += 0.2 * float(action[0])
        self._steps += 1
        done = self._steps == 8
        success = done and abs(self._x - 1.0) < 0.12
        return {"x": np.array([self._x], np.float32)}, float(success), False, done, {"success": success}


class Halfway:
    environment_spec = Line.environment_spec

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)

    def reset(self):
        self._speed = self._random.uniform(0.2, 0.6)

    def act(self, observation, *, deterministic=False):
        return np.array([self._speed], np.float32)


def srpo(score, seed, steps=6400):
    config = SRPOConfig(
        network=EpisodeNetwork(hidden=(32,)),
        lr=1e-3,
        episodes=32,
        group=8,
        score=score,
        cloning=Cloning(updates=300, initial_std=0.15),
    )
    episodes = [rollout(Line(), Halfway(number), seed=number) for number in range(30)]
    training, heard = config.training(Line, steps=steps, seed=seed, demonstrations=episodes), Successes()
    training.run(heard)
    return training, heard


@pytest.mark.slow
def test_srpo_improves_a_clone_and_permuted_scores_do_not(monkeypatch):
    training, heard = srpo("progress", 0)
    assert np.mean(heard.found[:64]) < 0.6
    assert np.mean(evaluate(training.policy, Line(), seeds=range(50)).successes) > 0.9
    plain = Resemblance.scores
    random = np.random.default_rng(0)
    monkeypatch.setattr(Resemblance, "scores", lambda self, episodes: random.permutation(plain(self, episodes)))
    _, dealt = srpo("progress", 0)
    assert np.mean(dealt.found[-128:]) < 0.6


def test_failures_near_a_success_are_worth_more():
    training, _ = srpo("progress", 0, steps=0)
    rule = training.learner.rule
    ways = [np.linspace(0, end, 9, dtype=np.float32)[:, None] for end in (1.0, 1.02, 0.85, 0.5, 0.1)]
    episodes = [
        make_episode({"x": way}, actions=np.zeros((8, 1), np.float32), success=number < 2) for number, way in enumerate(ways)
    ]
    scores = rule.scores(episodes)
    assert scores[:2].tolist() == [1.0, 1.0] and scores[2] > scores[3] > scores[4] and scores[2:].max() <= 0.6
    blunt = Resemblance(training.learner.actor, SRPOConfig(score="outcome"))
    assert blunt.scores(episodes).tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert rule.scores(episodes[2:]).tolist() == [0.0] * 3  # nothing to compare with


@pytest.mark.slow
def test_srpo_resumes_and_keeps_its_scale(tmp_path):
    training, _ = srpo("progress", 0, steps=512)
    state = training.state_dict()
    again, _ = srpo("progress", 0, steps=0)
    again.load_state_dict(state)
    assert again.step == training.step and again.resumed == "warm"
    assert list(again.learner.rule.distances) == list(training.learner.rule.distances) != []
    seen = {"x": np.array([0.3], np.float32)}
    np.testing.assert_array_equal(*[each.policy.act(seen, deterministic=True) for each in (training, again)])


def test_bad_settings_have_one_clear_error():
    with pytest.raises(InvalidSetting, match="divisor of episodes"):
        SRPOConfig(episodes=30, group=8)
    with pytest.raises(InvalidSetting, match="compared with its group"):
        SRPOConfig(episodes=30, group=1)
    learner = SRPOConfig(episodes=2, group=2).build(Line.environment_spec, 0)
    with pytest.raises(InvalidSetting, match="no notion"):
        learner.learn([_unknown()] * 2)


def _unknown():
    return make_episode({"x": np.zeros((3, 1), np.float32)}, actions=np.zeros((2, 1), np.float32), success=None)


@pytest.mark.slow
def test_a_recipe_trains_and_resumes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = [
        "--learner.network.hidden",
        "8",
        "--learner.episodes",
        "4",
        "--learner.group",
        "2",
        "--learner.cloning.updates",
        "5",
    ]
    quiet = ["--evaluation.every", "0", "--evaluation.episodes", "1", "--evaluation.videos", "0"]
    quick = ["--environment.arguments.max-steps", "40", "--steps", "170", "--demonstrations.episodes", "1"]
    assert dispatch(["train", "arm-pick-srpo", *small, *quiet, *quick]) == 0
    assert dispatch(["resume", "latest", "--steps", "340"]) == 0
