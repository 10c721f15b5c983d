"""Networks of one's own: encoder and hidden layers by name, who trains them, their targets, seeds and states."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from factories import axes, make_spec, picture_spec, rest_slow
from robo_policies.learners.act import ACTConfig
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.cql import CQLConfig
from robo_policies.learners.diffusion_bc import DiffusionBCConfig
from robo_policies.learners.drq import DrQConfig
from robo_policies.learners.flow_bc import FlowBCConfig
from robo_policies.learners.hil_serl import HILSERLConfig
from robo_policies.learners.iql import IQLConfig
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.rlpd import RLPDConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.learners.td3_bc import TD3BCConfig
from robo_rl.conformance.learners import check_learner, random_batch
from robo_rl.errors import InvalidSetting, RoboRLError, UnknownName
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec

ARM = make_spec(
    "arm",
    ArraySpec("state", (3, 2)),
    ArraySpec("opening", (1,)),
    picture_spec("camera", (8, 8, 3)),
    ArraySpec("mass", (1,), role="privileged"),
    action=axes("x", "opening"),
)


class MyEncoder(nn.Module):
    """Reads a picture and both vectors, and refuses what an encoder must not be given."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        super().__init__()
        assert spec.name == "arm"
        self.size = 5
        self.layer = nn.Linear(8 * 8 * 3 + 7, self.size)

    def forward(self, observations):
        assert set(observations) == {"state", "opening", "camera"}
        assert observations["camera"].dtype == torch.uint8 and observations["camera"].shape[1:] == (8, 8, 3)
        assert observations["state"].dtype == torch.float32 and observations["state"].shape[1:] == (3, 2)
        return torch.tanh(self.layer(torch.cat([value.flatten(1).float() / 255 for value in observations.values()], 1)))


class MyLayers(nn.Module):
    """One hidden layer that no MLP of ours has."""

    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        assert hidden == (8,)
        self.size = 6
        self.layer = nn.Linear(inputs, self.size)

    def forward(self, inputs):
        return torch.sin(self.layer(inputs))


@pytest.fixture(autouse=True)
def package(monkeypatch):
    module = ModuleType("my_package.nets")
    module.MyEncoder, module.MyLayers = MyEncoder, MyLayers
    monkeypatch.setitem(sys.modules, "my_package", ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, "my_package.nets", module)


ENCODER, LAYERS = "my_package.nets:MyEncoder", "my_package.nets:MyLayers"
OWN = {"network": {"encoder": ENCODER, "actor": LAYERS, "critic": LAYERS, "hidden": (8,)}, "batch_size": 4}
LEARNERS = {
    "sac": updated(SACConfig(), OWN),
    "drq": updated(DrQConfig(), OWN, network={"convolutions": ()}, actor_every=1),
    "rlpd": updated(RLPDConfig(), OWN, updates_per_step=2, critics=3),
    "hil-serl": updated(HILSERLConfig(), OWN, gripper="opening"),
    "bc": updated(BCConfig(), OWN),
    "iql": updated(IQLConfig(), OWN),
    "cql": updated(CQLConfig(), OWN, actions_sampled=2),
    "td3-bc": updated(TD3BCConfig(), OWN, actor_every=1),
    "diffusion-bc": updated(DiffusionBCConfig(), network={"encoder": ENCODER, "hidden": (8,)}, batch_size=4, chunk=4),
    "flow-bc": updated(FlowBCConfig(), network={"encoder": ENCODER, "hidden": (8,)}, batch_size=4, chunk=4),
    "act": updated(
        ACTConfig(), network={"encoder": ENCODER, "hidden": (8,), "token_size": 8, "heads": 2}, batch_size=4, chunk=4
    ),
}

CHUNKS = ("diffusion-bc", "flow-bc", "act")


@pytest.mark.slow
@pytest.mark.parametrize("config", rest_slow(LEARNERS.values(), fast=3), ids=LEARNERS)
def test_learner_with_own_networks_conforms(config):
    check_learner(lambda seed: config.build(ARM, seed), ARM, config.batch_size * config.sampling.updates_per_step)


@pytest.mark.parametrize("name", LEARNERS)
def test_own_networks_are_trained(name):
    config = LEARNERS[name]
    learner = config.build(ARM, 0)
    before = learner.state_dict()
    learner.update(random_batch(ARM, config.batch_size * config.sampling.updates_per_step, seed=0))
    after = learner.state_dict()
    assert not torch.equal(before["encoder"]["network.layer.weight"], after["encoder"]["network.layer.weight"])
    has_target = name not in ("bc", *CHUNKS)
    assert bool(after["target_encoder"]) == has_target
    for network, state in before["networks"].items():
        moved = [not torch.equal(value, after["networks"][network][key]) for key, value in state.items()]
        assert any(moved), network
    if name not in CHUNKS:
        assert "layers.hidden.0.layer.weight" in after["networks"]["actor"]


def test_policy_keeps_pictures_that_an_own_encoder_reads():
    policy = LEARNERS["sac"].build(ARM, 0).policy
    assert "camera" in policy.environment_spec.observation
    assert "camera" not in updated(LEARNERS["sac"], network={"encoder": None}).build(ARM, 0).policy.environment_spec.observation


@pytest.mark.parametrize("setting", ["encoder", "actor", "critic"])
@pytest.mark.parametrize("name", ["my_package.nets:Absent", "no_such_package:Encoder", "my_package.nets:", ":"])
def test_network_that_cannot_be_imported_is_refused(setting, name):
    words = rf"network.{setting} {name} cannot be imported(.*\n)*.*package.module:Class|class or function of my_package.nets"
    with pytest.raises(RoboRLError, match=words):
        updated(SACConfig(), network={"hidden": (8,), setting: name}).build(ARM, 0)


@pytest.mark.parametrize(("share", "layers"), [(0.1, LAYERS), (1.0, None), (-0.1, None)])
def test_dropout_that_an_actor_cannot_have_is_refused(share, layers):
    with pytest.raises(InvalidSetting, match=r"'actor_dropout' is out of range(.|\n)*below 1, and 0 with network.actor"):
        updated(IQLConfig(), actor_dropout=share, network={"actor": layers})


def test_unknown_entry_point_is_refused():
    with pytest.raises(UnknownName, match=r"Unknown network 'no-such-network'(.|\n)*entry point as package.module:Class"):
        updated(SACConfig(), network={"encoder": "no-such-network"}).build(ARM, 0)


class NeedsMore(MyLayers):
    def __init__(self, inputs: int) -> None:
        super().__init__(inputs, (8,))


class OtherShape(MyLayers):
    def forward(self, inputs):
        return super().forward(inputs)[:, 1:]


class OtherType(MyLayers):
    def forward(self, inputs):
        return super().forward(inputs).double()


class NoSize(MyLayers):
    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        del self.size


class WordForSize(MyLayers):
    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        self.size = "6"


class NormalizesTheBatch(MyLayers):
    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        self.layer = nn.Sequential(self.layer, nn.BatchNorm1d(self.size))


class NoModule:
    size = 6

    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        pass

    def __call__(self, inputs):
        return inputs[:, : self.size]


WRONG = [
    (NeedsMore, r"does not work(.|\n)*TypeError: .*positional arguments(.|\n)*MyLayers\(inputs, hidden\)"),
    (OtherShape, r"does not fit(.|\n)*torch.float32\[1, 5\] of one row, with size 6(.|\n)*\(B, size\)"),
    (OtherType, r"does not fit(.|\n)*torch.float64\[1, 6\] of one row"),
    (NoSize, r"does not work(.|\n)*no attribute 'size'(.|\n)*do: +mend it"),
    (WordForSize, r"does not work(.|\n)*'str' object cannot be interpreted as an integer"),
    (NormalizesTheBatch, r"does not work(.|\n)*ValueError: Expected more than 1 value per channel(.|\n)*test_own_networks.py:"),
    (NoModule, r"does not fit(.|\n)*a class of nn.Module"),
]


@pytest.mark.parametrize(
    "config",
    [updated(SACConfig(), network={"hidden": (8,)}), updated(PPOConfig(), network={"hidden": (8,)})],
    ids=["sac", "ppo"],
)
@pytest.mark.parametrize("setting", ["actor", "critic"])
@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=[wrong.__name__ for wrong, _ in WRONG])
def test_wrong_layers_are_refused_when_built(wrong, words, setting, config, monkeypatch):
    monkeypatch.setattr(sys.modules["my_package.nets"], "Wrong", wrong, raising=False)
    with pytest.raises(InvalidSetting, match=rf"network.{setting} my_package.nets:Wrong {words}"):
        updated(config, network={setting: "my_package.nets:Wrong"}).build(ARM, 0)


@pytest.mark.parametrize(
    "config",
    [updated(SACConfig(), network={"hidden": (8,)}), updated(PPOConfig(), network={"hidden": (8,)})],
    ids=["sac", "ppo"],
)
def test_layers_as_an_encoder_are_refused(config):
    with pytest.raises(InvalidSetting, match=r"network.encoder my_package.nets:MyLayers does not work(.|\n)*MyEncoder\(spec\)"):
        updated(config, network={"encoder": LAYERS}).build(ARM, 0)


class Refuses(MyLayers):
    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        raise InvalidSetting("hidden is not for these layers.")


def test_error_of_the_network_itself_passes(monkeypatch):
    monkeypatch.setattr(sys.modules["my_package.nets"], "Wrong", Refuses, raising=False)
    with pytest.raises(InvalidSetting, match=r"^hidden is not for these layers"):
        updated(SACConfig(), network={"actor": "my_package.nets:Wrong"}).build(ARM, 0)


def test_module_that_fails_on_import_is_refused(tmp_path, monkeypatch):
    (tmp_path / "torn_package.py").write_text("class MyEncoder(:")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidSetting, match=r"network.encoder torn_package:MyEncoder cannot be imported(.|\n)*SyntaxError"):
        updated(SACConfig(), network={"encoder": "torn_package:MyEncoder"}).build(ARM, 0)


class HasAHead(MyEncoder):
    """As of a network that was trained for something else, whose last layer is not called."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        super().__init__(spec)
        self.head = nn.Linear(2, 2)


def test_parameters_that_no_output_needs_stay(monkeypatch):
    monkeypatch.setattr(sys.modules["my_package.nets"], "HasAHead", HasAHead, raising=False)
    learner = updated(SACConfig(), network={"encoder": "my_package.nets:HasAHead", "hidden": (8,)}, batch_size=4).build(ARM, 0)
    before = learner.state_dict()["encoder"]
    learner.update(random_batch(ARM, 4, seed=0))
    after = learner.state_dict()["encoder"]
    assert torch.equal(before["network.head.weight"], after["network.head.weight"])
    assert not torch.equal(before["network.layer.weight"], after["network.layer.weight"])
