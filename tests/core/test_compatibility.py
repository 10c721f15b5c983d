"""Learners declare what they need, loops what they support; one function compares them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from robo_policies.learners.bc import BCConfig
from robo_policies.learners.hg_dagger import HGDAggerConfig
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.rlpd import RLPDConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.sb3.algorithms import PPOConfig as SB3PPOConfig
from robo_policies.sb3.algorithms import SB3Normalization
from robo_rl.errors import InvalidSetting
from robo_rl.protocols import contract
from robo_rl.protocols.contract import (
    ACTOR_LEARNER,
    COLLECTED_ROLLOUTS,
    COLLECTED_STEPS,
    OFFLINE_THEN_ONLINE,
    ONLINE,
    ROLLOUTS,
    Feature,
)
from robo_rl.protocols.sampling import Replay, Sampling
from robo_rl.training.compatibility import Capabilities, learners, needs_of, require_loop

F = Feature


@pytest.mark.parametrize(
    ("config", "asked", "loop"),
    [
        (SACConfig(), {F.CONTINUOUS, F.PERSON, F.RECORDING}, ONLINE),
        (SACConfig(), {F.LEARNER_PROCESS, F.PERSON, F.INITIAL_RUN}, ACTOR_LEARNER),
        (SACConfig(), {F.COLLECTORS, F.DEMONSTRATIONS}, COLLECTED_STEPS),
        (RLPDConfig(), {F.DEMONSTRATIONS, F.REWARD}, ONLINE),
        (PPOConfig(), {F.DISCRETE, F.REWARD}, ROLLOUTS),
        (PPOConfig(), {F.COLLECTORS}, COLLECTED_ROLLOUTS),
        (BCConfig(), {F.DEMONSTRATIONS, F.ONLINE_PHASE, F.PERSON}, OFFLINE_THEN_ONLINE),
    ],
)
def test_loop_supports_all_that_is_asked(config, asked, loop):
    assert require_loop("it", config, asked) is loop


@pytest.mark.parametrize(
    ("config", "asked", "words"),
    [
        (
            PPOConfig(),
            {F.PERSON},
            ["learner it cannot", "a person who corrects", "human.kind", "hil-serl, iq-learn, rlpd, sac"],
        ),
        (PPOConfig(), {F.IMAGINED}, ["imagined episodes", "counterfactual of the wrapper"]),
        (SACConfig(), {F.IMAGINED, F.LEARNER_PROCESS}, ["counterfactual of the wrapper", "leave one of them out"]),
        (SACConfig(), {F.DISCRETE}, ["discrete actions", "bc, ", ", hg-dagger, ppo"]),
        (BCConfig(), {F.DEMONSTRATIONS, F.COLLECTORS}, ["collectors", "ppo, rlpd, sac"]),
        (RLPDConfig(), {F.CONTINUOUS}, ["needs recorded episodes", "set demonstrations"]),
        (BCConfig(), {F.DEMONSTRATIONS, F.PERSON}, ["needs an online phase", "set online.steps"]),
        (HGDAggerConfig(), {F.DEMONSTRATIONS, F.ONLINE_PHASE}, ["needs a person who corrects", "set human.kind"]),
        (SACConfig(), {F.COLLECTORS, F.PERSON}, ["all of these at once", "--collectors, human.kind", "leave one"]),
        (SACConfig(replay=Replay(n_step=3)), {F.RELABELLED}, ["changes as it is learned", "change n_step"]),
        (SB3PPOConfig(), {F.DEMONSTRATIONS}, ["recorded episodes", "set learner.clone_epochs"]),
        (SB3PPOConfig(normalize=SB3Normalization(rewards=True)), {F.REWARD}, ["set learner.normalize.rewards to false"]),
    ],
)
def test_error_names_learner_feature_and_alternatives(config, asked, words):
    with pytest.raises(InvalidSetting) as caught:
        require_loop("it", config, asked)
    assert [word for word in words if word not in str(caught.value)] == []


@dataclass(frozen=True)
class Foreign:
    """A third party's settings that declare nothing."""

    sampling: Sampling = Sampling(learning_starts=1)


@dataclass(frozen=True)
class ForeignLoop:
    """A third party's settings with a loop of its own."""

    def training(self): ...

    def restored_policy(self): ...


def test_third_party_without_declaration_keeps_working():
    assert needs_of(Foreign()).loops == contract.STEPS
    assert needs_of(Foreign(Sampling(offline_fraction=1.0))).loops == contract.DATA
    assert needs_of(ForeignLoop()).loops == (contract.OWN,)


def test_third_party_loop_supports_what_it_declares():
    loop = replace(contract.OWN, supports=frozenset({F.PERSON}))

    @dataclass(frozen=True)
    class Declared(ForeignLoop):
        needs = contract.Needs((loop,))

    assert require_loop("it", Declared(), {F.PERSON, F.CONTINUOUS}) is loop
    assert needs_of(Declared()).trains_itself and needs_of(ForeignLoop()).trains_itself
    assert not needs_of(Foreign()).trains_itself
    with pytest.raises(InvalidSetting, match="delayed rewards"):
        require_loop("it", Declared(), {F.REWARD})


@pytest.mark.parametrize(("name", "able"), list(learners()), ids=lambda value: value if isinstance(value, str) else "")
def test_each_cell_agrees_with_the_check(name, able):
    for feature in Feature:
        more = able.missing({feature}) | {feature}
        assert (able.loop(more) is None) == (able.cell(feature) in ("no", "set")), (name, feature)


def test_device_is_a_setting():
    assert Capabilities.of(SB3PPOConfig()).has_device
