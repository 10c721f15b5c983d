"""Step rewards from returns: losses by hand and simulated, a chain whose rewards are known, and what a run makes of them."""

import functools
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from factories import make_episode, make_spec
from robo_papers.lare.decoder import Decoder, DecoderConfig, RunningScale
from robo_papers.lare.draws import Draw, EveryStep, RepeatedSteps, SomeSteps, decomposition_loss
from robo_papers.lare.learned import Decomposition, EpisodeMemory, StatesAndActions
from robo_papers.lare.reward import EpisodicReward, RandomizedReturnDecomposition, ReturnDecomposition
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_policies.sb3 import algorithms as sb3
from robo_rl.errors import InvalidSetting, NonFiniteUpdate, RewardUnavailable
from robo_rl.rewards.step_rewards.online_scoring import MOST_MISSING
from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import ActionSpec, ArraySpec
from robo_rl.training.off_policy import OnlineTraining, online_training
from robo_rl.training.step_sources import EnvironmentSteps
from robo_rl.types import Batch

# losses


def loss_of(drawing, rewards, mean_rewards, lengths=None, seed=0) -> float:
    """Returns the loss of predicted rewards (M, T) under one draw."""
    rewards = np.asarray(rewards, np.float32)
    lengths = np.full(len(rewards), rewards.shape[1]) if lengths is None else np.array(lengths)
    draw = drawing.draw(lengths, np.random.default_rng(seed))
    drawn = np.take_along_axis(rewards, draw.steps, 1)
    return decomposition_loss(drawn, np.array(mean_rewards, np.float32), draw)[0]


def test_return_decomposition_by_hand():
    # episode 1: R/T = 2, mean of 1, 2, 6 is 3: 1. episode 2, of two steps: R/T = 0.5, mean of 1, 3 is 2: 2.25. mean: 1.625
    assert loss_of(EveryStep(), [[1, 2, 6], [1, 3, 99]], [2.0, 0.5], lengths=[3, 2]) == pytest.approx(1.625)


def test_the_unbiased_loss_by_hand():
    rewards = np.array([[1.0, 5.0]], np.float32)
    # K = 2 of T = 8: (2 - 3)^2 - (1 - 2/8) * 8 / 2, where 8 is the sample variance of 1 and 5
    draw = Draw(np.array([[0, 1]]), np.ones((1, 2), bool), np.array([0.75], np.float32))
    assert decomposition_loss(rewards, np.array([2.0]), draw)[0] == pytest.approx(1 - 3)
    plain = replace(draw, correction=np.zeros(1, np.float32))
    assert decomposition_loss(rewards, np.array([2.0]), plain)[0] == pytest.approx(1)


@pytest.mark.parametrize("drawing", [SomeSteps, RepeatedSteps])
@pytest.mark.parametrize("lengths", [[20] * 4, [7, 20, 3, 12]])
@pytest.mark.parametrize("count", [2, 8, 32])
def test_unbiased_loss_equals_full_loss_in_expectation(drawing, count, lengths):
    random = np.random.default_rng(1)
    rewards, mean_rewards = random.normal(size=(4, 20)).astype(np.float32), [0.3, -0.2, 0.5, 0.0]
    whole = loss_of(EveryStep(), rewards, mean_rewards, lengths)
    found = {
        unbiased: np.array(
            [
                loss_of(drawing(count, unbiased=unbiased), np.tile(rewards, (300, 1)), mean_rewards * 300, lengths * 300, seed)
                for seed in range(20)
            ]
        )
        for unbiased in (True, False)
    }
    error = found[True].std() / np.sqrt(20)
    assert abs(found[True].mean() - whole) < 4 * error + 1e-6
    is_whole = drawing is SomeSteps and count >= max(lengths)
    excess = found[False].mean() - whole
    assert excess == pytest.approx(0, abs=1e-6) if is_whole else excess > 8 * error, "without the correction it is too large"


def test_draws_are_what_they_say():
    generator = np.random.default_rng(0)
    lengths = np.array([3, 10])
    some = SomeSteps(5).draw(lengths, generator)
    assert sorted(some.steps[0][some.used[0]]) == [0, 1, 2]
    assert len(set(some.steps[1])) == 5 and some.used.sum(1).tolist() == [3, 5]
    assert np.allclose(some.correction, [0, 0.5]), "1 - K/T, and nothing to correct where all steps are drawn"
    repeated = RepeatedSteps(64).draw(lengths, generator)
    assert repeated.steps.shape == (2, 64) and repeated.used.all() and repeated.steps.max(1).tolist() == [2, 9]
    assert (repeated.correction == 1).all(), "1 - K/T would be -20"
    assert (EveryStep().draw(lengths, generator).used.sum(1) == lengths).all()
    assert (EveryStep().episodes(256, 50.0), SomeSteps(64).episodes(256, 50.0), EveryStep().episodes(256, 1000.0)) == (5, 4, 1)


@pytest.mark.parametrize("drawing", [SomeSteps, RepeatedSteps])
def test_one_step_has_no_variance(drawing):
    with pytest.raises(InvalidSetting, match=r"'count' is out of range(.|\n)*2 or more: one step has no variance to correct"):
        drawing(1)
    assert np.isfinite(loss_of(drawing(1, unbiased=False), [[1, 2, 6]], [2.0]))
    assert loss_of(SomeSteps(4), [[3.0]], [1.0]) == pytest.approx(4.0), "an episode of one step: (1 - 3)^2, no division by zero"


def test_the_derivative_of_the_loss_is_that_of_differences():
    random = np.random.default_rng(0)
    lengths, targets = np.array([7, 3, 1]), random.normal(size=3).astype(np.float32)
    for drawing in (EveryStep(), SomeSteps(4), RepeatedSteps(4), SomeSteps(4, unbiased=False)):
        draw = drawing.draw(lengths, random)
        rewards = random.normal(size=draw.steps.shape)
        _, found = decomposition_loss(rewards, targets, draw)
        for at in np.ndindex(rewards.shape):
            ends = [
                decomposition_loss(np.where(_at(at, rewards), rewards + step, rewards), targets, draw)[0]
                for step in (1e-4, -1e-4)
            ]
            assert found[at] == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-5)


def _at(place, array):
    chosen = np.zeros(array.shape, bool)
    chosen[place] = True
    return chosen


def test_the_decoder_learns_as_autograd_and_adam_would():
    random, config = np.random.default_rng(0), DecoderConfig(hidden=(5, 4), lr=1e-2)
    decoder = Decoder(3, config, 0)
    inputs, targets = random.normal(2, 3, size=(8, 3)).astype(np.float32), random.normal(size=8).astype(np.float32)
    for reward in (0.2, 0.9):
        decoder.observe(inputs, reward)
    layers = [torch.nn.Linear(*shape) for shape in ((3, 5), (5, 4), (4, 1))]
    for layer, (weights, biases) in zip(layers, decoder._layers, strict=True):
        layer.load_state_dict({"weight": torch.tensor(weights.T.copy()), "bias": torch.tensor(biases)})
    first, second, last = layers
    network = torch.nn.Sequential(first, torch.nn.ReLU(), second, torch.nn.ReLU(), last)
    parameters = [*network.parameters()]
    moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in parameters]
    inner = torch.from_numpy((inputs - inputs.mean(0)) / inputs.std(0))
    for step in range(1, 6):
        loss = (0.55 + 0.35 * network(inner)[:, 0] - torch.from_numpy(targets)).square().mean()
        for each, (mean, square), slope in zip(parameters, moments, torch.autograd.grad(loss, parameters), strict=True):
            mean.lerp_(slope, 0.1)  # Kingma & Ba 2015, algorithm 1; torch.optim would load for seconds
            square.lerp_(slope**2, 0.001)
            each.data -= config.lr * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
        found = decoder.descend(inputs, lambda rewards: (float(((rewards - targets) ** 2).mean()), (rewards - targets) / 4))
        assert found == pytest.approx(float(loss.detach()), rel=1e-4)
    assert np.allclose(decoder.rewards(inputs), 0.55 + 0.35 * network(inner)[:, 0].detach().numpy(), atol=1e-4)


# the memory


def test_an_episode_keeps_its_places_until_it_is_overwritten():
    memory, generator = EpisodeMemory(1, 10), np.random.default_rng(0)
    seen = {}
    for number in range(40):
        length = 1 + number % 4
        values = number + np.arange(length, dtype=np.float32)[:, None] / 10
        seen |= dict(zip(memory.add(values, float(number)).tolist(), values[:, 0].tolist(), strict=True))
        assert all(memory.inputs(np.array([place]))[0, 0] == np.float32(value) for place, value in seen.items())
        for start, length, total in memory.draw(8, generator):
            assert (np.floor(memory.inputs(start + np.arange(length))) == total).all(), (
                "a whole episode, past the end of the ring"
            )
        assert memory.mean_length * len(memory) <= 10
    with pytest.raises(InvalidSetting, match=r"longer than the replay memory(.|\n)*11 steps"):
        memory.add(np.zeros((11, 1), np.float32), 0.0)
    with pytest.raises(InvalidSetting, match=r"cannot have that many steps(.|\n)*16777216"):
        EpisodeMemory(1, 2**24 + 1)
    again = EpisodeMemory(1, 10)
    again.load_state_dict(memory.state_dict())
    assert again.draw(9, np.random.default_rng(1)) == memory.draw(9, np.random.default_rng(1))
    assert (again.add(np.ones((3, 1), np.float32), 1.0) == memory.add(np.ones((3, 1), np.float32), 1.0)).all()


def test_moments_are_those_of_all_rows():
    random, moments = np.random.default_rng(0), RunningScale(2)
    rows = [random.normal((5, 1e-3), (3, 0), (count, 2)) for count in (1, 7, 30)]
    for part in rows:
        moments.merge(part)
    whole = np.concatenate(rows)
    assert np.allclose(moments.mean, whole.mean(0)) and moments.deviation[0] == pytest.approx(whole[:, 0].std())
    assert moments.deviation[1] == 1, "what does not vary is not blown up"


# a chain whose rewards are known


def chain(episodes: int, seed: int, distractors: int = 0):
    """Yields inputs and rewards of walks of 20 steps: what a step pays depends on its place and action."""
    random = np.random.default_rng(seed)
    for _ in range(episodes):
        places, actions = np.empty(20), random.choice((-1.0, 1.0), 20)
        at = random.integers(0, 7)
        for step, action in enumerate(actions):
            places[step] = at
            at = int(np.clip(at + action, 0, 6))
        rewards = 0.5 * (places == 6) - 0.1 * (actions > 0) + 0.05 * places
        yield places, actions, rewards, random.normal(size=(20, distractors))


@functools.cache
def learned(inputs_of, episodes=200, distractors=0, updates=700, drawing=None, order=None) -> float:
    """Returns the correlation of what is learned from returns alone with the rewards of episodes that were not seen."""
    decoder = DecoderConfig(hidden=(16,), lr=5e-3, rows=128)
    running = Decomposition(_Given(inputs_of, distractors), drawing or SomeSteps(8), decoder, seed=0, weight=1.0)
    running.reserve(10_000)
    for places, actions, rewards, noise in chain(episodes, 0, distractors):
        inputs = inputs_of(places, actions, noise)
        inputs = inputs if order is None else inputs[:, list(order)]
        running.decoder.observe(inputs, rewards.mean())
        running.memory.add(inputs, rewards.sum())
    for _ in range(updates):
        running.update()
    found, true = [], []
    for places, actions, rewards, noise in chain(50, 1, distractors):
        inputs = inputs_of(places, actions, noise)
        found.append(running.decoder.rewards(inputs if order is None else inputs[:, list(order)]))
        true.append(rewards)
    return float(np.corrcoef(np.concatenate(found), np.concatenate(true))[0, 1])


class _Given:
    """Stands for inputs that the test makes itself."""

    identity = {}  # noqa: RUF012

    def __init__(self, inputs_of, distractors):
        places = np.zeros(1)
        self.size = inputs_of(places, places, np.zeros((1, distractors))).shape[1]


def factors(places, actions, noise):
    """What a good program would write: three terms of which the reward is a sum."""
    return np.stack([places == 6, actions > 0, places], 1).astype(np.float32)


def raw(places, actions, noise):
    return np.concatenate([places[:, None], actions[:, None], noise], 1).astype(np.float32)


@pytest.mark.slow
def test_reward_factors_recover_reward_better_than_raw_states():
    good = learned(factors)
    poor = learned(raw, distractors=50)
    assert good > 0.99
    assert poor < 0.9
    assert learned(factors, updates=0) < 0.9, "what has learned nothing knows nothing"


def test_the_order_of_factors_changes_nothing():
    assert learned(factors, order=(2, 0, 1)) == pytest.approx(learned(factors), abs=0.01)


# in a run

SPEC = make_spec("test/Line", ArraySpec("position", (1,)), ArraySpec("number", (1,)))


class Line(gymnasium.Env):
    """A point on a line, paid for being near 0.5; ends after 5 or 7 steps. Every observation has its own number."""

    environment_spec = SPEC
    observation_space = SPEC.observation.space
    action_space = SPEC.action.space
    diverges = False
    number = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.steps = float(self.np_random.uniform(-1, 1)), 0
        self.first, self.is_short = int(self.np_random.integers(1 << 16)) * 10, bool(self.np_random.random() < 0.5)
        return self._observation(), {}

    def step(self, action):
        self.position = float(np.clip(self.position + 0.3 * action[0], -1, 1))
        self.steps += 1
        terminated, truncated = self.is_short and self.steps == 5, self.steps == 7
        if self.diverges and self.is_short and self.steps == 4:
            return self._observation(), 0.0, False, True, {"stop_reason": "sim_diverged"}
        return self._observation(), -abs(self.position - 0.5), terminated, truncated, {}

    def _observation(self):
        return {"position": np.array([self.position], np.float32), "number": np.array([self.first + self.steps], np.float32)}


class Observer:
    def __init__(self, save=None):
        self.save, self.metrics, self.returns = save, {}, []

    def on_episode(self, step, *, episode_return, **outcome):
        self.returns.append(episode_return)

    def on_metrics(self, step, metrics):
        self.metrics |= metrics

    def on_step(self, step, training):
        if self.save is not None and step == self.save[0]:
            save_checkpoint(self.save[1], Checkpoint(step, training.state_dict()))


RD = ReturnDecomposition(decoder=DecoderConfig(hidden=(8,), rows=32))


def sac(model=RD, *, steps=60, weight=1.0, environment=Line, **settings) -> OnlineTraining[EnvironmentSteps]:
    config = updated(
        SACConfig(),
        {
            "network": {"hidden": (8,), "normalization_rows": 50},
            "batch_size": 8,
            "replay": {"learning_starts": 10, "capacity": 100},
        },
        settings,
    )
    reward = model.online(SPEC, weight=weight, discount=0.99)
    learner, running = config.build(SPEC, 3), reward.running(1)
    return online_training(environment(), learner, config.sampling, steps=steps, seed=3, rewards=running)


@pytest.mark.slow
def test_batch_rewards_belong_to_their_steps_past_ring_wrap():
    training, seen = sac(steps=240, weight=2.0, replay={"learning_starts": 110}), []
    running = training.step_learner.relabelling
    update = training.learner.update
    training.learner.update = lambda batch: seen.append((batch, running.decoder.rewards(_inputs(batch)))) or update(batch)
    training.run(Observer())
    assert len(seen) == 131 and len(training.step_learner.replay) < 100
    for batch, expected in seen:
        assert np.allclose(batch.rewards, 2 * expected, atol=1e-5), "of the decoder as it is now, for these states and actions"
    late, early = seen[-1][0], seen[0][1]
    assert np.ptp(late.rewards) > 1e-3 and np.ptp(early) > 1e-3


def _inputs(batch: Batch):
    states, following = (
        np.concatenate([each["position"], each["number"]], 1) for each in (batch.observations, batch.next_observations)
    )
    return np.concatenate([states, batch.actions, states - following], 1)


@pytest.mark.slow
def test_the_learner_hears_of_nothing_but_returns():
    """Rewards that are moved about within each episode leave every parameter as it is."""

    class Late(Line):
        """The same returns, paid at the end."""

        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            self.total = reward + (self.total if self.steps > 1 else 0.0)
            return observation, self.total if terminated or truncated else 0.0, terminated, truncated, info

    class Other(Line):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, reward * 1.5, *rest

    first, late, other = (finished(sac(environment=kind)) for kind in (Line, Late, Other))
    assert first == late
    assert first != other, "the comparison can fail"


def finished(training) -> bytes:
    training.run(Observer())
    state = training.state_dict()["learner"]["networks"]["actor"]
    return b"".join(np.asarray(state[name]).tobytes() for name in sorted(state))


@pytest.mark.slow
def test_resumed_anywhere_equals_uninterrupted(tmp_path):
    model = RandomizedReturnDecomposition(steps=4, decoder=DecoderConfig(hidden=(8,), rows=32))
    expected = finished(sac(model))
    for step in (8, 17, 33):
        sac(model).run(Observer(save=(step, tmp_path / str(step))))
        resumed = sac(model)
        resumed.load_state_dict(load_checkpoint(tmp_path / str(step)).parts)
        assert resumed.resumed == "exact" and finished(resumed) == expected, f"resumed at step {step}"
    mistaken, parts = sac(model), load_checkpoint(tmp_path / "33").parts
    parts["training"]["waiting"]["rewards"]["queue"]["waiting"]["rewards"] += 1.0
    mistaken.load_state_dict(parts)
    assert finished(mistaken) != expected, "the comparison can fail"


def test_permuted_returns_are_those_of_other_episodes():
    """Of 60 episodes worth their number, few keep their own, and the state of the control goes on after a restore."""

    inputs = StatesAndActions(make_spec("test/State", ArraySpec("state", (1,))))

    def control():
        made = Decomposition(inputs, EveryStep(), DecoderConfig(hidden=(4,)), seed=0, weight=1.0, permuted=True)
        made.reserve(1000)
        return made

    def filed(running, numbers):
        for number in numbers:
            states = {"state": np.zeros((2, 1), np.float32)}
            steps = Steps.of(make_episode(states, rewards=np.array([float(number)], np.float32)))
            running.places(steps)
        return [kept.total for kept in running.memory._episodes]

    whole, first = control(), control()
    everything = filed(whole, range(60))
    assert sum(total == number for number, total in enumerate(everything)) < 12
    assert all(total <= number for number, total in enumerate(everything)), "only episodes that were seen"
    filed(first, range(30))
    second = control()
    second.load_state_dict(first.state_dict())
    assert filed(second, range(30, 60)) == everything


def test_an_episode_that_has_no_return_is_left_out():
    class Diverging(Line):
        diverges = True

    training, observer = sac(environment=Diverging, steps=60, replay={"learning_starts": 1000}), Observer()
    training.run(observer)
    lengths = {each.length for each in training.step_learner.relabelling.memory.draw(50, np.random.default_rng(0))}
    assert lengths == {7}, "those that diverged after 4 steps taught nothing"
    batch = training.step_learner.replay.sample(200)
    assert (batch.next_observations["number"] - batch.observations["number"] == 1).all()
    assert 0 < observer.metrics["reward/missing"] < 1 and observer.metrics["reward/model_return"] < 0


def test_where_nothing_can_be_decomposed_the_training_stops():
    running = RD.online(SPEC, weight=1.0, discount=None).running(1)
    running.relabelling.reserve(100)
    observation = {"position": np.full(1, np.nan, np.float32), "number": np.zeros(1, np.float32)}
    with pytest.raises(RewardUnavailable, match=r"has given no usable answer for 1000 steps(.|\n)*less than 1000"):
        for step in range(MOST_MISSING):
            if step % 10 == 0:
                running.begin(0, observation, None)
            running.add(0, observation, action=np.zeros(1, np.float32), reward=0.0, terminated=step % 10 == 9, truncated=False)
            running.score()
    assert len(running.relabelling.memory) == 0


@pytest.mark.slow
def test_only_a_loop_that_relabels_takes_such_a_reward():
    reward = RD.online(SPEC, weight=1.0, discount=None)
    with pytest.raises(
        InvalidSetting, match=r"given to single steps(.|\n)*n_step 3(.|\n)*use sac with learner.replay.n_step 1"
    ):
        sac(replay={"n_step": 3})
    with pytest.raises(InvalidSetting, match=r"for one environment(.|\n)*4 environments(.|\n)*sac"):
        reward.running(4)
    with pytest.raises(InvalidSetting, match="once and for all"):
        PPOConfig(num_envs=1).training(Line, steps=8, seed=0, reward=reward)
    with pytest.raises(InvalidSetting, match="once and for all"):
        sb3.SACConfig().training(Line, steps=8, seed=0, reward=reward)
    with pytest.raises(InvalidSetting, match=r"has none for recorded episodes(.|\n)*demonstrations.episodes to 0"):
        list(reward.labelled(None, SPEC))


def test_a_step_that_is_not_finite_is_refused():
    decoder, ones = Decoder(2, DecoderConfig(hidden=(4,)), 0), np.ones((1, 2), np.float32)
    before = decoder.rewards(ones)
    with pytest.raises(NonFiniteUpdate, match=r"Update 0 of the decomposition was refused(.|\n)*loss nan"):
        decoder.descend(ones, lambda rewards: (float("nan"), rewards * np.float32("nan")))
    assert (decoder.rewards(ones) == before).all()


def test_inputs_are_state_action_and_difference():
    observations = {"position": np.array([[1.0], [3.0], [2.0]]), "number": np.array([[0.0], [1.0], [2.0]])}
    found = StatesAndActions(SPEC).of(observations, np.array([[0.5], [-0.5]]))
    assert found.tolist() == [[1, 0, 0.5, -2, -1], [3, 1, -0.5, 1, -1]] and StatesAndActions(SPEC).size == 5
    choices = replace(SPEC, action=ActionSpec(("left", "right", "stay"), (0,) * 3, (0,) * 3, ("1",) * 3, mode="discrete"))
    found = StatesAndActions(choices).of(observations, np.array([2, 0]))
    assert found[:, 2:5].tolist() == [[0, 0, 1], [1, 0, 0]] and found.shape[1] == StatesAndActions(choices).size


# plain episodic reward


def test_an_episodic_reward_is_paid_with_the_last_step():
    training, observer = sac(EpisodicReward(), weight=2.0, replay={"learning_starts": 1000}), Observer()
    training.run(observer)
    batch = training.step_learner.replay.sample(500)
    last = (batch.masks == 0) | (batch.next_observations["number"][:, 0] % 10 == 7)
    assert (batch.rewards[~last] == 0).all() and last.any()
    paid = {round(float(value), 4) for value in batch.rewards[last]}
    assert paid <= {round(2 * total, 4) for total in observer.returns} and len(paid) > 3


@pytest.mark.slow
def test_episodic_reward_suits_any_learner_and_resumes(tmp_path):
    config = PPOConfig(num_envs=1, steps_per_env=16, epochs=1, batch_size=8, network=PolicyValueNetwork(hidden=(8,)))
    config.training(Line, steps=16, seed=0, reward=EpisodicReward().online(SPEC, weight=1.0, discount=None)).run(Observer())
    expected = finished(sac(EpisodicReward()))
    sac(EpisodicReward()).run(Observer(save=(17, tmp_path / "17")))
    resumed = sac(EpisodicReward())
    resumed.load_state_dict(load_checkpoint(tmp_path / "17").parts)
    assert resumed.resumed == "exact" and finished(resumed) == expected
