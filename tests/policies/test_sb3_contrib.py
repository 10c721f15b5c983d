"""sb3-contrib behind our protocols: equal to it alone, a memory that an episode begins without, saved and resumed."""

from __future__ import annotations

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
import torch
from sb3_contrib import TQC, RecurrentPPO

from factories import rest_slow
from robo_bench.trainings import Silent
from robo_policies.sb3.contrib import RecurrentPPOConfig, TQCConfig
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.contract import Feature
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.training.compatibility import Capabilities

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"policy_kwargs": {"net_arch": [16]}}
MEMORY = {"policy_kwargs": {"net_arch": [16], "lstm_hidden_size": 8}, "n_steps": 64, "batch_size": 32, "n_epochs": 2}
REPLAY = {"buffer_size": 5000, "learning_starts": 50, "batch_size": 16, "train_freq": 4}
EQUAL = {
    "tqc": (TQCConfig(**REPLAY, **SMALL), lambda: TQC("MlpPolicy", cheetah_alone(), seed=3, **REPLAY, **deepcopy(SMALL))),
    "recurrent": (
        RecurrentPPOConfig(**MEMORY),
        lambda: RecurrentPPO("MlpLstmPolicy", cheetah_alone(), seed=3, device="cpu", **deepcopy(MEMORY)),
    ),
}


def cheetah_alone():
    return gymnasium.make("HalfCheetah-v5")


def cheetah():
    return make_environment("gymnasium/HalfCheetah-v5")


def parameters_of(model):
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(EQUAL))
def test_equals_plain_sb3_contrib_bit_for_bit(name):
    config, plain = EQUAL[name]
    alone = plain()
    untrained = parameters_of(alone)
    alone.learn(1088 if name == "recurrent" else 320)
    training = config.training(cheetah, steps=1088 if name == "recurrent" else 320, seed=3)
    torch.manual_seed(0)  # drawn by others in between
    training.run(Silent())
    ours, theirs = parameters_of(training.model), parameters_of(alone)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert not all(torch.equal(untrained[key], theirs[key]) for key in theirs)


def bandit():
    return make_environment("bandits/Map-v0", arms=2, pulls=4)


def walked(policy, seeds=(0, 1)):
    environment, found = bandit(), []
    for seed in seeds:
        observation, _ = environment.reset(seed=seed)
        policy.reset()
        for _ in range(4):
            found.append(policy._model.policy.get_distribution)  # the same network throughout
            action = policy.act(observation, deterministic=True)
            found[-1] = (int(action), tuple(np.concatenate([each.ravel() for each in policy._memory])))
            observation, *_ = environment.step(action)
    return found


def test_an_episode_begins_without_the_memory_of_another():
    policy = RecurrentPPOConfig(**MEMORY).training(bandit, steps=64, seed=0).policy
    alone = walked(policy, seeds=(1,))
    assert walked(policy, seeds=(0, 1))[4:] == alone
    assert len({memory for _, memory in alone}) == 4  # and changes it at each step


def test_an_action_depends_on_what_was_seen_before():
    policy = RecurrentPPOConfig(**MEMORY).training(bandit, steps=64, seed=0).policy
    environment, memories = bandit(), []
    blank, _ = environment.reset(seed=0)
    for first in (0, 1):
        environment.reset(seed=0)
        policy.reset()
        policy.act(environment.step(np.asarray(first))[0], deterministic=True)
        policy.act(blank, deterministic=True)
        memories.append(np.concatenate([each.ravel() for each in policy._memory]))
    assert not np.allclose(*memories)


@pytest.mark.slow
def test_memory_and_networks_are_saved(tmp_path):
    config = RecurrentPPOConfig(**MEMORY)
    training = config.training(bandit, steps=128, seed=0)
    training.run(Silent())
    observation, _ = bandit().reset(seed=0)
    training.policy.act(observation)
    save_checkpoint(tmp_path, Checkpoint(64, {"training": training.state_dict(), "policy": training.policy.state_dict()}))
    saved = load_checkpoint(tmp_path, 64).parts
    other = config.training(bandit, steps=256, seed=1)
    other.load_state_dict(saved["training"])
    other.policy.load_state_dict(saved["policy"])
    for _ in range(5):
        assert training.policy.act(observation) == other.policy.act(observation)
    other.run(Silent())
    assert other.step == 256 and other.resumed == "warm"


def test_it_refuses_what_a_memory_cannot_use():
    able = Capabilities.of(load("learners", "sb3-recurrent-ppo")())
    assert not {Feature.REWARD, Feature.DEMONSTRATIONS} & able.features
    with pytest.raises(InvalidSetting, match="not cloned"):
        RecurrentPPOConfig(clone_epochs=3)
