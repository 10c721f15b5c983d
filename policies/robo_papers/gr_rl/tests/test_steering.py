"""Steering: the noise decides, the flow stays as it is, and a learner finds the way that is open."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from factories import axes, make_spec
from robo_bench.trainings import Silent
from robo_cli.main import dispatch
from robo_papers.gr_rl.steering import SteeredEnv
from robo_policies.learners.chunks import ResidualNetwork
from robo_policies.learners.diffusion_bc import DiffusionBCConfig
from robo_policies.learners.flow_bc import FlowBCConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.settings import Network
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.protocols.sampling import Replay
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import OfflineTraining, online_training


class Fork(gymnasium.Env):
    """One step, to the left or to the right; demonstrators took both, and the left is blocked."""

    environment_spec = make_spec("a/Fork", ArraySpec("place", (1,)), action=axes("side"), max_steps=1)
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"place": self.np_random.uniform(-1, 1, 1).astype(np.float32)}, {}

    def step(self, action):
        is_open = float(action[0]) > 0.3
        return {"place": np.zeros(1, np.float32)}, float(is_open), True, False, {"success": is_open}


class Either:
    """Left or right by chance."""

    environment_spec = Fork.environment_spec

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.array([self._random.choice([-0.7, 0.7])], np.float32)


SAMPLED = [np.array([place], np.float32) for place in np.linspace(-1, 1, 20)]
SAC = SACConfig(
    network=Network(hidden=(32, 32)),
    lr=3e-3,
    batch_size=64,
    replay=Replay(learning_starts=100, capacity=2000),
    initial_temperature=0.02,
)


def cloned(config, steps):
    episodes = [rollout(Fork(), Either(seed), seed=seed) for seed in range(100)]
    learner = config.build(Fork.environment_spec, 0)
    spec, sampling = Fork.environment_spec, config.sampling
    OfflineTraining(spec, learner, sampling, steps=steps, seed=0, demonstrations=episodes).run(Silent())
    return learner


@pytest.fixture(scope="module")
def flow():
    return cloned(
        FlowBCConfig(chunk=2, executed=1, network=ResidualNetwork(hidden=(32, 32)), batch_size=64, lr=1e-3, tau=0.05), 1500
    )


@pytest.mark.slow
def test_the_flow_takes_both_ways(flow):
    drawn = np.concatenate([flow.policy.act({"place": place}) for place in SAMPLED * 5])
    assert 0.25 < (drawn > 0.3).mean() < 0.75


@pytest.mark.slow
def test_the_noise_is_the_beginning_of_the_chunk(flow):
    seen, noise = {"place": SAMPLED[3]}, np.array([[0.4], [0.4]], np.float32)
    chunk = flow.policy.steered(seen, noise)
    assert chunk.shape == (2, 1)
    np.testing.assert_array_equal(chunk, flow.policy.steered(seen, noise))
    environment = SteeredEnv(Fork(), flow.policy, reach=0.8)
    np.testing.assert_array_equal(environment.acted(seen, np.array([0.5], np.float32)), chunk[0])


@pytest.mark.slow
def test_steering_finds_the_open_way_and_changes_no_weight(flow):
    before = {name: value.clone() for name, value in flow.velocity.state_dict().items()}
    averaged = {name: value.clone() for name, value in flow.averaged.state_dict().items()}
    environment = SteeredEnv(Fork(), flow.policy)
    learner = SAC.build(environment.environment_spec, 0)
    online_training(environment, learner, SAC.sampling, steps=600, seed=0).run(Silent())
    found = evaluate(learner.policy, environment, seeds=range(50))
    assert np.mean(found.successes) > 0.9
    for network, kept in ((flow.velocity, before), (flow.averaged, averaged)):
        assert all(torch.equal(value, kept[name]) for name, value in network.state_dict().items())


@pytest.mark.slow
def test_what_cannot_be_steered_is_refused(flow):
    with pytest.raises(InvalidSetting, match="nothing to steer"):
        SteeredEnv(Fork(), flow.policy, reach=0.0)
    diffusion = DiffusionBCConfig(chunk=2, executed=1, network=ResidualNetwork(hidden=(8,)), batch_size=8).build(
        Fork.environment_spec, 0
    )
    environment = SteeredEnv(Fork(), diffusion.policy)
    environment.reset(seed=0)
    with pytest.raises(InvalidSetting, match="flow policy"):
        environment.step(np.zeros(1, np.float32))


@pytest.mark.slow
def test_a_run_is_steered_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = str(tmp_path / "data")
    assert dispatch(["record", "robo/ArmReach-v0", "--episodes", "3", "--out", data]) == 0
    small = [
        "--learner.network.hidden",
        "16",
        "--learner.batch-size",
        "8",
        "--evaluation.every",
        "0",
        "--evaluation.episodes",
        "1",
    ]
    words = ["--dataset", data, "--steps", "3", *small, "--evaluation.videos", "0", "--checkpoint-every", "3"]
    assert dispatch(["train", "offline-flow-bc", "--name", "flow", *words]) == 0
    run = next(Path("runs").glob("*-flow-0"))
    environment = steered(base=run.name)
    spec = environment.environment_spec
    assert spec.name == "steered:robo/ArmReach-v0" and spec.action.size == 5 and spec.max_steps == 5
    episodes = [rollout(environment, Nothing(spec), seed=7) for _ in range(2)]
    np.testing.assert_array_equal(*[episode.observations["joint_position"] for episode in episodes])
    assert dispatch(["train", "offline-bc", "--name", "clone", *words]) == 0
    with pytest.raises(InvalidSetting, match="the one that begins"):
        steered(base="latest")
    with pytest.raises(InvalidSetting, match="cannot be steered"):
        steered(base=next(Path("runs").glob("*-clone-0")).name)


def steered(**settings):
    return make_environment("robo/ArmReach-v0", max_steps=5, wrappers=[{"name": "steered", **settings}])


class Nothing:
    def __init__(self, spec):
        self.environment_spec = spec

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.zeros(5, np.float32)
