"""Every learner of ours keeps every rule, and each rule can fail."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from factories import axes, choices, make_spec, picture_spec
from robo_papers.arsq.learner import ARSQConfig
from robo_papers.cpo.learner import CPOConfig
from robo_papers.fisor.learner import FISORConfig
from robo_papers.gail.learner import GAILConfig
from robo_papers.iq_learn.learner import IQLearnConfig
from robo_papers.qarl.learner import QARLConfig, RowTemperatures, with_temperature
from robo_papers.recoil.learner import ReCOILConfig
from robo_papers.saute.learner import PPOSauteConfig
from robo_policies.export.exporting import export, random_episodes
from robo_policies.learners.act import ACTConfig
from robo_policies.learners.awac import AWACConfig
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.cal_ql import CalQLConfig
from robo_policies.learners.cql import CQLConfig
from robo_policies.learners.dagger import DAggerConfig
from robo_policies.learners.diffusion_bc import DiffusionBCConfig
from robo_policies.learners.dqn import DQNConfig
from robo_policies.learners.drq import DrQConfig
from robo_policies.learners.f_dvl import FDVLConfig
from robo_policies.learners.flow_bc import FlowBCConfig
from robo_policies.learners.hg_dagger import HGDAggerConfig
from robo_policies.learners.hil_serl import HILSERLConfig
from robo_policies.learners.iql import IQLConfig
from robo_policies.learners.parts import ActorPolicy
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.ppo_lagrangian import PPOLagrangianConfig
from robo_policies.learners.rebrac import ReBRACConfig
from robo_policies.learners.rlpd import RLPDConfig
from robo_policies.learners.sac import SAC, SACConfig
from robo_policies.learners.sac_lagrangian import SACLagrangianConfig
from robo_policies.learners.td3_bc import TD3BCConfig
from robo_policies.learners.xql import XQLConfig
from robo_policies.sb3.hil import SB3SACHILConfig
from robo_rl.conformance.learners import LEARNER_CHECKS, batches, check_learner, check_policy
from robo_rl.errors import ConformanceFailure
from robo_rl.settings import updated
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ActionSpec, ArraySpec

ARRAYS = (
    ArraySpec("position", (3,)),
    ArraySpec("grid", (2, 2), "uint8", 0, 10),
    picture_spec(),
)
ARM = make_spec("arm", *ARRAYS, action=axes("a", "b"))
FINGERS = ActionSpec(("opening", "x", "y"), (0, -1, -1), (0.08, 1, 1), ("m", "m", "m"))
GRIPPER = make_spec("gripper", *ARRAYS, ArraySpec("opening", (1,)), action=FINGERS)
MASS = ArraySpec("object_mass", (2,), role="privileged")
KNOWN = make_spec("known", MASS, *ARRAYS, action=axes("a", "b"))
KNOWN_GRIPPER = make_spec("known-gripper", MASS, *GRIPPER.observation.arrays, action=FINGERS)
COSTS = (CostSpec("force", 5.0, "N s"), CostSpec("zone", 2.0))
COSTLY = make_spec("costly", *ARRAYS, ArraySpec("budget_zone", (1,)), action=axes("a", "b"), costs=COSTS)
COSTLY_GRID = make_spec("costly-grid", *ARRAYS, action=choices("left", "right", "forward"), costs=COSTS)
GRID = make_spec("grid", *ARRAYS, action=choices("left", "right", "forward"))

SMALL_ACT = {
    "network": {"hidden": (8,), "token_size": 8, "heads": 2, "latent": 3, "encoder_layers": 1},
    "batch_size": 8,
    "chunk": 4,
}
SEES = {"network": {"hidden": (8,), "convolutions": (4,), "crop_padding": 1}, "batch_size": 4}

LEARNERS = {
    "sac": (updated(SACConfig(), network={"hidden": (8,)}, batch_size=8), ARM),
    "sac-normalised": (updated(SACConfig(), network={"hidden": (8,), "normalization_rows": 20}, batch_size=8), ARM),
    "sac-asymmetric": (
        updated(SACConfig(), network={"hidden": (8,), "normalization_rows": 20}, batch_size=8, privileged_critic=True),
        KNOWN,
    ),
    "qarl": (updated(QARLConfig(), network={"hidden": (8,)}, batch_size=8), with_temperature(ARM)),
    "dqn": (updated(DQNConfig(), network={"hidden": (8,)}, batch_size=8, exploration_updates=4), GRID),
    "drq": (updated(DrQConfig(), SEES), ARM),
    "drq-asymmetric": (updated(DrQConfig(), SEES, privileged_critic=True, network={"normalization_rows": 20}), KNOWN),
    "sac-lagrangian": (
        updated(SACLagrangianConfig(), network={"hidden": (8,)}, batch_size=8, multiplier={"kind": "pid", "initial": 0.5}),
        COSTLY,
    ),
    "rlpd": (updated(RLPDConfig(), network={"hidden": (8,)}, batch_size=4, critics=3, updates_per_step=2), ARM),
    "rlpd-pictures": (updated(RLPDConfig(), SEES, critics=3, updates_per_step=2, network={"normalization_rows": 20}), ARM),
    "hil-serl": (updated(HILSERLConfig(), network={"hidden": (8,)}, batch_size=4), ARM),
    "hil-serl-pictures": (updated(HILSERLConfig(), SEES, gripper="opening"), GRIPPER),
    "hil-serl-asymmetric": (updated(HILSERLConfig(), SEES, gripper="opening", privileged_critic=True), KNOWN_GRIPPER),
    "hil-serl-gripper": (updated(HILSERLConfig(), network={"hidden": (8,)}, batch_size=4, gripper="opening"), GRIPPER),
    "sb3-sac-hil": (SB3SACHILConfig(policy_kwargs={"net_arch": [8]}, batch_size=4, gradient_steps=2, device="cpu"), ARM),
    "hg-dagger": (updated(HGDAggerConfig(), network={"hidden": (8,)}, batch_size=8), ARM),
    "dagger": (updated(DAggerConfig(), network={"hidden": (8,)}, batch_size=8), ARM),
    "bc": (updated(BCConfig(), network={"hidden": (8,)}, batch_size=8), ARM),
    "bc-choices": (updated(BCConfig(), network={"hidden": (8,)}, batch_size=8), GRID),
    "iql": (updated(IQLConfig(), network={"hidden": (8,)}, batch_size=8, actor_dropout=0.5, actor_decay_updates=10), ARM),
    "recoil": (updated(ReCOILConfig(), network={"hidden": (8,)}, batch_size=8, experts="return 0"), ARM),
    "gail": (updated(GAILConfig(), network={"hidden": (8,)}, batch_size=8, discriminator_hidden=(8,), experts="return 0"), ARM),
    "arsq": (updated(ARSQConfig(), network={"hidden": (8,)}, batch_size=8, levels=2, bins=3, experts="return 0"), ARM),
    "iq-learn": (updated(IQLearnConfig(), network={"hidden": (8,)}, batch_size=8, experts="return 0"), ARM),
    "xql": (updated(XQLConfig(), network={"hidden": (8,)}, batch_size=8), ARM),
    "f-dvl": (updated(FDVLConfig(), network={"hidden": (8,)}, batch_size=8), ARM),
    "td3-bc": (updated(TD3BCConfig(), network={"hidden": (8,)}, batch_size=8), ARM),
    "rebrac": (updated(ReBRACConfig(), network={"hidden": (8,)}, batch_size=8), ARM),
    "awac": (updated(AWACConfig(), network={"hidden": (8,)}, batch_size=8), ARM),
    "diffusion-bc": (
        updated(DiffusionBCConfig(), network={"hidden": (8,)}, batch_size=8, chunk=4, executed=2, noise_levels=3),
        ARM,
    ),
    "fisor": (updated(FISORConfig(), network={"hidden": (8,)}, batch_size=8, noise_levels=2, candidates=3), COSTLY),
    "flow-bc": (updated(FlowBCConfig(), network={"hidden": (8,)}, batch_size=8, chunk=4, executed=2, integration_steps=3), ARM),
    "act": (updated(ACTConfig(), SMALL_ACT), ARM),
    "act-pictures": (updated(ACTConfig(), SMALL_ACT, SEES, executed=2), ARM),
    "bc-pictures": (updated(BCConfig(), SEES), ARM),
    "iql-pictures": (updated(IQLConfig(), SEES), ARM),
    "cal-ql": (updated(CalQLConfig(), network={"hidden": (8,)}, batch_size=8, actions_sampled=2), ARM),
    "cql": (updated(CQLConfig(), network={"hidden": (8,)}, batch_size=8, actions_sampled=2), ARM),
}


@pytest.mark.parametrize("check", LEARNER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", LEARNERS)
def test_learner_keeps_the_rule(name, check):
    config, spec = LEARNERS[name]
    rows = config.sampling.batch_size * config.sampling.updates_per_step
    check(lambda seed: config.build(spec, seed), spec, batches(spec, rows, config.sampling.extras))


@pytest.mark.parametrize("check", LEARNER_CHECKS, ids=lambda check: check.__name__)
def test_adversary_of_row_temperatures_keeps_the_rule(check):
    config, spec = updated(QARLConfig(), network={"hidden": (8,)}, batch_size=8), with_temperature(ARM)
    plain = batches(spec, 8, ())

    def tempered(seed):
        alphas = np.random.default_rng(seed).gamma(50.0, 1.0 / 1000.0, 8).astype(np.float32)
        return dataclasses.replace(plain(seed), extras={"alpha": alphas})

    check(lambda seed: SAC(spec, config, seed, RowTemperatures()), spec, tempered)


ON_POLICY = {
    "ppo": (updated(PPOConfig(), num_envs=2, steps_per_env=4, batch_size=4, network={"hidden": (8,)}), ARM),
    "ppo-beta-pictures": (
        updated(
            PPOConfig(),
            num_envs=2,
            steps_per_env=4,
            batch_size=4,
            network={"hidden": (8,), "distribution": "beta", "convolutions": (4,)},
        ),
        ARM,
    ),
    "ppo-asymmetric-pictures": (
        updated(
            PPOConfig(),
            num_envs=2,
            steps_per_env=4,
            batch_size=4,
            network={"hidden": (8,), "convolutions": (4,)},
            privileged_critic=True,
        ),
        KNOWN,
    ),
    "ppo-lagrangian": (
        updated(PPOLagrangianConfig(), num_envs=2, steps_per_env=4, batch_size=4, network={"hidden": (8,)}),
        COSTLY,
    ),
    "ppo-lagrangian-choices": (
        updated(PPOLagrangianConfig(), num_envs=2, steps_per_env=4, batch_size=4, network={"hidden": (8,)}),
        COSTLY_GRID,
    ),
    "cpo": (updated(CPOConfig(), num_envs=2, steps_per_env=4, batch_size=4, network={"hidden": (8,)}), COSTLY),
    "ppo-saute": (updated(PPOSauteConfig(), num_envs=2, steps_per_env=4, batch_size=4, network={"hidden": (8,)}), COSTLY),
    "ppo-choices": (updated(PPOConfig(), num_envs=2, steps_per_env=4, batch_size=4, network={"hidden": (8,)}), GRID),
}
"""They learn from their own actions, not from batches; what else is checked of the others stands in their own tests."""


@pytest.mark.parametrize("name", ON_POLICY)
def test_policy_of_an_on_policy_learner_conforms(name):
    config, spec = ON_POLICY[name]
    check_policy(config.build(spec, 0).policy, spec)


def trained_policy(name):
    """Returns the policy of a learner after some updates, those of `ON_POLICY` without."""
    config, spec = (LEARNERS | ON_POLICY)[name]
    learner = config.build(spec, 0)
    if name in LEARNERS:
        make = batches(spec, config.sampling.batch_size * config.sampling.updates_per_step, config.sampling.extras)
        for seed in range(3):
            learner.update(make(seed))
    return learner.policy


EXPORTED = ("sac", "bc", "dqn", "act", "ppo", "hil-serl-gripper")
"""Stand for all exports in the fast tests."""


@pytest.mark.parametrize(
    "name", [*EXPORTED, *(pytest.param(name, marks=pytest.mark.slow) for name in LEARNERS | ON_POLICY if name not in EXPORTED)]
)
def test_torchscript_acts_as_the_policy(name, tmp_path):
    policy = trained_policy(name)
    export(policy, "torchscript", tmp_path / "out", random_episodes(policy.environment_spec))  # raises ExportDiffers


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS | ON_POLICY)
def test_onnx_acts_as_the_policy(name, tmp_path):
    policy = trained_policy(name)
    export(policy, "onnx", tmp_path / "out", random_episodes(policy.environment_spec))


class ForgetsTheGenerator(SAC):
    def load_state_dict(self, state):
        kept = self.parts.generator.get_state()
        super().load_state_dict(state)
        self.parts.generator.set_state(kept)


class SharesItsState(SAC):
    def state_dict(self):
        return super().state_dict() | {"actor": self.actor.state_dict()}


class DrawsGlobally(SAC):
    def update(self, batch):
        np.random.random()  # noqa: NPY002
        return super().update(batch)


class AcceptsNaN(SAC):
    def update(self, batch):
        return super().update(dataclasses.replace(batch, rewards=np.nan_to_num(batch.rewards)))


class ReportsWords(SAC):
    def update(self, batch):
        return super().update(batch) | {"loss": 1.0}


class ActsInDoublePrecision(ActorPolicy):
    def act(self, observation, *, deterministic=False):
        return super().act(observation, deterministic=deterministic).astype(np.float64)


class ReusesItsOutput(ActorPolicy):
    _output = np.zeros(2, np.float32)

    def act(self, observation, *, deterministic=False):
        self._output[:] = super().act(observation, deterministic=deterministic)
        return self._output


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (ForgetsTheGenerator, "a restored learner takes other updates"),
        (SharesItsState, "it must be a copy"),
        (DrawsGlobally, "a global generator is used"),
        (AcceptsNaN, "NaN in the rewards is accepted"),
        (ReportsWords, "not a finite float under a tag"),
    ],
)
def test_broken_learner_is_found(broken, words):
    with pytest.raises(ConformanceFailure, match=words):
        check_learner(lambda seed: broken(ARM, updated(SACConfig(), network={"hidden": (8,)}, batch_size=8), seed), ARM, 8)


class ReadsWhatIsPrivileged(ActorPolicy):
    def act(self, observation, *, deterministic=False):
        action = super().act(observation, deterministic=deterministic)
        return np.clip(action + observation.get("object_mass", np.zeros(1))[0], -1.0, 1.0).astype(np.float32)


def test_policy_of_privileged_entries_is_found():
    learner = updated(SACConfig(), network={"hidden": (8,)}, privileged_critic=True).build(KNOWN, 0)
    with pytest.raises(ConformanceFailure, match="depends on privileged entries"):
        check_policy(ReadsWhatIsPrivileged(learner.parts, learner.actor), KNOWN)


@pytest.mark.parametrize(
    ("broken", "words"), [(ActsInDoublePrecision, "wrong type"), (ReusesItsOutput, "changes when the next")]
)
def test_broken_policy_is_found(broken, words):
    learner = updated(SACConfig(), network={"hidden": (8,)}).build(ARM, 0)
    policy = broken(learner.parts, learner.actor)
    with pytest.raises(ConformanceFailure, match=words):
        check_policy(policy, ARM)
