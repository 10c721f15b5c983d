"""PPO on a device beside the CPU, without one: meta tensors stand for it, and moving data implicitly is an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from robo_policies.learners import ppo
from robo_policies.learners.clipped_step import clipped_surrogate
from robo_policies.learners.ppo import PPO, PPOConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.on_policy import VectorStep

SMALL = PPOConfig(num_envs=4, steps_per_env=8, batch_size=16, epochs=2, network=PolicyValueNetwork(hidden=(8, 6)))
FLOAT = np.float32
aten = torch.ops.aten


class PretendDevice(TorchDispatchMode):
    """Meta tensors are those of an accelerator: explicit copies to the CPU give ones, all else must not mix devices."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        kinds = {each.device.type for each in tensors}
        if func.overloadpacket in (aten._to_copy, aten.to):  # the latter in inference mode
            given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.device)]
            target = given[0] if given else args[0].device
            if kinds == {"meta"} and target.type == "cpu":
                self.copies += 1
                return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        elif func is aten.copy_.default:
            if args[0].device.type == "cpu" and args[1].device.type == "meta":
                self.copies += 1
                return args[0].fill_(1)
        elif "meta" in kinds and func is aten._local_scalar_dense.default:
            raise AssertionError("a number is read from the device implicitly")
        elif len(kinds) > 1 and any(each.ndim for each in tensors if each.device.type == "cpu"):
            raise AssertionError(f"{func} mixes {sorted(kinds)}")
        return func(*args, **kwargs)


@pytest.fixture
def pretended(monkeypatch):
    """Makes a learner on the pretended device."""

    def make(spec: EnvironmentSpec, config: PPOConfig = SMALL) -> PPO:
        monkeypatch.setattr(ppo, "resolve_device", lambda name: torch.device("meta"))
        return PPO(spec, config, 0)

    return make


def fill(learner: PPO) -> None:
    random, count = np.random.default_rng(0), 4
    observed = {
        "joint_position": random.normal(size=(count, 2)).astype(FLOAT),
        "camera_front": random.integers(0, 256, (count, 2, 2, 3)).astype(np.uint8),
        "object_mass": random.normal(size=(count, 1)).astype(FLOAT),
        "goal": random.normal(size=(count, 1)).astype(FLOAT),
    }
    finals, no = {name: value[:1] for name, value in observed.items()}, np.zeros(count, bool)
    learner.begin(observed)
    while not learner.is_ready:
        learner.act()
        learner.observe(VectorStep(observed, random.normal(size=count), no, np.arange(count) == 0, finals))


CASES = {
    "plain": SMALL,
    "normal": updated(SMALL, network={"acting_device": "cpu"}, entropy_coefficient=0.01, target_kl=0.01),
    "driver": updated(
        SMALL, network={"distribution": "beta", "convolutions": (4,), "acting_device": "cpu"}, privileged_critic=True
    ),
    "beta": updated(SMALL, network={"distribution": "beta"}, entropy_coefficient=0.01),
}


@pytest.mark.parametrize("case", CASES)
def test_update_mixes_no_devices(case, spec, pretended):
    learner = pretended(spec, CASES[case])
    with PretendDevice() as device:
        fill(learner)
        acting = device.copies
        metrics = learner.update()
        assert device.copies < 20 + len([*learner.networks.parameters()]) * 4, "metrics come back once per update"
    assert learner.parameters.device.type == "meta" and learner.kernel is None and len(metrics) > 8
    acts_apart = CASES[case].network.acting_device == "cpu"
    assert acts_apart == all(each.device.type == "cpu" for each in learner.acting_networks.parameters())
    assert (acting == 0) == acts_apart, "acting on the CPU asks nothing of the device"


def test_choices_mix_no_devices(discrete_spec, pretended):
    with PretendDevice():
        learner = pretended(discrete_spec, replace(SMALL, entropy_coefficient=0.01))
        fill(learner)
        learner.update()


def careless(ratio, advantages, low, high):
    return clipped_surrogate(ratio, advantages * torch.ones(len(ratio)), low, high)


def chatty(ratio, advantages, low, high):
    return clipped_surrogate(ratio, advantages, low, high) * float(ratio.sum() >= 0)


@pytest.mark.parametrize(("surrogate", "words"), [(careless, r"mixes \['cpu', 'meta'\]|device"), (chatty, "implicitly")])
def test_mixed_devices_are_found(surrogate, words, spec, pretended, monkeypatch):
    learner = pretended(spec)
    monkeypatch.setattr(ppo, "clipped_surrogate", surrogate)
    with PretendDevice():
        fill(learner)
        with pytest.raises((AssertionError, RuntimeError), match=words):
            learner.update()


def test_absent_device_is_one_clear_error(spec):
    with pytest.raises(InvalidSetting, match=r"no such device(.|\n)*cpu"):
        replace(SMALL, device="cuda:7").build(spec, 0)
    assert replace(SMALL, device="auto").build(spec, 0).parameters.device.type in ("cpu", "cuda", "mps")


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_checkpoint_moves_between_devices(case, spec):
    learner = replace(CASES[case], device="cuda").build(spec, 0)
    fill(learner)
    learner.update()
    moved = replace(CASES[case], device="cpu").build(spec, 1)
    moved.load_state_dict(learner.state_dict())
    for each in (learner, moved):
        fill(each)
    moved.buffer.actions[:] = learner.buffer.actions
    assert learner.update() == pytest.approx(moved.update(), rel=1e-2, abs=1e-3)
    np.testing.assert_allclose(learner.parameters.cpu(), moved.parameters, atol=1e-3)


# networks of one's own


class Own(nn.Module):
    """Reads both joints and the picture, as uint8."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        super().__init__()
        self.size = 5
        self.layer = nn.Linear(2 + 12, 5)
        self.unused = nn.Linear(2, 2)

    def forward(self, observations):
        assert observations["camera_front"].dtype == torch.uint8 and "object_mass" not in observations
        picture = observations["camera_front"].flatten(1) / 255
        return self.layer(torch.cat((observations["joint_position"], picture), 1)).relu()


class OwnTrunk(nn.Module):
    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.size = 7
        self.layer = nn.Linear(inputs, 7)

    def forward(self, features):
        return self.layer(features).relu()


NAMES = [("encoder", "Own"), ("actor", "OwnTrunk"), ("critic", "OwnTrunk")]


@pytest.mark.parametrize("chosen", [NAMES[:1], NAMES[1:2], NAMES[2:], NAMES])
@pytest.mark.parametrize("privileged", [False, True])
@pytest.mark.parametrize("hidden", [(8, 6), ()])
def test_networks_of_ones_own_are_trained(chosen, privileged, hidden, spec, leaves):
    settings = {name: f"{__name__}:{kind}" for name, kind in chosen}
    config = updated(SMALL, privileged_critic=privileged, network={"hidden": hidden, **settings})
    learners = [config.build(spec, 0) for _ in range(2)]
    before = {name: value.clone() for name, value in learners[0].networks.named_parameters()}
    for learner in learners:
        fill(learner)
        learner.update()
    after = dict(learners[0].networks.named_parameters())
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert {name for name in before if "unused" not in name} == moved
    assert (learners[0].kernel is None) == any(name != "encoder" for name in settings)
    assert leaves(learners[0].state_dict()) == leaves(learners[1].state_dict()), "the seed determines everything"
    copy = config.build(spec, 3)
    copy.load_state_dict(learners[0].state_dict())
    observation = {"joint_position": np.ones(2, FLOAT), "goal": np.ones(1, FLOAT), "camera_front": np.ones((2, 2, 3), np.uint8)}
    actions = [each.policy.act(observation, deterministic=True) for each in (learners[0], copy)]
    assert np.array_equal(*actions) and actions[0].shape == (2,)


def test_engine_that_cannot_be_is_refused(spec):
    with pytest.raises(InvalidSetting, match=r"accelerated engine cannot(.|\n)*set network.engine to auto"):
        updated(SMALL, network={"engine": "accelerated", "actor": f"{__name__}:OwnTrunk"}).build(spec, 0)
