"""Several rewards as one: the sum, every value on the way, strict settings, and the same numbers recorded and running."""

import json
import re
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import yaml

from factories import make_spec
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rewards.programs.runner import end_workers
from robo_rl.rewards.shaping.pipeline import RewardPipeline
from robo_rl.rewards.shaping.stages import STAGES
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import settings_as, updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import online_training

SPEC = make_spec("test/Dot", ArraySpec("x", (1,)), max_steps=7)
LEVEL = """def reward(batch):
    near = 1 / (1 + batch["x"][:, 0] ** 2)
    effort = -0.1 * batch["action"][:, 0] ** 2
    return near + effort, {"near": near, "effort": effort}
"""
PHI = """def reward(batch):
    return -np.abs(batch["x"][:, 0]), {}
"""


class Dot(gymnasium.Env):
    """Walks on a line; ends at 1 or by the clock after 7 steps; its own reward is what no program would say."""

    environment_spec = SPEC
    observation_space = SPEC.observation.space
    action_space = SPEC.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = float(self.np_random.uniform(-0.5, 0.5)), 0
        return self._observation(), {}

    def step(self, action):
        self.x += 0.4 * float(action[0])
        self.steps += 1
        terminated = self.x > 1
        return self._observation(), 10.0 + self.steps, terminated, self.steps == 7 and not terminated, {"success": terminated}

    def _observation(self):
        return {"x": np.full(1, self.x, np.float32)}


class Observer:
    def __init__(self, save=None):
        self.save, self.metrics, self.returns = save, {}, []

    def on_episode(self, step, *, episode_return, **outcome):
        self.returns.append(episode_return)

    def on_metrics(self, step, metrics):
        self.metrics |= metrics

    def on_step(self, step, training):
        if self.save is not None and step == self.save[0]:
            save_checkpoint(self.save[1], Checkpoint(step, training.state_dict()))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    (folder / "level.py").write_text(LEVEL)
    (folder / "phi.py").write_text(PHI)
    (folder / "references.json").write_text(json.dumps({"scores": [1.0, 2.0]}))
    yield folder
    end_workers()


def program(files, **more):
    return {"reward": "program", "settings": {"path": str(files / "level.py")}, **more}


def full(files, discount=None, **changes):
    """One of everything that can be said in any place."""
    potential = {"program": str(files / "phi.py"), "weight": 0.5} | ({} if discount is None else {"discount": discount})
    settings = {
        "sources": [
            program(files, weight=2.0, stages=[{"stage": "bound", "settings": {"high": 0.8}}, {"stage": "delta"}]),
            {"environment": True, "weight": 0.01},
        ],
        "stages": [{"stage": "potential", "settings": potential}],
        **changes,
    }
    return settings_as(RewardPipeline, settings, source="the reward pipeline")


def episodes():
    return [rollout(Dot(), RandomPolicy(SPEC, seed), seed=seed) for seed in range(6)]


@pytest.mark.slow
def test_reward_is_shaped_sum_with_all_terms_reported(files):
    found = set()
    for episode in episodes():
        judged = full(files, 0.9).score_episode(episode)
        x = episode.observations["x"][:, 0].astype(np.float64)
        level = 1 / (1 + x[1:] ** 2) - 0.1 * episode.actions[:, 0].astype(np.float64) ** 2
        bound = np.minimum(level, 0.8)
        delta = np.diff(bound, prepend=0.0)
        after = np.abs(x[1:])
        if episode.terminated:
            after[-1] = 0.0
        total = 2 * delta + 0.01 * episode.rewards + 0.5 * (-0.9 * after + np.abs(x[:-1]))
        for name, wanted in {
            "program": level,
            "program/1_bound": bound,
            "program/2_delta": delta,
            "environment": episode.rewards,
            "of_environment": episode.rewards,
            "1_potential": total,
        }.items():
            np.testing.assert_allclose(judged.terms[name], wanted, rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(judged.total, total, rtol=1e-5, atol=1e-6)
        found.add(episode.terminated)
    assert found == {True, False}


def test_running_steps_are_paid_as_recorded_ones(files):
    """Whatever waits for how long: in pieces of any size."""
    for every in (1, 3, 100):
        online = full(files, every=every).online(SPEC, weight=1.0, discount=0.9)
        for episode in episodes():
            labels = full(files, 0.9).label(episode)
            (piece,) = online.labelled(episode, online.visible(SPEC))
            np.testing.assert_allclose(piece.rewards, labels.values, rtol=1e-5, atol=1e-6)
            assert piece.terminated == episode.terminated and labels.valid.all()


def test_environment_reward_counts_only_as_a_source(files):
    episode = episodes()[0]
    poisoned = replace(episode, rewards=np.full(len(episode), np.nan, np.float32))
    alone = RewardPipeline(sources=(program(files),))
    assert (alone.label(episode).values == alone.label(poisoned).values).all() and alone.label(poisoned).valid.all()
    assert np.isnan(alone.score_episode(poisoned).terms["of_environment"]).all()
    both = RewardPipeline(sources=(program(files), {"environment": True}))
    assert not both.label(poisoned).valid.any(), "a reward that is not finite is missing, not zero"


def sac(online, **settings):
    config = updated(SACConfig(), settings, network={"hidden": (8,)}, batch_size=8, replay={"capacity": 300})
    return online_training(Dot(), config.build(SPEC, 3), config.sampling, steps=60, seed=3, rewards=online.running(1))


@pytest.mark.slow
def test_a_training_logs_every_value_and_resumes_exactly(files, tmp_path):
    online = full(files, every=4).online(SPEC, weight=1.0, discount=0.99)

    def finished(training):
        observer = Observer()
        training.run(observer)
        state = training.state_dict()["learner"]["networks"]["actor"]
        return b"".join(np.asarray(state[name]).tobytes() for name in sorted(state)), observer

    whole, observer = finished(sac(online, replay={"learning_starts": 5}))
    logged = {name: value for name, value in observer.metrics.items() if name.startswith("reward/")}
    assert {
        "reward/program", "reward/program/1_bound", "reward/program/2_delta", "reward/environment", "reward/1_potential",
        "reward/of_environment", "reward/model_return", "reward/program/near", "reward/program/effort",
        "reward/program/missing", "reward/program/model_return", "reward/missing",
    } == set(logged)  # fmt: skip
    assert logged["reward/of_environment"] == pytest.approx(np.mean(observer.returns)), "beside, as it is reported"
    for step in (17, 23, 30):
        sac(online, replay={"learning_starts": 5}).run(Observer(save=(step, tmp_path / str(step))))
        resumed = sac(online, replay={"learning_starts": 5})
        resumed.load_state_dict(load_checkpoint(tmp_path / str(step)).parts)
        again, observer = finished(resumed)
        assert resumed.resumed == "exact" and again == whole and observer.metrics["reward/program"] == logged["reward/program"]


def test_rollouts_of_several_environments_learn_from_it(files):
    stages = [{"stage": "scale"}]
    online = full(files, stages=stages).online(SPEC, weight=1.0, discount=0.9)
    observer = Observer()
    config = PPOConfig(
        num_envs=3, steps_per_env=16, epochs=1, batch_size=16, network=PolicyValueNetwork(hidden=(8,)), discount=0.9
    )
    config.training(Dot, steps=96, seed=0, reward=online).run(observer)
    assert np.isfinite([*observer.metrics.values()]).all() and "reward/1_scale" in observer.metrics


def test_preferences_of_whole_episodes(files):
    stage = {"stage": "par", "settings": {"references": str(files / "references.json")}}
    model = RewardPipeline(sources=(program(files, stages=(stage,)), {"environment": True, "weight": 0.0}))
    values = model.label(episodes()[0]).values
    assert (values[:-1] == 0).all() and 0 < abs(values[-1]) < 0.5


def test_identity_follows_from_all_that_counts(files, tmp_path):
    one = full(files)
    assert one.identity == full(files, every=9).identity
    (tmp_path / "level.py").write_text(LEVEL)
    elsewhere = {"reward": "program", "settings": {"path": str(tmp_path / "level.py")}}
    assert RewardPipeline(sources=(elsewhere,)).identity == RewardPipeline(sources=(program(files),)).identity
    others = [
        full(files, 0.5),
        full(files, stages=[]),
        full(files, sources=[program(files)]),
        full(files, sources=[program(files, weight=2.0)]),
        full(files, sources=[program(files, stages=[{"stage": "delta"}])]),
    ]
    assert len({one.identity, *(other.identity for other in others)}) == 6


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"sources": []}, InvalidSetting, "A pipeline has no source"),
        ({"sources": [{"reward": "program"}]}, InvalidSetting, r"sources\[0\]: program lacks the key 'path'"),
        ({"sources": [{"environment": True, "wieght": 1}]}, UnknownName, "key in sources.0.: 'wieght'(.|\n)*'weight'"),
        ({"sources": [{"environment": True, "reward": "oracle"}]}, InvalidSetting, "a reward model or the environment's own"),
        ({"sources": [{}]}, InvalidSetting, "a reward model or the environment's own"),
        ({"sources": [{"reward": "orcale"}]}, UnknownName, "Unknown reward 'orcale'(.|\n)*'oracle'"),
        ({"sources": [{"environment": True}] * 2}, InvalidSetting, "Two sources are called 'environment'"),
        ({"stages": [{"stage": "clap"}]}, UnknownName, "Unknown stage 'clap'(.|\n)*'clip'"),
        ({"stages": [{"stage": "clip"}]}, InvalidSetting, r"the pipeline: stages\[0\], clip lacks the key 'at'"),
        ({"stages": [{"stage": "bound", "settings": {"hihg": 1}}]}, UnknownName, "'hihg'(.|\n)*'high'"),
        ({"stages": ["clip"]}, InvalidSetting, "stages has the wrong type(.|\n)*valid dictionary"),
        ({"sources": [{"reward": "rrd"}]}, InvalidSetting, r"sources\[0\]: the reward rrd is learned(.|\n)*name it alone"),
        ({"every": 0}, InvalidSetting, "'every' is out of range"),
    ],
)
def test_settings_are_strict(files, changes, error, words):
    with pytest.raises(error, match=words):
        full(files, **changes)


def test_the_page_shows_a_pipeline_and_names_every_stage():
    page = (Path(__file__).parents[2] / "docs" / "rewards/reward-shaping.md").read_text()
    told = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])["reward"]
    assert told["name"] == "pipeline"
    model = settings_as(RewardPipeline, told["settings"], source="the page")
    assert [part.name for part in model.parts] == ["program", "environment"] and len(model.shaping) == 1
    assert re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE)[: len(STAGES)] == [*STAGES]


def test_delayed_reward_is_refused_for_online_pipeline(files):
    with pytest.raises(InvalidSetting, match="another discount than the learner"):
        full(files, 0.5).online(SPEC, weight=1.0, discount=0.99)
    with pytest.raises(
        InvalidSetting, match=r"oracle of the pipeline cannot give rewards while a policy acts(.|\n)*such as program"
    ):
        RewardPipeline(sources=({"reward": "oracle"},)).online(SPEC, weight=1.0, discount=0.99)
    with pytest.raises(InvalidSetting, match="these episodes are recorded"):
        full(files, stages=[{"stage": "scale"}]).label(episodes()[0])
    with pytest.raises(InvalidSetting, match="potential needs the discount"):
        full(files).label(episodes()[0])
