"""Devices: settings, and every learner on "meta", which stands in for an accelerator and refuses implicit transfers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from factories import axes, make_spec, picture_spec
from robo_papers.arsq.learner import ARSQConfig
from robo_papers.fisor.learner import FISORConfig
from robo_papers.gail.learner import GAILConfig
from robo_papers.iq_learn.learner import IQLearnConfig
from robo_papers.recoil.learner import ReCOILConfig
from robo_papers.sac_average.learner import SACAverageConfig
from robo_papers.sac_prior.learner import SACPriorConfig
from robo_policies.learners import parts
from robo_policies.learners.act import ACTConfig
from robo_policies.learners.awac import AWACConfig
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.cal_ql import CalQLConfig
from robo_policies.learners.cql import CQLConfig
from robo_policies.learners.diffusion_bc import DiffusionBCConfig
from robo_policies.learners.drq import DrQConfig
from robo_policies.learners.f_dvl import FDVLConfig
from robo_policies.learners.flow_bc import FlowBCConfig
from robo_policies.learners.hil_serl import HILSERLConfig
from robo_policies.learners.iql import IQLConfig
from robo_policies.learners.rebrac import ReBRACConfig
from robo_policies.learners.rlpd import RLPD, RLPDConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.learners.sac_lagrangian import SACLagrangianConfig
from robo_policies.learners.td3_bc import TD3BCConfig
from robo_policies.learners.xql import XQLConfig
from robo_rl import metrics
from robo_rl.conformance.learners import random_batch
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.fitting import resolve_device
from robo_rl.settings import updated
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ArraySpec

PRIORS = ("prior_actions", "next_prior_actions")
ARM = make_spec(
    "arm",
    ArraySpec("state", (3,)),
    ArraySpec("opening", (1,)),
    ArraySpec("mass", (1,), role="privileged"),
    ArraySpec("prior_action", (2,), role="privileged"),
    picture_spec("camera", (8, 8, 3)),
    action=axes("x", "opening"),
    costs=(CostSpec("contact", 1.0),),
)
LEARNERS = {
    "sac": SACConfig(),
    "drq": updated(DrQConfig(), network={"convolutions": (4,)}, privileged_critic=True),
    "rlpd": updated(RLPDConfig(), updates_per_step=2, critics=3, network={"convolutions": (4,)}),
    "hil-serl": updated(HILSERLConfig(), gripper="opening", network={"convolutions": (4,)}),
    "bc": BCConfig(),
    "diffusion-bc": DiffusionBCConfig(chunk=4),
    "flow-bc": updated(FlowBCConfig(), chunk=4, network={"convolutions": (4,)}),
    "act": updated(ACTConfig(), chunk=4, network={"token_size": 8, "heads": 2, "convolutions": (4,)}),
    "bc-pictures": updated(BCConfig(), network={"convolutions": (4,)}),
    "iql": IQLConfig(actor_dropout=0.1),
    "xql": XQLConfig(),
    "f-dvl": FDVLConfig(),
    "awac": AWACConfig(),
    "cql": CQLConfig(actions_sampled=2),
    "cal-ql": CalQLConfig(actions_sampled=2),
    "recoil": ReCOILConfig(),
    "fisor": FISORConfig(),
    "arsq": ARSQConfig(),
    "gail": GAILConfig(discriminator_hidden=(8,)),
    "iq-learn": IQLearnConfig(),
    "sac-average": SACAverageConfig(),
    "sac-lagrangian": SACLagrangianConfig(),
    "sac-prior": SACPriorConfig(),
    "td3-bc": TD3BCConfig(actor_every=1),
    "rebrac": ReBRACConfig(actor_every=1),
}
ALL = pytest.mark.parametrize(
    "config", [updated(config, network={"hidden": (8,)}, batch_size=4) for config in LEARNERS.values()], ids=LEARNERS
)
TRANSFERS = ("aten._to_copy", "aten.copy_")


class NoMixing(TorchDispatchMode):
    """Refuses operations on tensors of two devices, numbers of a CPU excepted, as they are on an accelerator."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not str(function).startswith(TRANSFERS):
            found = {tensor.device.type for tensor in tensors if tensor.dim() or tensor.is_meta}
            assert len(found) < 2, f"{function} mixes {found}"
        return function(*args, **(kwargs or {}))


@pytest.fixture
def pretended(monkeypatch):
    """Makes "meta" the device; what is fetched from it explicitly is zeros, since it holds no numbers."""
    monkeypatch.setattr(parts, "resolve_device", lambda name: torch.device("meta"))
    fetch = torch.Tensor.cpu
    fetched = []

    def pretend(self):
        if not self.is_meta:
            return fetch(self)
        fetched.append(self.shape)
        return torch.zeros(self.shape, dtype=self.dtype)

    monkeypatch.setattr(torch.Tensor, "cpu", pretend)
    monkeypatch.setattr(metrics, "METRICS_EVERY", 2)
    return fetched


def batch_for(config, rows, seed):
    """Returns a random batch with the columns that some learners ask for beyond it."""
    batch, random = random_batch(ARM, rows, seed=seed), np.random.default_rng(seed)
    priors = {name: random.uniform(-1, 1, batch.actions.shape).astype(np.float32) for name in PRIORS}
    own = {"costs": random.random((rows, 1), np.float32), "alpha": random.random(rows, np.float32) + 0.1}
    expert = {"from_expert": np.arange(rows) % 2 == 0}
    masks = np.ones(rows, np.float32) if isinstance(config, SACAverageConfig) else batch.masks
    return replace(batch, masks=masks, extras={**batch.extras, **priors, **own, **expert})


@pytest.mark.slow
@ALL
def test_update_mixes_no_devices(config, pretended):
    learner = config.build(ARM, 0)
    rows = config.batch_size * config.sampling.updates_per_step
    with NoMixing():
        first = learner.update(batch_for(config, rows, seed=0))
        assert pretended == [], "an update fetches nothing from the device before its report"
        reports = [first, learner.update(batch_for(config, rows, seed=1))]
        assert 0 < len(pretended) < 40
        row = {name: value[0] for name, value in random_batch(ARM, 1, seed=0).observations.items()}
        learner.policy.act(row, deterministic=isinstance(config, ARSQConfig))  # zeros are no chances to draw by
    assert reports[0] == {} and all(isinstance(value, float) for value in reports[1].values())
    assert all(value.is_meta for network in learner.parts._networks.values() for value in network.parameters())


def test_mixing_and_implicit_transfers_are_found(pretended, monkeypatch):
    learner, batch = (
        updated(LEARNERS["rlpd"], network={"hidden": (8,)}, batch_size=4).build(ARM, 0),
        random_batch(ARM, 8, seed=0),
    )
    loss = RLPD.critic_loss
    monkeypatch.setattr(RLPD, "critic_loss", lambda self, q, y, w: loss(self, q, y, torch.ones(len(w))))
    with pytest.raises((AssertionError, RuntimeError), match=r"mixes|device"), NoMixing():
        learner.update(batch)
    monkeypatch.setattr(RLPD, "critic_loss", lambda self, q, y, w: loss(self, q, y, w) * float(q.mean()))
    with pytest.raises(RuntimeError, match="meta"), NoMixing():
        learner.update(batch)


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "tpu", "CPU", ""])
def test_unknown_or_absent_device_is_refused(name):
    with pytest.raises(InvalidSetting, match=r"There is no such device(.*\n)*.*allowed: cpu(.*\n)*.*do:"):
        SACConfig(device=name).build(ARM, 0)


def test_automatic_device_is_the_first_that_is_present():
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert resolve_device("auto").type == best


def test_checkpoint_of_an_earlier_version_is_refused():
    learner = updated(LEARNERS["sac"], network={"hidden": (8,)}).build(ARM, 0)
    state = learner.state_dict()
    del state["format"]
    with pytest.raises(RunError, match=r"made by a version of robo-rl with other networks: train again, or use that version"):
        learner.load_state_dict(state)


@pytest.mark.gpu
@ALL
def test_checkpoints_move_between_devices(config):
    there, here = (updated(config, device=device, network={"acting_device": "cpu"}).build(ARM, 0) for device in ("cuda", "cpu"))
    rows = config.batch_size * config.sampling.updates_per_step
    for seed in range(3):
        for learner in (there, here):
            learner.update(random_batch(ARM, rows, seed=seed))
    here.load_state_dict(there.state_dict())
    observation = {name: value[0] for name, value in random_batch(ARM, 1, seed=0).observations.items()}
    actions = [learner.policy.act(observation, deterministic=True) for learner in (there, here)]
    np.testing.assert_allclose(*actions, rtol=1e-3, atol=1e-4)
