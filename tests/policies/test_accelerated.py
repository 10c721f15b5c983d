"""The accelerated engine: values, derivatives, names and ten updates equal those of the reference."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch

from factories import axes, make_spec
from robo_policies.learners.awac import AWACConfig
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.cal_ql import CalQLConfig
from robo_policies.learners.cql import CQLConfig
from robo_policies.learners.hil_serl import HILSERLConfig
from robo_policies.learners.iql import IQLConfig
from robo_policies.learners.rebrac import ReBRACConfig
from robo_policies.learners.rlpd import RLPDConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.learners.td3_bc import TD3BCConfig
from robo_policies.learners.xql import XQLConfig
from robo_policies.networks.accelerated import mlp
from robo_policies.networks.accelerated.mlp import AcceleratedMLP
from robo_policies.networks.actor_critic import MLPEnsemble
from robo_policies.networks.settings import Network
from robo_rl.conformance.learners import random_batch
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec

SIZES = {"values": (5, 32, 16, 1), "several outputs": (5, 16, 24, 3), "one hidden layer": (5, 8, 1)}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=seeded(seed))


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    """The number of threads decides how many members are evaluated together."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def pair(members: int, sizes: tuple[int, ...], layer_norm: bool) -> tuple[MLPEnsemble, AcceleratedMLP]:
    reference = MLPEnsemble(members, sizes, layer_norm, seeded())
    generator = seeded(1)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)  # norms too: as the identity they could be mixed up unseen
    return reference, AcceleratedMLP(reference)


def derivatives(network, inputs, by_outputs):
    """Returns outputs, and gradients by parameters and by both parts of the inputs."""
    parts = [inputs[:, :3].clone().requires_grad_(), inputs[:, 3:].clone().requires_grad_()]
    outputs = network(*parts)
    found = torch.autograd.grad((outputs * by_outputs).sum(), [*network.parameters(), *parts])
    return outputs.detach(), torch.cat([part.flatten() for part in found[:-2]]), *found[-2:]


def in_order(reference, accelerated):
    """Returns the reference's parameters as one vector in the order of the other's."""
    state = reference.state_dict()
    return torch.cat([state[name].flatten() for name in accelerated.state_dict()])


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_values_and_derivatives_equal_those_of_autograd(members, layer_norm, sizes, threads):
    reference, made = pair(members, sizes, layer_norm)
    for rows, seed in ((20, 2), (7, 3), (20, 4)):  # memory is used again for as many rows
        inputs, by_outputs = random(rows, 5, seed=seed), random(members, rows, sizes[-1], seed=seed + 10)
        torch.testing.assert_close(
            derivatives(made, inputs, by_outputs), derivatives(reference, inputs, by_outputs), rtol=1e-3, atol=1e-4
        )
        with torch.no_grad():
            torch.testing.assert_close(made(inputs), reference(inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer_norm", [True, False])
@torch.no_grad()
def test_some_members_give_their_part_of_all(layer_norm, threads):
    reference, made = pair(4, (5, 16, 1), layer_norm)
    inputs = random(9, 5, seed=2)
    for network in (reference, made):
        torch.testing.assert_close(network(inputs, members=[3, 1]), reference(inputs)[[3, 1]], rtol=1e-5, atol=1e-6)


def test_calls_of_one_graph_keep_their_activations():
    """Four evaluations before the first derivative, as in CQL, and others that no graph keeps in between."""
    reference, made = pair(2, (5, 8, 8, 1), True)
    found = []
    for network in (reference, made):
        outputs = [network(random(6, 5, seed=seed)) for seed in range(4)]
        with torch.no_grad():
            network(random(6, 5, seed=9))
        loss = sum((seed + 1) * part.square().sum() for seed, part in enumerate(outputs))
        found.append(torch.autograd.grad(loss, list(network.parameters())))
    expected = torch.cat([part.flatten() for part in found[0]])
    torch.testing.assert_close(found[1][0], expected, rtol=1e-4, atol=1e-5)


def test_a_graph_that_is_kept_can_be_derived_twice():
    _, made = pair(2, (5, 8, 1), True)
    loss = made(random(6, 5, seed=0)).square().sum()
    (first,) = torch.autograd.grad(loss, made.vector, retain_graph=True)
    kept = first.clone()
    made(random(6, 5, seed=1)).square().sum().backward()  # takes other memory
    (second,) = torch.autograd.grad(loss, made.vector)
    torch.testing.assert_close(second, kept)


def test_a_gradient_that_is_kept_is_not_overwritten():
    _, made = pair(2, (5, 8, 1), False)
    (first,) = torch.autograd.grad(made(random(6, 5, seed=0)).sum(), made.vector)
    kept = first.clone()
    for seed in range(3):
        torch.autograd.grad(made(random(6, 5, seed=seed + 1)).sum(), made.vector)
    assert torch.equal(first, kept)


@pytest.mark.parametrize("has_onednn", [True, False])
@pytest.mark.parametrize("rows", [1, 256])
def test_products_are_the_same_by_every_library(rows, has_onednn, monkeypatch):
    if has_onednn and not mlp.HAS_ONEDNN:
        pytest.skip("no AVX-512 here")
    monkeypatch.setattr(mlp, "HAS_ONEDNN", has_onednn)
    inputs, weight, bias = random(rows, 72, seed=0), random(72, 64, seed=1), random(64, seed=2)
    for left, right in itertools.product((inputs, inputs.mT.contiguous().mT), (weight.mT, weight.mT.contiguous())):
        expected = torch.nn.functional.linear(left, right, bias)
        torch.testing.assert_close(mlp.linear(left, right), expected - bias, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mlp.linear(left, right, bias), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mlp.linear(left, right, bias, relu=True), expected.relu(), rtol=1e-4, atol=1e-4)


def test_parameters_changed_after_the_forward_pass_are_refused():
    _, made = pair(1, (5, 8, 1), False)
    loss = made(random(6, 5, seed=0)).sum()
    with torch.no_grad():
        made.vector.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_states_move_between_engines_and_copies_are_apart():
    reference, made = pair(3, (5, 8, 8, 1), True)
    assert {name: value.shape for name, value in made.state_dict().items()} == {
        name: value.shape for name, value in reference.state_dict().items()
    }
    copied = copy.deepcopy(made)
    copied.load_state_dict({name: value + 1.0 for name, value in reference.state_dict().items()})
    torch.testing.assert_close(copied.vector, made.vector + 1.0)
    torch.testing.assert_close(in_order(reference, made), made.vector.detach())
    assert torch.equal(copied(torch.ones(2, 5))[0], copied(torch.ones(2, 5))[0])
    with pytest.raises(RuntimeError, match="Missing key"):
        made.load_state_dict({})
    with pytest.raises(RuntimeError, match="has the shape"):
        made.load_state_dict({name: value[:1] for name, value in reference.state_dict().items()})


ARM = make_spec("arm", ArraySpec("state", (3,)), ArraySpec("opening", (1,)), action=axes("x", "opening"))
LEARNERS = {
    "sac": SACConfig(critics=3, network=Network(layer_norm=True)),
    "rlpd": RLPDConfig(critics=5, updates_per_step=2),
    "hil-serl": HILSERLConfig(gripper="opening"),
    "bc": BCConfig(),
    "iql": IQLConfig(),
    "xql": XQLConfig(),
    "awac": AWACConfig(),
    "cql": CQLConfig(actions_sampled=3),
    "cal-ql": CalQLConfig(actions_sampled=3),
    "td3-bc": TD3BCConfig(),
    "rebrac": ReBRACConfig(),
}


@pytest.mark.parametrize("config", LEARNERS.values(), ids=LEARNERS)
def test_ten_updates_equal_those_of_the_reference(config, leaves):
    config = updated(config, network={"hidden": (16, 16)}, batch_size=16, lr=1e-3)
    reference, made = (updated(config, network={"engine": engine}).build(ARM, 0) for engine in ("reference", "accelerated"))
    rows = config.batch_size * config.sampling.updates_per_step
    for seed in range(10):
        if seed == 5:  # a checkpoint moves between engines
            reference.load_state_dict(made.state_dict())
        for learner in (reference, made):
            learner.update(random_batch(ARM, rows, seed=seed))
    one, other = (learner.state_dict() for learner in (reference, made))
    for part in ("networks", "optimizers"):
        torch.testing.assert_close(one[part], other[part], rtol=2e-3, atol=1e-4)
    assert leaves(one["generator"]) == leaves(other["generator"])


@pytest.mark.parametrize(
    "change",
    [
        {"network": {"precision": "bfloat16"}},
        {"network": {"actor": "collections:OrderedDict"}},
        {"network": {"critic": "collections:OrderedDict"}},
    ],
)
def test_networks_that_cannot_be_accelerated_are_refused(change):
    with pytest.raises(InvalidSetting, match=r"The accelerated engine cannot compute(.*\n)*.*set network.engine to auto"):
        updated(SACConfig(), change, network={"engine": "accelerated"}).build(ARM, 0)
