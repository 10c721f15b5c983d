"""Settings of learners stand in groups that they share; a part of a group is changed without losing the rest."""

import dataclasses

import pytest

from robo_app.recipes.recipe import parse_recipe, to_yaml
from robo_papers.explors.learner import ExploRSConfig
from robo_papers.fisor.learner import FISORConfig
from robo_policies.learners.act import ACTConfig
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.hg_dagger import HGDAggerConfig
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.rlpd import RLPDConfig, RLPDNetwork, RLPDReplay
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.settings import Network
from robo_rl.entry_points import known, load
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.sampling import Replay, Sampling
from robo_rl.settings import plain, settings_as, updated
from robo_rl.system.plain_files import parse_yaml

SHARED = {"network", "replay", "worlds", "normalize", "multiplier", "cloning", "adversary", "noise"}
OWN = {"group-ppo": {"advantages"}, "cpo": {"trust_region"}, "mfrl": {"model"}}


def groups_of(kind):
    return {item.name for item in dataclasses.fields(kind) if dataclasses.is_dataclass(item.default)}


@pytest.mark.parametrize("name", known("learners"))
def test_groups_are_those_that_learners_share(name):
    assert groups_of(load("learners", name)) <= SHARED | OWN.get(name, set())


@pytest.mark.parametrize("name", known("learners"))
def test_a_recipe_with_all_settings_is_written_and_read(name):
    recipe = parse_recipe({"name": name, "algorithm": name, "environment": {}, "steps": 1}, source=name)
    assert parse_recipe(parse_yaml(to_yaml(recipe), "it"), source="the file").learner == recipe.learner


def test_groups_are_built_in_python():
    config = SACConfig(network=Network(hidden=(64, 64)), replay=Replay(capacity=100_000))
    assert (config.network.hidden, config.sampling.capacity, config.sampling.learning_starts) == ((64, 64), 100_000, 5_000)
    assert RLPDConfig(network=RLPDNetwork(hidden=(8,))).network.layer_norm


@pytest.mark.parametrize("source", [updated, lambda config, **values: settings_as(type(config), values, source="it")])
def test_a_part_of_a_group_leaves_the_rest(source):
    found = source(RLPDConfig(), network={"hidden": (64, 64)}, replay={"capacity": 100})
    assert found.network == RLPDNetwork(hidden=(64, 64)) and found.network.layer_norm
    assert found.replay == RLPDReplay(capacity=100) and found.sampling.offline_fraction == 0.5


def test_the_last_change_counts():
    found = updated(SACConfig(), {"network": {"hidden": (8,), "layer_norm": True}}, {"lr": 1e-3}, network={"hidden": (4,)})
    assert found == SACConfig(lr=1e-3, network=Network(hidden=(4,), layer_norm=True))


@pytest.mark.parametrize("group", [Network(hidden=(8,)), {"hidden": (8,)}])
def test_a_group_without_the_defaults_of_the_learner_is_refused(group):
    with pytest.raises(InvalidSetting, match=r"'network' of RLPDConfig(.|\n)*RLPDConfig\(network=RLPDNetwork\(...\)\)"):
        RLPDConfig(network=group)


@pytest.mark.parametrize(
    ("kind", "key", "remedy"),
    [
        (SACConfig, "hidden", "write network.hidden"),
        (SACConfig, "replay_capacity", "write replay.capacity"),
        (SACConfig, "actor_network", "write network.actor"),
        (SACConfig, "hiden", "write network.hidden"),
        (SACConfig, "batch_siz", r"did you mean 'batch_size'\?$"),
        (PPOConfig, "normalize_rewards", "write normalize.rewards"),
    ],
)
def test_a_key_without_its_group_is_told_where_it_is(kind, key, remedy):
    for read in (lambda: settings_as(kind, {key: 1}, source="it"), lambda: updated(kind(), {key: 1})):
        with pytest.raises(UnknownName, match=rf"'{key}'(.|\n)*{remedy}"):
            read()


def test_errors_within_groups_name_the_whole_key():
    with pytest.raises(UnknownName, match=r"key of network in it: 'hiden'(.|\n)*'hidden'"):
        settings_as(SACConfig, {"network": {"hiden": [8]}}, source="it")
    with pytest.raises(InvalidSetting, match=r"it: network\.hidden has the wrong type"):
        settings_as(SACConfig, {"network": {"hidden": "many"}}, source="it")
    with pytest.raises(InvalidSetting, match=r"it: network must be a mapping(.|\n)*write network: {KEY: VALUE}"):
        settings_as(SACConfig, {"network": "my:Encoder"}, source="it")
    with pytest.raises(InvalidSetting, match=r"'replay.n_step' is out of range"):
        Replay(n_step=0)
    with pytest.raises(InvalidSetting, match=r"'n_step' is out of range"):
        Sampling(n_step=0)


@pytest.mark.parametrize(
    ("kind", "network", "why"),
    [
        (BCConfig, {"layer_norm": True}, "no critics"),
        (ExploRSConfig, {"critic": "my:Layers"}, "no critics"),
        (ExploRSConfig, {"engine": "auto"}, "reference"),
        (ACTConfig, {"precision": "bfloat16"}, "float32: it has a transformer"),
        (FISORConfig, {"convolutions": (4,)}, "reads vectors"),
    ],
)
def test_what_a_learner_does_not_read_is_refused(kind, network, why):
    with pytest.raises(InvalidSetting, match=rf"'network.{next(iter(network))}' is out of range(.|\n)*{why}"):
        updated(kind(), network=network)


def test_a_memory_of_corrections_has_a_capacity_alone():
    assert plain(HGDAggerConfig())["replay"] == {"capacity": 200_000} and HGDAggerConfig().sampling.capacity == 200_000
