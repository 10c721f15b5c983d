"""GTR: losses by hand, corrections that are kept, and learning that neither rewards nor a bad corrector give."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from factories import axes, make_spec
from robo_bench.trainings import Silent
from robo_cli.main import dispatch
from robo_papers.gtr.learner import CORRECTED, GTRConfig
from robo_papers.gtr.study import KINDS, learned, phases
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec


class Gate(gymnasium.Env):
    """A point that must follow a wave for ten steps to be paid at all."""

    environment_spec = make_spec("a/Gate", ArraySpec("place", (2,)), action=axes("dx"), max_steps=10)
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._x, self._steps, self._worst = 0.0, 0, 0.0
        return self._seen(), {}

    def _seen(self):
        return {"place": np.array([self._x, np.sin(self._steps)], np.float32)}

    def step(self, action):
        self._x += float(action[0])
        self._steps += 1
        self._worst = max(self._worst, abs(self._x - 0.5 * np.sin(self._steps - 1)))
        done, success = self._steps == 10, self._worst < 0.3
        return self._seen(), float(done and success), False, done, {"success": done and success}

    def scripted_policy(self, seed, noise=0.0):
        return Follower(seed, noise)


class Follower:
    environment_spec = Gate.environment_spec

    def __init__(self, seed, noise):
        self._random, self._noise = np.random.default_rng(seed), noise

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        x, wave = observation["place"]
        wanted = 0.5 * wave - x
        noise = self._random.normal(0.0, self._noise) if self._noise else 0.0
        return np.clip(np.array([wanted + noise], np.float32), -1.0, 1.0)


SETTINGS = {"network": {"hidden": (32,)}, "lr": 3e-3, "episodes": 16, "fades_over": 40, "batch_size": 64}


def trained(steps=8000, **settings):
    training = updated(GTRConfig(), SETTINGS, settings).training(Gate, steps=steps, seed=0)
    training.run(Silent())
    return training


def success(training):
    return float(np.mean(evaluate(training.policy, Gate(), seeds=range(20)).successes))


@pytest.mark.slow
def test_corrections_teach_and_rewards_alone_do_not():
    assert success(trained(5000)) > 0.9
    assert success(trained(5000, weight=0.0)) < 0.1


@pytest.mark.slow
def test_a_corrector_of_noise_teaches_nothing():
    assert success(trained(corrector_noise=3.0, reward_weight=0.0)) < 0.5  # hardly anything to copy


def test_loss_of_corrections_is_their_mean_surprise():
    training = trained(160, weight=0.5, corrections=1, remembered=1, fades_over=0)
    (term,), actor = training.learner.terms, training.learner.actor
    ((row, action),) = term.kept
    encoder = actor.parts.encoder
    seen = {"place": row["place"][None]}
    features = encoder(encoder.tensors(encoder.stack(seen), seen, actor.parts.device))
    expected = -0.5 * actor.log_densities(features, torch.from_numpy(action[None]))
    assert term.loss(*3 * [torch.zeros(0)]).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.slow
def test_weight_fades_to_nothing_and_may_stay():
    training = trained(480, fades_over=4)  # three updates
    assert weight_of(training) == pytest.approx(0.25)
    assert weight_of(trained(160 * 5, fades_over=4)) == 0.0
    assert weight_of(trained(480, fades_over=0, weight=0.7)) == 0.7
    assert GTRConfig().fades_over == 0, "faded corrections lose on the arm (page.md)"


def weight_of(training):
    return training.learner.terms[0].weight


def test_corrector_sees_every_step_of_the_policy_in_order():
    training = trained(0)
    episode = training.player.play(0)
    observed = [{name: values[step] for name, values in episode.observations.items()} for step in range(len(episode))]
    np.testing.assert_array_equal(episode.metadata[CORRECTED], [Follower(0, 0.0).act(each) for each in observed])
    assert not np.array_equal(episode.metadata[CORRECTED], episode.actions)


def test_a_resume_remembers_corrections():
    training = trained(480)
    again = trained(0)
    again.load_state_dict(training.state_dict())
    terms = [each.learner.terms[0] for each in (again, training)]
    assert again.step == training.step and len(terms[0].kept) == len(terms[1].kept) > 0
    losses = [term.loss(*3 * [torch.zeros(0)]).item() for term in terms]
    assert losses[0] == pytest.approx(losses[1])
    fresh = trained(0)
    fresh.load_state_dict(trained(0).state_dict())
    assert not fresh.learner.terms[0].kept


def test_environment_without_corrector_is_refused():
    class Alone(Gate):
        scripted_policy = None

        def has_wrapper_attr(self, name):
            return name != "scripted_policy"

    with pytest.raises(InvalidSetting, match="no corrector"):
        GTRConfig().training(Alone, steps=10, seed=0)


@pytest.mark.slow
def test_orders_of_the_grid():
    """Noise in corrections averages out, bias does not: faded or filtered, reward mends both."""
    found = [np.mean([learned(kind, seed) for seed in range(2)]) for kind in KINDS]
    outcome, at_random, cloned, both, faded, wrong, wrong_too, filtered = found
    assert max(outcome, at_random, wrong, wrong_too) < 0.25
    assert cloned < both < faded and faded > 0.95 and filtered > 0.95


@pytest.mark.slow
def test_what_the_outcome_does_not_grade_is_lost():
    """A clone's second head drifts under the outcome, and stays with corrections."""
    (success_alone, alone), (success_with, corrected) = phases(0.0, 0), phases(0.1, 0)
    assert success_alone > 0.95 and success_with > 0.95
    assert alone < 0.9 and corrected > 0.95


@pytest.mark.slow
def test_line_from_command_to_policy(tmp_path):
    quick = ["--steps", "400", "--evaluation.every", "0", "--evaluation.episodes", "2", "--evaluation.videos", "0"]
    assert dispatch(["train", "arm-reach-gtr", *quick, "--out", str(tmp_path)]) == 0
