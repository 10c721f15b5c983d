"""Environments in worlds: conformance, seeds, starts, limits, divergence, many at once, learners inside."""

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env as gymnasium_check
from stable_baselines3 import SAC
from stable_baselines3.common.env_checker import check_env as stable_baselines_check
from worlds.point import SPEC, learned
from worlds.point import episode as recorded

from robo_cli.data.info import summary_of
from robo_datasets.dataset import Dataset
from robo_datasets.profile import profile
from robo_datasets.recorder import record_episode
from robo_policies.learners.sac import SACConfig
from robo_rl.collectors.segments import Segment, SegmentCollector
from robo_rl.conformance.environments import ENVIRONMENT_CHECKS
from robo_rl.conformance.trainings import Log
from robo_rl.conformance.vector import VECTOR_CHECKS, Subject
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import CheckpointCorrupt, InvalidSetting, RenderingUnavailable, UnknownName
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.protocols.contract import ONLINE, ONLINE_IN_MANY
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import specification
from robo_rl.training.plan import TrainingPlan
from robo_rl.types import DIVERGED, ActionSource


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("worlds") / "point"
    learned().save(path)
    return path


@pytest.mark.parametrize("check", ENVIRONMENT_CHECKS, ids=lambda check: check.__name__)
def test_world_keeps_the_rule(folder, check):
    check(partial(make_environment, f"world:{folder}"))


@pytest.mark.parametrize("check", VECTOR_CHECKS, ids=lambda check: check.__name__)
def test_worlds_side_by_side_keep_the_rule(folder, check):
    check(Subject(f"world:{folder}"))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_and_sb3_accept_it(folder):
    gymnasium_check(make_environment(f"world:{folder}"), skip_render_check=True)
    stable_baselines_check(make_environment(f"world:{folder}"), warn=False)


def test_every_step_is_told_to_be_imagined(folder):
    environment = make_environment(f"world:{folder}")
    assert specification(environment) == SPEC
    episode = rollout(environment, RandomPolicy(SPEC, 0), seed=0)
    assert set(episode.sources.tolist()) == {int(ActionSource.IMAGINED)}
    many = make_vector_environment(f"world:{folder}", 4, autoreset_mode="SameStep")
    many.reset(seed=0)
    infos = many.step(np.zeros((4, 1), np.float32))[4]
    assert infos["action_source"].tolist() == [5] * 4


def test_collectors_send_that_steps_are_imagined(folder):
    environment, policy = make_environment(f"world:{folder}"), RandomPolicy(SPEC, 0)
    collector = SegmentCollector(environment, policy, seed=0, birth=0)
    found = Segment(collector.handle({"steps": 5, "is_random": True, "version": 0}))
    assert {step.source for step in found.transitions()} == {ActionSource.IMAGINED}


class VectorEnvironments:
    """Makes the environments of a training, one or many at once."""

    def __init__(self, name):
        self.name = name

    def __call__(self):
        return make_environment(self.name)

    def make_vector(self, count):
        return make_vector_environment(self.name, count, autoreset_mode="SameStep")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_replay_memory_marks_imagined_rows(folder, count):
    name = f"world:{folder}"
    loop, factory = ONLINE, partial(make_environment, name)
    if count > 1:
        loop, factory = ONLINE_IN_MANY, VectorEnvironments(name)
    config = updated(SACConfig(), {"network": {"hidden": (8,)}, "batch_size": 8, "replay": {"learning_starts": 16}})
    training = TrainingPlan(config, loop, SPEC, factory, 60, 0, count=count).training()
    training.run(Log())
    rows = training.step_learner.replay.state_dict()["rows"]
    assert rows["starts"].sum() > 50 and set(rows["source"][rows["starts"]].tolist()) == {int(ActionSource.IMAGINED)}


@pytest.mark.slow
def test_dataset_says_that_it_has_imagined_episodes(folder, tmp_path):
    real, both = Dataset.create(tmp_path / "real", SPEC), Dataset.create(tmp_path / "both", SPEC, {"environment": "mine"})
    with real.writer() as writer:
        writer.add(recorded(0))
    assert "imagined" not in summary_of(real)["card"]
    with both.writer() as writer:
        writer.add(recorded(1))
        record_episode(make_environment(f"world:{folder}"), RandomPolicy(SPEC, 0), writer, seed=0, source="random")
    assert summary_of(Dataset(both.path))["card"] == both.card and "a learned world imagined steps" in both.card["imagined"]
    assert profile(both)["acted"].keys() == {"policy", "imagined"}
    with real.writer() as writer:
        writer.copy(both, both.entries()[0])
        assert "imagined" not in real.card
        writer.copy(both, both.entries()[1])
    assert "imagined" in Dataset(real.path).card


def test_evaluations_say_that_they_are_imagined(folder):
    found = evaluate(RandomPolicy(SPEC, 0), make_environment(f"world:{folder}"), seeds=[0, 1])
    assert "imagined in a learned world" in str(found)


def test_limit_is_a_truncation_and_ends_terminate(folder):
    environment = make_environment(f"world:{folder}", horizon=5)
    assert specification(environment).max_steps == 5
    environment.reset(seed=0, options={"observation": {"place": np.zeros(1, np.float32), "goal": np.ones(1, np.float32)}})
    steps = [environment.step(np.zeros(1, np.float32)) for _ in range(5)]
    assert [step[3] for step in steps] == [False] * 4 + [True] and not any(step[2] for step in steps)
    assert steps[-1][4]["stop_reason"] == "time_limit"
    begin = {"place": np.full(1, 0.9, np.float32), "goal": np.ones(1, np.float32)}
    observation, _ = environment.reset(options={"observation": begin})
    assert observation["place"] == np.float32(0.9)
    _, _, terminated, truncated, info = environment.step(np.ones(1, np.float32))
    assert terminated and not truncated and info["success"] is True and info["stop_reason"] == "goal"


def test_penalty_costs_reward(folder):
    free, costly = (make_environment(f"world:{folder}", penalty=penalty) for penalty in (0, 5.0))
    for environment in (free, costly):
        environment.reset(seed=0)
    paid, less = (environment.step(np.ones(1, np.float32))[1] for environment in (free, costly))
    assert less < paid
    for wrong in (-1.0, True, float("nan"), "much"):
        with pytest.raises(InvalidSetting, match="penalty is out of range"):
            make_environment(f"world:{folder}", penalty=wrong)


def test_starts_are_recorded_states(folder):
    firsts = make_environment(f"world:{folder}")
    seen = {float(firsts.reset(seed=seed)[0]["place"][0]) for seed in range(20)}
    assert seen <= set(learned().firsts[:, 0].tolist()) and len(seen) > 5
    anywhere = make_environment(f"world:{folder}", starts="any")
    seen = {float(anywhere.reset(seed=seed)[0]["place"][0]) for seed in range(50)}
    assert seen <= set(learned().states[:, 0].tolist()) and max(map(abs, seen)) > 0.5


def broken(tmp_path):
    """Returns the folder of a world whose predictions are NaN."""
    world = learned()
    dynamics = type(world.dynamics)(2, 1, world.dynamics.config)
    dynamics.load_state_dict(world.dynamics.state_dict())
    with torch.no_grad():
        dynamics.centre[0] = torch.nan
    replace(world, dynamics=dynamics).save(tmp_path / "broken")
    return tmp_path / "broken"


def test_nan_ends_the_episode_as_diverged(tmp_path):
    environment = make_environment(f"world:{broken(tmp_path)}")
    first, _ = environment.reset(seed=0)
    observation, reward, terminated, truncated, info = environment.step(np.zeros(1, np.float32))
    assert (reward, terminated, truncated, info["stop_reason"]) == (0.0, False, True, DIVERGED)
    np.testing.assert_array_equal(observation["place"], first["place"])
    many = make_vector_environment(f"world:{tmp_path / 'broken'}", 3, autoreset_mode="SameStep")
    many.reset(seed=0)
    found = many.step(np.zeros((3, 1), np.float32))
    assert found[3].all() and np.isfinite(found[0]["place"]).all()


def test_wrong_addresses_and_arguments_are_refused(folder, tmp_path):
    with pytest.raises(CheckpointCorrupt, match="There is no world in nowhere"):
        make_environment("world:nowhere")
    with pytest.raises(UnknownName, match="starts"):
        make_environment(f"world:{folder}", starts="middle")
    with pytest.raises(InvalidSetting, match="horizon is out of range"):
        make_environment(f"world:{folder}", horizon=0)
    with pytest.raises(InvalidSetting, match=r"other arguments(.|\n)*no argument action_repeat"):
        make_environment(f"world:{folder}", action_repeat=3)
    replace(learned(), facts={**learned().facts, "arguments": {"action_repeat": 3}}).save(tmp_path / "w")
    make_environment(f"world:{tmp_path / 'w'}", action_repeat=3)  # as recorded, from the recipe of the real environment
    with pytest.raises(InvalidSetting, match=r"other arguments(.|\n)*action_repeat 2(.|\n)*action_repeat 3"):
        make_environment(f"world:{tmp_path / 'w'}", action_repeat=2)


@pytest.mark.slow
def test_it_draws_only_what_the_environment_can_draw(folder):
    environment = make_environment(f"world:{folder}", render_mode="rgb_array")
    environment.reset(seed=0)
    with pytest.raises((RenderingUnavailable, UnknownName)):
        environment.render()


def test_saved_imaginations_go_on_bit_for_bit(folder):
    one, other = (make_vector_environment(f"world:{folder}", 3, autoreset_mode="SameStep") for _ in range(2))
    one.reset(seed=1)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 3, 1)).astype(np.float32)
    for action in actions[:10]:
        one.step(action)
    other.load_state_dict(one.state_dict())
    for action in actions[10:]:
        a, b = one.step(action), other.step(action)
        assert a[0]["place"].tobytes() == b[0]["place"].tobytes() and a[1].tobytes() == b[1].tobytes()


@pytest.mark.slow
def test_sb3_trains_inside(folder):
    environment = make_environment(f"world:{folder}")
    assert isinstance(environment, gymnasium.Env)
    model = SAC("MultiInputPolicy", environment, learning_starts=20, policy_kwargs={"net_arch": [8]}, device="cpu", seed=0)
    model.learn(40)
    assert model.num_timesteps == 40
