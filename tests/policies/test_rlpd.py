"""RLPD: its four changes to SAC recomputed by hand, a known MDP, exact saving, and learning from sparse reward."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from factories import axes, make_spec
from robo_policies.learners.rlpd import RLPD, RLPDConfig, RLPDNetwork, RLPDReplay
from robo_rl.errors import InvalidSetting, NonFiniteUpdate
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.mixing import SymmetricReplay
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Batch, Transition

PARTS = ("linears", "norms")
SMALL = RLPDConfig(
    network=RLPDNetwork(hidden=(8, 8)), critics=4, target_critics=2, updates_per_step=3, batch_size=2, initial_temperature=0.3
)


def q_by_hand(critics, observations, actions):
    """Returns (N, B) with numpy alone, layers normalised before the ReLU."""
    state = {name.removeprefix("layers."): value.numpy() for name, value in critics.state_dict().items()}
    rows = []
    for member in range(critics.members):
        hidden = np.concatenate((observations, actions), axis=1)
        for index in (0, 1):
            linear, norm = ([state[f"{part}.{index}.{name}"][member] for name in ("weight", "bias")] for part in PARTS)
            hidden = hidden @ linear[0] + linear[1]
            centred = hidden - hidden.mean(1, keepdims=True)
            hidden = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
            hidden = np.maximum(hidden * norm[0] + norm[1], 0)
        rows.append((hidden @ state["linears.2.weight"][member] + state["linears.2.bias"][member])[:, 0])
    return np.stack(rows)


def prepared(spec, **changes) -> RLPD:
    """Returns a learner whose target critics differ from the online ones and whose norms are not the identity."""
    learner = updated(SMALL, changes).build(spec, 0)
    generator = torch.Generator().manual_seed(1)
    for critics, part in ((learner.critic, "norms"), (learner.target_critic, "")):
        state = {name: value.clone() for name, value in critics.state_dict().items()}
        drawn = {name: value.uniform_(-0.7, 0.7, generator=generator) for name, value in state.items() if part in name}
        critics.load_state_dict(state | drawn)
    return learner


def twin(learner) -> torch.Generator:
    """Returns a generator that draws what the learner's will draw."""
    generator = torch.Generator()
    generator.set_state(learner.parts.generator.get_state())
    return generator


@pytest.mark.parametrize("engine", ["reference", "accelerated"])
@pytest.mark.parametrize("backup_entropy", [True, False])
@torch.no_grad()
def test_target_takes_the_minimum_over_a_random_subset(backup_entropy, engine, spec, make_batch):
    learner = prepared(spec, backup_entropy=backup_entropy, network={"engine": engine})
    data = learner.parts.batch(make_batch(spec, 2))
    subsets = set()
    for _ in range(20):
        generator = twin(learner)
        next_actions, next_log_densities = learner.actor.sample(data.next_observations, generator)
        subset = torch.randperm(4, generator=generator)[:2].tolist()
        next_q = torch.as_tensor(q_by_hand(learner.target_critic, data.next_observations, next_actions)[subset].min(0))
        entropy = 0.3 * next_log_densities if backup_entropy else 0.0
        expected = data.rewards + 0.9 * data.masks * (next_q - entropy)
        np.testing.assert_allclose(learner.critic_target(data, torch.tensor(0.3)), expected, rtol=1e-4, atol=1e-5)
        subsets.add(tuple(sorted(subset)))
    assert len(subsets) > 3


def test_critic_loss_is_the_weighted_mean_over_critics_and_batch(spec):
    values, targets = torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.tensor([0.5, 1.0])
    loss = SMALL.build(spec, 0).critic_loss(values, targets, torch.tensor([1.0, 2.0]))
    assert loss == pytest.approx((0.25 + 2 * 1.0 + 0.25 + 2 * 4.0) / 4)


def test_actor_maximises_the_mean_of_all_critics(spec, make_batch):
    learner = prepared(spec)
    data = learner.parts.batch(make_batch(spec, 2))
    with torch.no_grad():
        actions, log_densities = learner.actor.sample(data.observations, learner.parts.generator)
    q = q_by_hand(learner.critic, data.observations, actions)
    expected = np.mean(0.3 * log_densities.numpy() - q.mean(0))
    loss = learner.actor_loss(data.observations, actions.requires_grad_(), log_densities, torch.tensor(0.3))
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    (by_actions,) = torch.autograd.grad(loss, actions)
    nudged = actions.detach().numpy().astype(np.float64) + np.array([[1e-4, 0], [0, 0]])
    slope = -(q_by_hand(learner.critic, data.observations, nudged) - q).mean() / 1e-4
    assert by_actions[0, 0] == pytest.approx(slope, rel=1e-2)


def test_batch_gives_critic_step_per_slice_and_one_actor_step(spec, make_batch, monkeypatch):
    learner, seen = SMALL.build(spec, 0), {"critic": [], "actor": []}
    critic_loss, actor_loss = learner.critic_loss, learner.actor_loss
    monkeypatch.setattr(learner, "critic_loss", lambda q, y, w: seen["critic"].append(w) or critic_loss(q, y, w))
    monkeypatch.setattr(learner, "actor_loss", lambda o, *rest: seen["actor"].append(o) or actor_loss(o, *rest))
    batch = make_batch(spec, 6, weights=np.arange(6, dtype=np.float32))
    learner.update(batch)
    assert [weights.tolist() for weights in seen["critic"]] == [[0, 1], [2, 3], [4, 5]]
    assert [len(observations) for observations in seen["actor"]] == [2]
    last = learner.parts.encoder.stack(batch.observations)[4:]
    assert np.array_equal(seen["actor"][0], last)
    steps = {name: optimizer.state_dict()["step"].item() for name, optimizer in learner.parts._optimizers.items()}
    assert steps == {"critic": 3, "actor": 1, "temperature": 1}


def test_a_batch_that_cannot_be_cut_is_refused(spec, make_batch):
    with pytest.raises(
        InvalidSetting, match=r"cannot be cut into equal slices(.*\n)*.*7 transitions(.*\n)*.*updates_per_step = 3"
    ):
        SMALL.build(spec, 0).update(make_batch(spec, 7))


@pytest.mark.parametrize(("setting", "value"), [("network.convolutions", (4, 0)), ("network.crop_padding", -1), ("lr", 0.0)])
def test_settings_out_of_range_are_refused(setting, value):
    with pytest.raises(InvalidSetting, match=rf"Setting '{setting}' is out of range"):
        group, _, name = setting.rpartition(".")
        updated(RLPDConfig(), {group: {name: value}} if group else {name: value})


def test_more_target_critics_than_critics_are_refused():
    with pytest.raises(InvalidSetting, match=r"target_critics must be among the critics.\n  got:     3\n  allowed: 1 to 2"):
        RLPDConfig(critics=2, target_critics=3)


@pytest.mark.slow
def test_three_states_reach_their_known_values():
    """A chain with rewards 0.5, -1 and 2 that ends: without entropy in the target the values are those of the rewards."""
    spec = make_spec("chain", ArraySpec("state", (3,)))
    config = RLPDConfig(network=RLPDNetwork(hidden=(16,)), critics=3, updates_per_step=4, batch_size=24, lr=1e-2, tau=0.1)
    learner, state, one_hot = config.build(spec, 0), np.arange(96) % 3, np.eye(3, dtype=np.float32)
    batch = Batch(
        observations={"state": one_hot[state]},
        actions=np.random.default_rng(0).uniform(-1, 1, (96, 1)).astype(np.float32),
        rewards=np.array([0.5, -1.0, 2.0], np.float32)[state],
        masks=(state < 2).astype(np.float32),
        discounts=np.full(96, 0.8, np.float32),
        next_observations={"state": one_hot[(state + 1) % 3]},
        weights=np.ones(96, np.float32),
        sources=np.zeros(96, np.int8),
    )
    for _ in range(150):
        learner.update(batch)
    with torch.no_grad():
        values = learner.critic(torch.eye(3), torch.tensor([[-0.5], [0.0], [0.5]]))
    np.testing.assert_allclose(values, [[0.5 - 0.8 + 0.64 * 2.0, -1.0 + 0.8 * 2.0, 2.0]] * 3, atol=0.05)


def test_saved_and_loaded_gives_the_same_next_update(spec, make_batch, leaves, tmp_path):
    learner, copy = SMALL.build(spec, 0), SMALL.build(spec, 99)
    for seed in range(3):
        learner.update(make_batch(spec, 6, seed))
    save_checkpoint(tmp_path, Checkpoint(3, {"learner": learner.state_dict()}))
    copy.load_state_dict(load_checkpoint(tmp_path).parts["learner"])
    for seed in range(3, 6):
        learner.update(make_batch(spec, 6, seed))
        copy.update(make_batch(spec, 6, seed))
    assert leaves(copy.state_dict()) == leaves(learner.state_dict())


def test_seed_determines_result_and_globals_are_untouched(spec, make_batch, leaves):
    before = torch.get_rng_state()
    first, second = (SMALL.build(spec, 0) for _ in range(2))
    first.update(make_batch(spec, 6))
    second.update(make_batch(spec, 6))
    assert leaves(first.state_dict()) == leaves(second.state_dict())
    assert torch.equal(torch.get_rng_state(), before)


def test_an_observation_that_is_not_finite_refuses_the_update(spec, make_batch, leaves):
    learner, batch = SMALL.build(spec, 0), make_batch(spec, 6)
    before = leaves(learner.state_dict())
    batch.next_observations["goal"][1] = np.nan
    with pytest.raises(NonFiniteUpdate, match=r"Update 0 was refused: batch next_observations are not finite"):
        learner.update(batch)
    assert leaves(learner.state_dict()) == before


def test_discrete_actions_are_refused(discrete_spec):
    with pytest.raises(InvalidSetting, match=r"RLPD needs continuous actions(.*\n)*.*dqn or ppo, or bc"):
        SMALL.build(discrete_spec, 0)


def test_settings_reach_the_training_loop():
    sampling = RLPDConfig(batch_size=32, updates_per_step=5).sampling
    assert (sampling.batch_size, sampling.updates_per_step, sampling.offline_fraction) == (32, 5, 0.5)


POINT = make_spec("point", ArraySpec("position", (2,)), action=axes("x", "y", limit=0.1, unit="m"))
GOAL, RADIUS, LIMIT = np.array([0.7, 0.7]), 0.1, 30
POINT_CONFIG = RLPDConfig(
    critics=2,
    updates_per_step=2,
    discount=0.95,
    network=RLPDNetwork(hidden=(64, 64)),
    batch_size=64,
    initial_temperature=0.01,
    replay=RLPDReplay(learning_starts=200),
    lr=1e-3,
    tau=0.01,
)


@pytest.mark.slow
def test_demonstrations_turn_a_sparse_reward_into_success():
    """A point crosses a square to a small goal: with five poor demonstrations it learns to."""
    assert point_success(POINT_CONFIG) >= 0.9


@pytest.mark.slow
def test_without_demonstrations_the_point_never_arrives():
    assert point_success(updated(POINT_CONFIG, replay={"offline_fraction": 0.0})) <= 0.1


def put(memory: ReplayBuffer, transition: Transition) -> None:
    if not memory.is_running():
        memory.begin(transition.observation)
    memory.add(transition)


def point_success(config: RLPDConfig, seed: int = 1, steps: int = 2000) -> float:
    """Trains on the point for some steps and returns the success rate of 20 deterministic episodes."""
    sampling, random = config.sampling, np.random.default_rng(seed)
    online, offline = ReplayBuffer(POINT, 10_000, seed), ReplayBuffer(POINT, 10_000, seed + 1)
    learner = config.build(POINT, seed)
    for _ in range(5):
        play(random, lambda position: demonstrated(position, random), partial(put, offline))
    sampler = SymmetricReplay(online, offline) if sampling.offline_fraction else online
    taken = 0

    def explore(position):
        if taken < sampling.learning_starts:
            return random.uniform(-1, 1, 2)
        return learner.policy.act({"position": position})

    def learn(transition):
        nonlocal taken
        put(online, transition)
        taken += 1
        if taken > sampling.learning_starts:
            size = sampling.batch_size * sampling.updates_per_step
            learner.update(sampler.sample(size, discount=sampling.discount))

    while taken < steps:
        play(random, explore, learn)
    act, starts = learner.policy.act, np.random.default_rng(99)
    return float(np.mean([play(starts, lambda p: act({"position": p}, deterministic=True), lambda _: None) for _ in range(20)]))


def play(random, act, tell) -> bool:
    """Runs one episode from the lower left corner; returns whether the goal was reached."""
    position = np.array([-0.8, -0.8]) + random.uniform(-0.1, 0.1, 2)
    for step in range(1, LIMIT + 1):
        observation = position.astype(np.float32)
        action = np.asarray(act(observation), np.float32)
        position = np.clip(position + 0.1 * np.clip(action, -1, 1), -1, 1)
        reached = bool(np.linalg.norm(position - GOAL) < RADIUS)
        following = {"position": position.astype(np.float32)}
        late = step == LIMIT and not reached
        tell(Transition({"position": observation}, action, float(reached), following, reached, late, action))
        if reached:
            return True
    return False


def demonstrated(position, random):
    return 0.8 * np.clip((GOAL - position) * 3 + random.normal(0, 0.4, 2), -1, 1)
