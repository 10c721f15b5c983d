"""DPPO: steps of a chunk by hand, what an update moves, and a clone that it improves."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from factories import axes, make_spec
from robo_app.papers.checks import check_paper
from robo_bench.trainings import Silent, Successes
from robo_cli.main import dispatch
from robo_papers.dppo.advantages import plan_advantages
from robo_papers.dppo.chain import PLANS, DiffusionChain, FlowChain, rows_of
from robo_papers.dppo.learner import ChunkCloning, DiffusionDPPOConfig, FlowDPPOConfig
from robo_papers.dppo.noise import NoiseEnv
from robo_papers.dppo.study import Dealt, paid_at_the_end
from robo_policies.export.acting import acting_network
from robo_policies.learners.diffusion_bc import Schedule
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.rollout.episode import rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec

CPU = torch.device("cpu")
KINDS = {"diffusion": DiffusionDPPOConfig, "flow": FlowDPPOConfig}
both = pytest.mark.parametrize("kind", KINDS)


def answering(value):
    """A network that predicts the same everywhere."""
    return lambda chunks, time, features: torch.full_like(chunks, value)


def step_of(chain, number, before, network):
    return chain.mean(network, before, torch.full((len(before),), number), torch.zeros(len(before), 1))


def test_steps_of_a_diffusion_are_those_of_its_schedule():
    chain, schedule = DiffusionChain(6, 1e-9, CPU), Schedule(6)
    before, zeros = torch.linspace(-1.5, 1.5, 8).reshape(2, 4), torch.zeros(2, 4)
    for number, level in enumerate(reversed(range(6))):
        noise = torch.full_like(before, 0.3)
        mean = schedule.less_noisy(before, noise, level, zeros)
        torch.testing.assert_close(step_of(chain, number, before, answering(0.3)), mean, rtol=1e-4, atol=1e-5)
        deviation = schedule.less_noisy(before, noise, level, zeros + 1.0) - mean
        torch.testing.assert_close(chain.deviations[number].expand(2, 4), deviation, rtol=1e-3, atol=1e-5)


def test_steps_of_a_flow_by_hand():
    chain, before = FlowChain(2, 0.1, CPU), torch.tensor([[0.4, -0.2]])
    assert chain.deviations.tolist() == pytest.approx([0.5, 0.1])
    # at t = 0 the clean chunk is x + v, of which half is kept; at t = 1/2 it is x + v / 2, and all of it
    torch.testing.assert_close(step_of(chain, 0, before, answering(0.2)), torch.tensor([[0.3, 0.0]]))
    torch.testing.assert_close(step_of(chain, 1, before, answering(0.2)), torch.tensor([[0.5, -0.1]]))


def test_log_densities_by_hand():
    chain = FlowChain(2, 0.1, CPU)
    chains = torch.tensor([[[0.4, -0.2], [0.8, 0.25], [0.9, 0.35]]])
    found = chain.log_densities(answering(0.2), torch.zeros(2, 1), rows_of(chains))
    first = -0.5 * ((0.8 - 0.3) / 0.5) ** 2 - 0.5 * (0.25 / 0.5) ** 2 - 2 * np.log(0.5) - np.log(2 * np.pi)
    second = -0.5 * ((0.9 - 0.9) / 0.1) ** 2 - 0.5 * ((0.35 - 0.35) / 0.1) ** 2 - 2 * np.log(0.1) - np.log(2 * np.pi)
    np.testing.assert_allclose(found.numpy(), [first, second], rtol=1e-5)


def test_chunks_of_a_flow_are_distributed_as_on_its_path():
    chain, wanted = FlowChain(4, 1e-6, CPU), 0.5

    def velocity(chunks, time, features):
        return (wanted - chunks) / (1.0 - time[:, None] / 1000.0)

    chains = chain.draw(velocity, torch.zeros(20_000, 1), 1, torch.Generator().manual_seed(0))
    for number, time in enumerate(np.linspace(0.0, 1.0, 5)):
        assert chains[:, number].mean().item() == pytest.approx(time * wanted, abs=0.02)
        assert chains[:, number].std().item() == pytest.approx(1.0 - time, abs=0.02)


def test_advantages_of_chunks_by_hand():
    rewards, values = np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.5])
    found = plan_advantages(rewards, [0, 2], values, 0.9, 0.5)
    last = 2.0 - 1.5
    first = 0.9 * 1.0 + 0.81 * 1.5 - 0.5 + 0.81 * 0.5 * last
    np.testing.assert_allclose(found, [first, last])


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


SMALL = {"network": {"hidden": (32, 32)}, "chunk": 2, "executed": 1, "denoising_steps": 5, "lr": 1e-3, "batch_size": 64}


def training_of(kind, *, steps=640, updates=600, seed=0, **settings):
    config = updated(KINDS[kind](), SMALL, {"cloning": {"updates": updates, "batch_size": 64}, **settings})
    recorded = [rollout(Fork(), Either(seed), seed=seed) for seed in range(60)]
    return config.training(Fork, steps=steps, seed=seed, demonstrations=recorded)


def drawn_success(policy):
    return np.mean(evaluate(policy, Fork(), seeds=range(200), deterministic=False).successes)


@pytest.mark.slow
@both
def test_it_improves_a_clone(kind):
    training = training_of(kind)
    heard = Successes()
    training.run(heard)
    assert 0.3 < np.mean(heard.found[:64]) < 0.7
    assert drawn_success(training.policy) > 0.9


@pytest.mark.slow
def test_permuted_rewards_improve_no_clone_in_the_mean():
    """A single training drifts to one side or the other."""
    found = []
    for seed in range(3):
        control = training_of("flow", seed=seed)
        control.learner.rule = Dealt(control.learner.rule, control.learner.actor)
        control.run(Silent())
        found.append(drawn_success(control.policy))
    assert np.mean(found) < 0.75, found


@both
def test_an_update_raises_the_rewarded_chain_alone(kind):
    training = training_of(kind, updates=0, steps=0)
    learner, episodes = training.learner, [training.player.play(number) for number in range(2)]
    paid = [paid_at_the_end(each, value) for each, value in zip(episodes, (1.0, 0.0), strict=True)]

    def likelihoods():
        with torch.no_grad():
            return learner.actor.log_densities(*learner.actor.inputs(paid)).reshape(2, -1).sum(1)

    before = likelihoods()
    learner.learn(paid)
    better, worse = (likelihoods() - before).tolist()
    assert better > 0.0 > worse


def test_permuted_rewards_move_nothing_in_the_mean():
    training = training_of("flow", updates=0, steps=0, critic_lr=1e-9)
    learner = training.learner
    episodes = [paid_at_the_end(training.player.play(number), float(number < 4)) for number in range(8)]
    dealt = Dealt(learner.rule, learner.actor)
    plain = learner.rule.of(episodes)[0]
    mean = np.mean([dealt.of(episodes)[0] for _ in range(300)], 0)
    assert plain[:20].mean() > 0.9 and plain[20:].mean() < -0.9
    assert np.abs(mean).max() < 0.2


def test_a_new_plan_is_kept_with_its_step():
    training = training_of("diffusion", updates=0, steps=0, executed=2)
    policy = training.learner.actor.explorer
    policy.reset()
    seen = {"place": np.zeros(1, np.float32)}
    for number in range(4):
        policy.act(seen)
        if number == 0:
            policy.replan()
    assert [step for step, _ in policy.plans] == [0, 1, 3]
    assert policy.plans[0][1].shape == (6, 2)
    policy.reset()
    assert not policy.plans


def test_played_actions_are_the_chains_last_chunk():
    episode = training_of("flow", updates=0, steps=0).player.play(0)
    ((step, chain),) = episode.metadata[PLANS]
    assert step == 0
    np.testing.assert_allclose(episode.policy_actions[0], np.clip(chain[-1, :1], -1.0, 1.0), rtol=1e-6)


@both
def test_a_saved_training_acts_alike_and_is_exported(kind):
    training, again = training_of(kind, updates=2), training_of(kind, updates=2)
    training.run(Silent())
    again.load_state_dict(training.state_dict())
    assert again.resumed == "warm" and again.step == training.step
    seen = {"place": np.full(1, 0.2, np.float32)}
    np.testing.assert_array_equal(*[each.policy.act(seen, deterministic=True) for each in (training, again)])
    exported = acting_network(training.policy)
    assert exported.chunk == 2 and exported.draws == {"diffusion": 6, "flow": 1}[kind]


@both
def test_steered_noise_is_that_of_the_chunk(kind):
    learner = training_of(kind, updates=0, steps=0).learner
    environment = NoiseEnv(Fork(), learner.actor, 2.0, 0)
    assert environment.environment_spec.max_steps == 1 and environment.environment_spec.action.high == (2.0,)
    environment.reset(seed=0)
    _, reward, terminated, _, info = environment.step(np.array([0.5], np.float32))
    assert terminated and reward == float(info["success"])


def test_bad_settings_have_one_clear_error():
    with pytest.raises(InvalidSetting, match="1 to chunk"):
        FlowDPPOConfig(executed=9)
    with pytest.raises(InvalidSetting, match="least_deviation"):
        FlowDPPOConfig(least_deviation=0.0)
    with pytest.raises(InvalidSetting, match="sets the exploration"):
        ChunkCloning(initial_std=0.1)


@pytest.mark.slow
def test_the_paper_keeps_its_promises():
    check_paper("dppo")


@pytest.mark.slow
@both
def test_line_from_command_to_policy(kind, tmp_path):
    small = ["--learner.network.hidden", "16", "--learner.episodes", "2", "--learner.cloning.updates", "3", "--steps", "100"]
    quick = [
        "--evaluation.every",
        "0",
        "--evaluation.episodes",
        "1",
        "--evaluation.videos",
        "0",
        "--demonstrations.episodes",
        "2",
    ]
    assert dispatch(["train", f"arm-pick-{kind}-dppo", *small, *quick, "--out", str(tmp_path)]) == 0
