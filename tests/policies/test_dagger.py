"""DAgger: who acts, what is labelled and cloned, and a resume that goes on exactly."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from factories import axes, choices, make_episode, make_spec, rest_slow
from robo_policies.learners.dagger import DAggerConfig, LabelledEnv
from robo_rl.errors import InvalidSetting, SpecMismatch
from robo_rl.extras import ExpertActions
from robo_rl.protocols.contract import Feature
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.rollout.episode import Rollout, rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.compatibility import require_loop
from robo_rl.training.off_policy import online_training
from robo_rl.types import ActionSource

SMALL = updated(DAggerConfig(), network={"hidden": (16,)}, batch_size=16, replay={"learning_starts": 20, "capacity": 2_000})


class Drift(gymnasium.Env):
    """A point that is pushed away; its expert pushes it back, and remembers the steps of its episode."""

    environment_spec = make_spec("a/Drift", ArraySpec("place", (2,), unit="m"), action=axes("x", "y"), max_steps=12)
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.received, self._place = [], self.np_random.uniform(-0.5, 0.5, 2).astype(np.float32)
        return {"place": self._place}, {}

    def step(self, action):
        self.received.append(np.array(action))
        self._place = (self._place * 1.1 + 0.2 * action).astype(np.float32)
        over = len(self.received) >= 12
        return {"place": self._place}, -float(np.abs(self._place).sum()), False, over, {"success": False}


class Back:
    """The expert; its label says how many steps it has seen."""

    environment_spec = Drift.environment_spec

    def __init__(self, seed):
        self.seed = seed

    def reset(self):
        self.steps = 0

    def act(self, observation, *, deterministic=False):
        assert deterministic, "labels carry no noise"
        self.steps += 1
        return np.clip([-0.5 * observation["place"][0], 0.01 * self.steps], -1, 1).astype(np.float32)


class Zero:
    environment_spec = Drift.environment_spec

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.zeros(2, np.float32)


def labelled(share=0.0, noise=0.0):
    return LabelledEnv(Drift(), Back, share=share, noise=noise)


def test_every_step_is_labelled_for_the_observation_before_it():
    environment = labelled()
    observation, _ = environment.reset(seed=4)
    for step in range(1, 13):
        expected = [max(-0.5 * observation["place"][0], -1), 0.01 * step]
        observation, *_, info = environment.step(np.full(2, 0.3, np.float32))
        np.testing.assert_allclose(info["expert_action"], expected, rtol=1e-6)
        np.testing.assert_allclose(info["executed_action"], 0.3)
        assert "action_source" not in info


def test_expert_acts_in_its_share_of_episodes():
    environment = labelled(share=0.3, noise=0.1)
    acts, sent = [], np.full(2, 0.9, np.float32)
    for seed in range(300):
        environment.reset(seed=seed)
        infos = [environment.step(sent)[-1] for _ in range(3)]
        acted = {info.get("action_source") is ActionSource.SCRIPT for info in infos}
        assert len(acted) == 1, "one of them acts in all of an episode"
        wanted = infos[0]["expert_action"] if acted == {True} else sent
        assert np.abs(infos[0]["executed_action"] - wanted).max() < 0.5
        acts += acted
    assert np.mean(acts) == pytest.approx(0.3, abs=0.06)


def test_noise_has_its_deviation_and_no_label_has_it():
    environment = labelled(noise=0.1)
    executed, labels = [], []
    for seed in range(60):
        observation, _ = environment.reset(seed=seed)
        for _ in range(12):
            label = -0.5 * observation["place"][0]
            observation, *_, info = environment.step(np.zeros(2, np.float32))
            executed.append(info["executed_action"])
            labels.append(info["expert_action"][0] - np.clip(label, -1, 1))
    assert np.std(executed) == pytest.approx(0.1, rel=0.08)
    np.testing.assert_allclose(labels, 0, atol=1e-6)


def test_an_episode_follows_from_its_seed_and_resumes():
    one, other = (rollout(labelled(0.5, 0.2), Zero(), seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.actions, other.actions)
    begun = Rollout(labelled(0.5, 0.2), Zero(), seed=7)
    for _ in range(5):
        begun.step()
    resumed = Rollout.resume(labelled(0.5, 0.2), Zero(), begun.state_dict())
    assert resumed.exact
    while not resumed.done:
        resumed.step()
    np.testing.assert_array_equal(resumed.episode().actions, one.actions)


def test_discrete_noise_is_a_random_choice():
    class Doors(Drift):
        environment_spec = make_spec("a/Doors", ArraySpec("place", (2,)), action=choices("a", "b", "c"))

        def step(self, action):
            return {"place": self._place}, 0.0, False, False, {}

    class First(Zero):
        environment_spec = Doors.environment_spec

        def act(self, observation, *, deterministic=False):
            return np.asarray(2)

    environment = LabelledEnv(Doors(), lambda _: First(), share=0.0, noise=0.3)
    environment.reset(seed=0)
    infos = [environment.step(0)[-1] for _ in range(600)]
    assert {int(info["expert_action"]) for info in infos} == {2}
    assert np.mean([int(info["executed_action"]) != 0 for info in infos]) == pytest.approx(0.2, abs=0.05)
    with pytest.raises(InvalidSetting, match="out of range"):
        LabelledEnv(Doors(), lambda _: First(), noise=1.5)


@pytest.mark.parametrize("settings", [{"share": -0.1}, {"share": 1.1}, {"noise": -1.0}, {"noise": float("nan")}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(InvalidSetting, match="out of range"):
        LabelledEnv(Drift(), Back, **settings)


def test_expert_of_another_environment_is_refused():
    class Other(Zero):
        environment_spec = make_spec("a/Other", ArraySpec("place", (3,)), action=axes("x", "y"))

    with pytest.raises(SpecMismatch, match="base policy"):
        LabelledEnv(Drift(), lambda _: Other()).reset(seed=0)


@pytest.mark.slow
def test_labels_are_cloned_and_not_what_was_executed():
    spec = Drift.environment_spec
    learner = updated(SMALL, network={"hidden": (32, 32)}, lr=3e-3).build(spec, 0)
    training = online_training(labelled(0.2, 0.3), learner, updated(SMALL, lr=3e-3).sampling, steps=1_500, seed=0)
    training.run(Silent())
    place = np.array([[0.6, -0.3], [-0.8, 0.4]], np.float32)
    acted = [learner.policy.act({"place": each}, deterministic=True)[0] for each in place]
    np.testing.assert_allclose(acted, -0.5 * place[:, 0], atol=0.06)


class Silent:
    def on_episode(self, *_, **__):
        pass

    on_metrics = on_step = on_episode


class StopAt(Silent):
    def __init__(self, step):
        self._step, self.state = step, None

    def on_step(self, step, training):
        if step == self._step:
            self.state = training.state_dict()


def built():
    learner = SMALL.build(Drift.environment_spec, 0)
    return online_training(labelled(0.3, 0.1), learner, SMALL.sampling, steps=90, seed=3)


@pytest.mark.parametrize("step", rest_slow([37, 5, 48]))
def test_resumed_training_equals_the_uninterrupted(step, leaves):
    whole, half = StopAt(90), StopAt(step)
    built().run(whole)
    first = built()
    first.run(half)
    second = built()
    second.load_state_dict(half.state)
    assert second.resumed == "exact"
    end = StopAt(90)
    second.run(end)
    for one, other in zip(leaves(whole.state["learner"]), leaves(end.state["learner"]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_shuffled_labels_are_those_of_other_steps():
    memory = ReplayBuffer(Drift.environment_spec, 100, 0, extras=(ExpertActions(shuffled=True),))
    steps = np.linspace(-1, 1, 40, dtype=np.float32)
    episode = make_episode(
        {"place": np.stack([np.append(steps, 0)] * 2, axis=1).astype(np.float32)}, actions=np.stack([steps, steps], axis=1)
    )
    memory.add_episode(episode)
    batch = memory.sample(400)
    assert abs(np.corrcoef(batch.observations["place"][:, 0], batch.extras["expert_actions"][:, 0])[0, 1]) < 0.2
    assert {*batch.extras["expert_actions"][:, 0]} <= {*steps}


def test_recorded_episodes_are_their_own_labels():
    episode = make_episode({"place": np.zeros((4, 2), np.float32)}, actions=np.full((3, 2), 0.25, np.float32))
    assert ExpertActions().record_episode(episode)["expert_action"] is episode.actions


def test_an_environment_without_labels_is_refused():
    with pytest.raises(InvalidSetting, match=r"an expert's action for each step(.|\n)*environment.wrappers.labelled"):
        online_training(Drift(), SMALL.build(Drift.environment_spec, 0), SMALL.sampling, steps=5, seed=0).run(Silent())


def test_a_person_is_for_hg_dagger():
    with pytest.raises(InvalidSetting, match="take hg-dagger"):
        require_loop("dagger", SMALL, {Feature.PERSON, Feature.CONTINUOUS})
