"""Rewards of a model while a policy learns: every stored reward is that of its own frame, and the environment's is never one.

The frame numbers itself in its picture and in its vector, so that whoever stores a step can be checked by what it led to.
"""

import copy
from dataclasses import dataclass, field, replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from factories import make_spec, picture_spec
from robo_policies.learners import ppo
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.rlpd import RLPDConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.sb3 import algorithms as sb3
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import InvalidSetting, RewardUnavailable
from robo_rl.rewards.identity import settings_hash
from robo_rl.rewards.images.picture_reward import PictureReward
from robo_rl.rewards.images.picture_scoring import Completion, PictureScoring
from robo_rl.rewards.step_rewards.online_scoring import MOST_MISSING, OnlineReward
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec, ObservationSpec
from robo_rl.training.off_policy import OnlineTraining, online_training
from robo_rl.training.step_sources import EnvironmentSteps
from robo_rl.types import Labels, StepRewards

POISON = 1e30
CAMERA = picture_spec("camera_top", (8, 8, 3))
VISIBLE = make_spec("test/Frames", ArraySpec("frame", (1,)), ArraySpec("position", (1,)))
DRAWN = replace(VISIBLE, observation=ObservationSpec((*VISIBLE.observation.arrays, CAMERA)))


class Frames(gymnasium.Env):
    """Numbers its frames by seed and step; ends by itself after 5 steps or by the clock after 7, as the seed has it."""

    environment_spec = DRAWN
    observation_space = DRAWN.observation.space
    action_space = DRAWN.action.space
    poison = POISON

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.first, self.steps = int(self.np_random.integers(1 << 17)) * 10, 0
        self.is_short, self.position = bool(self.np_random.random() < 0.5), 0.0
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        self.position = float(np.clip(self.position + 0.3 * action[0], -1, 1))
        terminated, truncated = self.is_short and self.steps == 5, self.steps == 7
        return self._observation(), self.poison, terminated, truncated, {"success": terminated}

    def _observation(self):
        number = self.first + self.steps
        picture = np.zeros((8, 8, 3), np.uint8)
        picture[0, 0] = number >> 16, number >> 8 & 255, number & 255
        position = np.array([self.position], np.float32)
        return {"frame": np.array([number], np.float32), "position": position, "camera_top": picture}


@dataclass(frozen=True, kw_only=True)
class FrameNumber(PictureReward):
    """The number of the frame; nothing for one in seven."""

    camera: str = "top"
    gaps: bool = False
    calls: list[int] = field(default_factory=list)

    @property
    def identity(self):
        return "frame-number", settings_hash(replace(self, calls=[]))

    def score(self, pictures, firsts, instruction):
        self.calls.append(len(pictures))
        numbers, first = (each[:, 0, 0].astype(np.int64) @ (1 << 16, 1 << 8, 1) for each in (pictures, firsts))
        assert (first // 10 == numbers // 10).all() and (first % 10 == 0).all(), "the first picture is of another episode"
        assert (firsts.strides[0] == 0) == (len(set(first)) == 1), "a model may look once at what is shown once"
        return Labels(numbers.astype(np.float32), numbers % 7 != 3 if self.gaps else np.ones(len(numbers), np.bool_))


@dataclass(frozen=True, kw_only=True)
class Steps(FrameNumber):
    """The number of steps so far, in tenths."""

    def score(self, pictures, firsts, instruction):
        scores = super().score(pictures, firsts, instruction)
        return replace(scores, values=(scores.values % 10 / 10).astype(np.float32))


def reward_of(model, *, weight=1.0, **settings) -> OnlineReward:
    return PictureScoring(model, alone=("camera_top",), **settings).online(DRAWN, weight=weight, discount=None)


class Observer:
    """Remembers, and saves at one step."""

    def __init__(self, save=None):
        self.save, self.metrics, self.returns = save, {}, []

    def on_episode(self, step, *, episode_return, **outcome):
        self.returns.append(episode_return)

    def on_metrics(self, step, metrics):
        self.metrics |= metrics

    def on_step(self, step, training):
        if self.save is not None and step == self.save[0]:
            save_checkpoint(self.save[1], Checkpoint(step, training.state_dict()))


def sac(reward, *, steps=400, learning_starts=10_000, replay_capacity=100, **settings) -> OnlineTraining[EnvironmentSteps]:
    config = updated(
        SACConfig(),
        settings,
        network={"hidden": (8,)},
        batch_size=8,
        replay={"learning_starts": learning_starts, "capacity": replay_capacity},
    )
    learner = config.build(VISIBLE, 3)
    return online_training(Frames(), learner, config.sampling, steps=steps, seed=3, rewards=reward.running(1))


def stored(replay) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rewards of all steps that can be sampled, and the frames that they led to."""
    rows, starts = replay._rows, np.flatnonzero(replay._rows["starts"])
    following = (starts + 1) % replay.capacity
    return rows["reward"][starts], rows["vectors"][following, 0]


@pytest.mark.parametrize("every", [1, 3, 64])
def test_stored_rewards_belong_to_frames_past_ring_wrap(every):
    model, observer = FrameNumber(), Observer()
    training = sac(reward_of(model, every=every))
    training.run(observer)
    rewards, frames = stored(training.step_learner.replay)
    assert len(rewards) > 80 and (rewards == frames).all()
    assert 400 - min(every, 7) < sum(model.calls) <= 400 and max(model.calls) <= every
    assert observer.returns[0] >= 5 * POISON, "the environment's own reward is still told"
    assert 0 < observer.metrics["reward/model_return"] < 1e8 and observer.metrics["reward/missing"] == 0


def sac_in_many(model, every, *, count=3, steps=400, capacity=150):
    config = updated(
        SACConfig(), network={"hidden": (8,)}, batch_size=8, replay={"learning_starts": 10_000, "capacity": capacity}
    )
    rewards = reward_of(model, every=every).running(count)
    environments = SequentialEnvironments(Frames, count, autoreset_mode=AutoresetMode.SAME_STEP)
    return online_training(environments, config.build(VISIBLE, 3), config.sampling, steps=steps, seed=3, rewards=rewards)


@pytest.mark.parametrize("every", [1, 4, 64])
@pytest.mark.parametrize("gaps", [False, True])
def test_rewards_of_many_belong_to_their_own_frames(every, gaps):
    model, observer = FrameNumber(gaps=gaps), Observer()
    training = sac_in_many(model, every)
    training.run(observer)
    replay = training.step_learner.replay
    rows, starts = replay._rows, np.flatnonzero(replay._rows["starts"])
    frames = rows["vectors"][(starts + 3) % replay.capacity, 0]
    assert (rows["reward"][starts] == frames).all() and len(starts) > 100
    assert not gaps or not (frames % 7 == 3).any()
    assert (frames == rows["vectors"][starts, 0] + 1).all(), "a step leads to the next frame of its own episode"
    assert 399 - max(every, 21) < sum(model.calls) <= 399 and observer.returns[0] >= 5 * POISON


def test_many_with_a_reward_resume_warm_without_the_waiting():
    save = Observer()
    training = sac_in_many(FrameNumber(), 64)
    save.on_step = lambda step, it: save.metrics.setdefault("state", copy.deepcopy(it.state_dict())) if step == 99 else None
    training.run(save)
    again = sac_in_many(model := FrameNumber(), 64)
    again.load_state_dict(save.metrics["state"])
    assert again.resumed == "warm" and again.step == 99
    again.run(Observer())
    rows, starts = again.step_learner.replay._rows, np.flatnonzero(again.step_learner.replay._rows["starts"])
    assert again.step == 399 and sum(model.calls) <= 300
    assert (rows["reward"][starts] == rows["vectors"][(starts + 3) % 150, 0]).all()


def test_unlabelled_step_is_not_stored_or_summed_over():
    training = sac(reward_of(FrameNumber(gaps=True), every=4), replay_capacity=1000)
    observer = Observer()
    training.run(observer)
    rewards, frames = stored(training.step_learner.replay)
    assert (rewards == frames).all() and not (frames % 7 == 3).any() and 320 < len(rewards) < 360
    assert observer.metrics["reward/missing"] == pytest.approx(1 - len(rewards) / 400, abs=0.02)
    batch = training.step_learner.replay.sample(500, n_step=3, discount=1.0)
    last = batch.next_observations["frame"][:, 0]
    counts = last - batch.observations["frame"][:, 0]  # steps in the sum: consecutive frames of one episode
    assert set(counts) == {1.0, 2.0, 3.0}
    assert np.allclose(batch.rewards, counts * last - counts * (counts - 1) / 2)


def test_gap_test_fails_without_missing_labels():
    training = sac(reward_of(FrameNumber(), every=4), replay_capacity=1000)
    training.run(Observer())
    assert (stored(training.step_learner.replay)[1] % 7 == 3).any()


def test_time_limit_bootstraps_and_task_end_does_not():
    training = sac(reward_of(FrameNumber(), every=64), replay_capacity=1000)
    training.run(Observer())
    batch = training.step_learner.replay.sample(2000)
    steps = batch.next_observations["frame"][:, 0] % 10
    assert set(steps[batch.masks == 0]) == {5.0} and {5.0, 7.0} <= set(steps[batch.masks == 1])


def test_without_any_answer_the_training_stops():
    class Silent(FrameNumber):
        def score(self, pictures, firsts, instruction):
            return Labels.missing(len(pictures))

    training = sac(reward_of(Silent()), steps=2000)
    with pytest.raises(RewardUnavailable, match=r"no usable answer for 100\d steps(.|\n)*less than 1000 in a row"):
        training.run(Observer())
    assert len(training.step_learner.replay) == 0 and training.step < MOST_MISSING + 10


LEARNS = {"learning_starts": 5, "replay_capacity": 1000, "steps": 30}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"every": 4}, {"every": 64, "completion": Completion(Steps(), 0.3, 2.0)}])
def test_resumed_anywhere_equals_uninterrupted(settings, tmp_path):
    def make():
        return sac(reward_of(Steps(mode="delta", gaps=True), **settings), **LEARNS)

    def finished(training):
        training.run(Observer())
        state = training.state_dict()["learner"]["networks"]["actor"]
        return b"".join(np.asarray(state[name]).tobytes() for name in sorted(state))

    expected = finished(make())
    for step in (6, 7, 16):
        make().run(Observer(save=(step, tmp_path / str(step))))
        resumed = make()
        resumed.load_state_dict(load_checkpoint(tmp_path / str(step)).parts)
        assert resumed.resumed == "exact" and finished(resumed) == expected, f"resumed at step {step}"
    mistaken = make()
    parts = load_checkpoint(tmp_path / "16").parts
    for picture in parts["training"]["waiting"]["rewards"]["queue"]["waiting"]["after"]["camera_top"]:
        picture[..., 2] += 1
    mistaken.load_state_dict(parts)
    assert finished(mistaken) != expected, "the comparison can fail"


# what waiting, finishing and failing are worth: frames have the scores 0, .1, .2 ...

EPISODES = {"terminated": (5, True), "truncated": (7, False)}


def lived(kind: str):
    steps, terminated = EPISODES[kind]
    seed = next(s for s in range(20) if len(rollout(Frames(), RandomPolicy(DRAWN, s), seed=s)) == steps)
    episode = rollout(Frames(), RandomPolicy(DRAWN, seed), seed=seed)
    assert episode.terminated == terminated
    return episode


def rewards_in(episode, reward) -> np.ndarray:
    (piece,) = reward.labelled(episode, reward.visible(DRAWN))
    return piece.rewards


@pytest.mark.parametrize("kind", EPISODES)
def test_modes_pay_what_they_say(kind):
    episode = lived(kind)
    steps = np.arange(1, len(episode) + 1) / 10
    level, delta = (rewards_in(episode, reward_of(Steps(mode=mode), weight=2.0)) for mode in ("level", "delta"))
    assert np.allclose(level, 2 * steps) and np.allclose(delta, 0.2)
    never = Completion(Steps(), threshold=1.0)
    potential = rewards_in(episode, reward_of(Steps(mode="potential", discount=0.5), completion=never))
    expected = 0.5 * steps - (steps - 0.1)
    if kind == "terminated":
        expected[-1] = -(steps[-1] - 0.1)
    assert np.allclose(potential, expected)
    discounted = (0.5 ** np.arange(len(steps)) * potential).sum()
    left = 0.5 ** len(steps) * steps[-1] if kind == "truncated" else 0.0  # what bootstrapping would carry on
    assert discounted == pytest.approx(left, abs=1e-6), "shaping adds to no return of a whole episode"


@pytest.mark.parametrize("kind", EPISODES)
def test_completion_is_paid_once_and_terminates(kind):
    episode = lived(kind)
    completion = Completion(Steps(), threshold=0.4, bonus=3.0)
    reward = reward_of(Steps(mode="potential", discount=0.5), completion=completion)
    (piece,) = reward.labelled(episode, VISIBLE)
    assert len(piece) == 4 and piece.terminated and not piece.truncated
    assert np.allclose(piece.rewards, [0.05, 0.0, -0.05, 3.0 - 0.3])
    assert (0.5 ** np.arange(4) * piece.rewards).sum() == pytest.approx(0.5**3 * 3.0), "the bonus alone, discounted"


def test_what_follows_a_completion_is_in_no_memory():
    reward = reward_of(FrameNumber(), every=10, weight=0.0, completion=Completion(Steps(), threshold=0.6))
    ours = sac(reward, replay_capacity=1000)
    ours.run(Observer())
    batch = ours.step_learner.replay.sample(2000)
    steps = batch.next_observations["frame"][:, 0] % 10
    assert set(steps) == {1.0, 2.0, 3.0, 4.0, 5.0, 6.0} and set(batch.masks[steps == 6]) == {0.0}, "7 would be cut by the clock"
    assert (batch.rewards == (steps == 6)).all() and set(batch.masks[steps < 5]) == {1.0}
    config = sb3.SACConfig(buffer_size=1000, learning_starts=10_000, **SB3_LEARNS)
    theirs = config.training(Poisoned, steps=400, seed=0, reward=reward)
    theirs.run(Observer())
    replay = theirs.model.replay_buffer
    frames = replay.next_observations[: replay.size(), 0, 0] % 10
    ends = (replay.dones * (1 - replay.timeouts))[: replay.size(), 0]
    assert set(frames) == {1.0, 2.0, 3.0, 4.0, 5.0, 6.0} and (ends[frames == 6] == 1).all() and (ends[frames < 5] == 0).all()


@pytest.mark.parametrize("config", ["ppo", "sb3"])
def test_completion_in_rollout_ends_return_and_masks_rest(config, monkeypatch):
    reward = reward_of(FrameNumber(), every=10, weight=0.0, completion=Completion(Steps(), threshold=0.6, bonus=1.0))
    if config == "ppo":
        training = updated(PPOConfig(), PPO, {"gae_lambda": 1.0}, PLAIN).training(Poisoned, steps=96, seed=0, reward=reward)
        seen, minibatches = [], ppo.minibatches
        taken = lambda rows, order: [rows[place][order].numpy() for place in (1, 4)]  # noqa: E731 - vectors, returns
        spy = lambda rows, order, size: seen.append(taken(rows, order)) or minibatches(rows, order, size)  # noqa: E731
        monkeypatch.setattr(ppo, "minibatches", spy)
        training.run(Observer())
        frames, returns = seen[0][0][:, 0], seen[0][1]
    else:
        config = sb3.PPOConfig(n_envs=3, n_steps=32, gamma=0.8, gae_lambda=1.0, n_epochs=1, **SB3_LEARNS)
        training = config.training(Poisoned, steps=96, seed=0, reward=reward)
        rollout = training.model.rollout_buffer
        compute, seen = rollout.compute_returns_and_advantage, []

        def spied(last_values, dones):
            compute(last_values, dones)
            seen.append((rollout.observations[..., 0].ravel().copy(), rollout.returns.ravel().copy()))

        monkeypatch.setattr(rollout, "compute_returns_and_advantage", spied)
        training.run(Observer())
        frames, returns = seen[0]
    steps = frames % 10
    assert set(steps) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}, "step 6 was taken after the completion"
    assert np.allclose(returns[steps == 5], 1.0, atol=1e-5), "the bonus, and nothing bootstrapped beyond it"


def test_held_score_is_free_and_ends_with_episode():
    model = Steps()
    episodes = [lived("truncated"), lived("terminated")]
    for mode, expected in {
        "level": ([0, 0, 0.3, 0.3, 0.3, 0.6, 0.7], [0, 0, 0.3, 0.3, 0.5]),
        "delta": ([0, 0, 0.3, 0, 0, 0.3, 0.1], [0, 0, 0.3, 0, 0.2]),
    }.items():
        reward = reward_of(replace(model, mode=mode), hold=3, completion=Completion(Steps(), 0.9))
        live = reward.running(1)
        for episode, values in zip(episodes, expected, strict=True):
            live.begin(0, {name: each[0] for name, each in episode.observations.items()}, None)
            for step in range(1, len(episode) + 1):
                ends = {"terminated": step == 5 == len(episode), "truncated": step == 7}
                seen = {name: each[step] for name, each in episode.observations.items()}
                live.add(0, seen, action=episode.actions[step - 1], reward=np.nan, **ends)
            found = live.score()
            found, known, ends = found.labels.values, found.labels.valid, found.ends
            assert known.all() and not ends.any()
            assert np.allclose(found, values), "the first, every third and the last picture"
    assert sum(model.calls) == 2 * (4 + 3)


def test_a_potential_alone_is_refused():
    with pytest.raises(InvalidSetting, match=r"all policies equally good(.|\n)*with a completion bonus, or mode: delta"):
        reward_of(Steps(mode="potential"))
    with pytest.raises(InvalidSetting, match=r"Completion is a level(.|\n)*'delta'"):
        Completion(Steps(mode="delta"))


@pytest.mark.slow
def test_demonstrations_are_labelled_and_cut_at_gaps():
    reward = reward_of(FrameNumber(gaps=True))
    spec = reward.visible(DRAWN)
    assert spec == VISIBLE
    episodes = [rollout(Frames(), RandomPolicy(DRAWN, seed), seed=seed) for seed in range(6)]
    pieces = [piece for episode in episodes for piece in reward.labelled(episode, spec)]
    assert len(pieces) > len(episodes)
    for piece in pieces:
        assert list(piece.observations) == ["frame", "position"] and piece.spec_fingerprint == VISIBLE.fingerprint
        assert (piece.rewards == piece.observations["frame"][1:, 0]).all() and not (piece.rewards % 7 == 3).any()
        assert piece.terminated != piece.truncated and (not piece.terminated or piece.rewards[-1] % 10 == 5)
    frames = np.concatenate([episode.observations["frame"][1:, 0] for episode in episodes])
    assert sum(map(len, pieces)) == (frames % 7 != 3).sum()
    config = updated(RLPDConfig(), network={"hidden": (8,)}, batch_size=8, critics=2, replay={"learning_starts": 5})
    training = online_training(
        Frames(), config.build(VISIBLE, 0), config.sampling, steps=30, seed=0, demonstrations=pieces, rewards=reward.running(1)
    )
    training.run(Observer())
    batch = training.step_learner.sampler.sample(200)
    assert (batch.rewards == batch.next_observations["frame"][:, 0]).all()


# Stable-Baselines3


class Poisoned(Frames):
    poison = 1e30


SB3_LEARNS = {"learning_rate": 1e-3, "batch_size": 16, "policy_kwargs": {"net_arch": [8]}}


def sb3_stored(replay) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rewards of all rows, and the frames that they led to."""
    rows = slice(replay.size())
    return replay.rewards[rows].ravel(), replay.next_observations[rows, :, 0].ravel()


@pytest.mark.slow
@pytest.mark.parametrize(("envs", "every"), [(1, 1), (1, 64), (3, 10)])
def test_sb3_replay_rewards_belong_to_frames_past_wrap(envs, every):
    config = sb3.SACConfig(n_envs=envs, buffer_size=150, learning_starts=10_000, train_freq=7, **SB3_LEARNS)
    training = config.training(Poisoned, steps=500, seed=0, reward=reward_of(FrameNumber(), every=every))
    observer = Observer()
    training.run(observer)
    replay = training.model.replay_buffer
    rewards, frames = sb3_stored(replay)
    assert replay.full and len(rewards) == 150 and (rewards == frames).all()
    assert 0 < observer.metrics["reward/model_return"] < 1e8 and observer.returns[0] >= 1e30
    ends, cuts = frames % 10 == 5, frames % 10 == 7
    assert (replay.dones.ravel()[cuts] == 1).all() and (replay.timeouts.ravel() == cuts).all()
    assert set(replay.dones.ravel()[ends]) == {0.0, 1.0}, "both kinds of episodes pass step 5"
    assert not hasattr(replay.observation_space, "spaces"), "the policy sees no picture"


def test_sb3_replay_skips_unlabelled_steps():
    config = sb3.SACConfig(buffer_size=1000, learning_starts=400, n_steps=3, gamma=1.0, **SB3_LEARNS)
    training = config.training(Poisoned, steps=400, seed=0, reward=reward_of(FrameNumber(gaps=True), every=10))
    training.run(Observer())
    replay = training.model.replay_buffer
    rewards, frames = sb3_stored(replay)
    assert (rewards == frames).all() and not (frames % 7 == 3).any() and len(rewards) > 300
    batch = replay.sample(500)
    last, counts = batch.next_observations[:, 0], batch.next_observations[:, 0] - batch.observations[:, 0]
    assert set(counts.tolist()) == {1.0, 2.0, 3.0}
    assert torch.allclose(batch.rewards[:, 0], counts * last - counts * (counts - 1) / 2)


def test_sb3_stops_where_learning_would_start_without_any_label():
    class Silent(FrameNumber):
        def score(self, pictures, firsts, instruction):
            return Labels(np.zeros(len(pictures), np.float32), np.zeros(len(pictures), np.bool_))

    config = sb3.SACConfig(buffer_size=100, learning_starts=5, **SB3_LEARNS)
    training = config.training(Poisoned, steps=50, seed=0, reward=reward_of(Silent()))
    with pytest.raises(RewardUnavailable, match=r"Learning would start, and no step has a label(.|\n)*6 steps"):
        training.run(Observer())


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("gaps", [False, True])
def test_sb3_rollouts_pay_before_advantages_and_bootstrap(envs, gaps, monkeypatch):
    config = sb3.PPOConfig(n_envs=envs, n_steps=32, n_epochs=1, gae_lambda=0.9, gamma=0.8, **SB3_LEARNS)
    reward = reward_of(FrameNumber(gaps=gaps), every=10, weight=1e-6)  # of the size of values, so that these show
    training = config.training(Poisoned, steps=64 * envs, seed=0, reward=reward)
    rollout, checked = training.model.rollout_buffer, []
    compute = rollout.compute_returns_and_advantage

    def spied(last_values, dones):
        frames, values = rollout.observations[..., 0].copy(), np.vstack((rollout.values, last_values.numpy().ravel()))
        bootstrapped = rollout.rewards.copy()
        compute(last_values, dones)
        known = (frames + 1) % 7 != 3 if gaps else np.ones_like(frames, np.bool_)
        assert np.allclose(rollout.rewards - bootstrapped, np.where(known, 1e-6 * (frames + 1), 0), atol=1e-6), (
            "of the next frame"
        )
        ended = np.vstack((rollout.episode_starts[1:], dones)) == 1
        limits = ended & (frames % 10 == 6)
        assert limits.any() and (bootstrapped[limits] != 0).all() and (bootstrapped[~limits] == 0).all()
        expected = sums(rollout.rewards, values, ended, known)
        assert np.allclose(rollout.advantages[known], expected[known], atol=1e-5)
        assert np.allclose(rollout.returns[known], (expected + values[:-1])[known], atol=1e-5)
        assert not gaps or not np.isin((rollout.observations[..., 0] + 1) % 7, 3).any(), "others took their place"
        checked.append(known)

    monkeypatch.setattr(rollout, "compute_returns_and_advantage", spied)
    training.run(Observer())
    assert len(checked) == 2 and all(known.all() != gaps for known in checked)


def sums(rewards, values, ended, known):
    """GAE by its definition: sums of discounted residuals until an episode ends or a step without a label follows."""
    expected = np.zeros_like(rewards)
    for first, env in np.ndindex(rewards.shape):
        for step in range(first, len(rewards)):
            if not known[step, env]:
                break
            following = 0.0 if ended[step, env] else 0.8 * values[step + 1, env]
            residual = rewards[step, env] + following - values[step, env]
            expected[first, env] += (0.8 * 0.9) ** (step - first) * residual
            if ended[step, env]:
                break
    return expected


def test_plain_sb3_would_learn_from_the_poison():
    config = sb3.PPOConfig(n_steps=32, n_epochs=1, **SB3_LEARNS)
    with pytest.raises(FloatingPointError, match="overflow"):
        config.training(Poisoned, steps=64, seed=0).run(Observer())


# our PPO

PPO = {
    "num_envs": 3,
    "steps_per_env": 32,
    "batch_size": 32,
    "epochs": 2,
    "network": {"hidden": (8,)},
    "discount": 0.8,
    "gae_lambda": 0.9,
}
PLAIN = {"normalize": {"observations": False, "rewards": False}}


@pytest.mark.parametrize("gaps", [False, True])
def test_ppos_rollouts_have_their_rewards_before_advantages(gaps, monkeypatch):
    config = updated(PPOConfig(), PPO, PLAIN)
    reward = reward_of(FrameNumber(gaps=gaps), every=10, weight=1e-6)
    training = config.training(Poisoned, steps=192, seed=0, reward=reward)
    learner, checked, observer = training.learner, [], Observer()
    advantages, minibatches = learner.buffer.advantages, ppo.minibatches

    def spied(values):
        data, frames = learner.buffer, learner.buffer.vectors[:-1, :, 0]
        known = (frames + 1) % 7 != 3 if gaps else np.ones_like(frames, np.bool_)
        assert np.allclose(data.rewards, np.where(known, 1e-6 * (frames + 1), 0), rtol=1e-6)
        limits = data.ended & (frames % 10 == 6)
        assert (data.final_values[limits] != 0).all() and (data.final_values[~limits] == 0).all()
        found = advantages(values)
        cut = np.where(limits, 0.8 * data.final_values, 0)  # what SB3 adds to the reward
        assert np.allclose(found, sums(data.rewards + cut, values, data.ended, known), atol=1e-5)
        checked.append(known)
        return found

    def all_known(rows, order, size):
        assert len(order) == 96 and (not gaps or not np.isin((rows[1][order, 0] + 1) % 7, 3).any())
        return minibatches(rows, order, size)

    monkeypatch.setattr(learner.buffer, "advantages", spied)
    monkeypatch.setattr(ppo, "minibatches", all_known)
    training.run(observer)
    assert len(checked) == 2 and all(known.all() != gaps for known in checked)
    assert 0 < observer.metrics["reward/model_return"] < 100 and observer.returns[0] >= 1e30
    assert "camera_top" not in training.policy.environment_spec.observation


class Savable(SequentialEnvironments):
    """Replays its episodes, so that a resume can be exact."""

    def state_dict(self):
        return {"first": [env.first for env in self.envs], "steps": [env.steps for env in self.envs]} | {
            "short": [env.is_short for env in self.envs],
            "position": [env.position for env in self.envs],
            "generator": [env.np_random.bit_generator.state for env in self.envs],
            "autoreset": self._autoreset_envs.tolist(),
        }

    def load_state_dict(self, state):
        self.reset(seed=0)
        for index, env in enumerate(self.envs):
            env.first, env.steps, env.is_short = state["first"][index], state["steps"][index], state["short"][index]
            env.position, env.np_random.bit_generator.state = state["position"][index], state["generator"][index]


class Factory:
    def __call__(self):
        return Frames()

    def make_vector(self, num_envs):
        return Savable(Frames, num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


@pytest.mark.slow
def test_ppo_is_resumed_exactly_in_the_middle_of_a_rollout(tmp_path):
    config = updated(PPOConfig(), PPO)

    def make():
        reward = reward_of(Steps(mode="delta", gaps=True), every=10, completion=Completion(Steps(), 0.3, 2.0))
        return config.training(Factory(), steps=192, seed=0, reward=reward)

    def finished(training):
        training.run(Observer())
        return training.learner.parameters.numpy().tobytes()

    expected = finished(make())
    for step in (3, 48, 96, 123):
        make().run(Observer(save=(step, tmp_path / str(step))))
        resumed = make()
        resumed.load_state_dict(load_checkpoint(tmp_path / str(step)).parts)
        assert resumed.resumed == "exact" and finished(resumed) == expected, f"resumed at step {step}"
    mistaken = make()
    parts = load_checkpoint(tmp_path / "48").parts
    parts["rewards"]["scored"]["values"] = parts["rewards"]["scored"]["values"] + np.float32(0.1)
    mistaken.load_state_dict(parts)
    assert finished(mistaken) != expected, "the comparison can fail"


def test_a_rollout_without_any_label_teaches_nothing():
    learner = updated(PPOConfig(), PPO, PLAIN).build(VISIBLE, 0)
    before = learner.parameters.clone()
    learner.buffer.length = 32
    learner.reward(StepRewards(Labels.missing(96), np.zeros(96, np.bool_)))
    assert learner.update() == {} and not learner.is_ready and torch.equal(learner.parameters, before)
