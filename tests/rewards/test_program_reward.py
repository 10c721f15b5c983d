"""Rewards of programs: the same numbers for recordings and for running steps, each stored reward that of its own step."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from factories import make_spec
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_policies.sb3 import algorithms as sb3
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import InvalidProgram, InvalidSetting, ProgramFailed, RewardUnavailable
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.reward import ProgramReward
from robo_rl.rewards.programs.runner import end_workers
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import online_training

SPEC = make_spec("test/Frames", ArraySpec("frame", (1,)), ArraySpec("secret", (1,), role="privileged"))
NUMBER = """def reward(batch):
    now = batch["frame"][:, 0]
    step = now - batch["previous_frame"][:, 0]
    push = 0.5 * batch["action"][:, 0]
    return now + step + push, {"now": now, "push": push}
"""
GAPS = """def reward(batch):
    now = batch["frame"][:, 0]
    return np.where(now % 7 == 3, np.inf, now), {"now": now}
"""
LENIENT = Limits(invalid_share=1.0, largest=1e9)


class Frames(gymnasium.Env):
    """Numbers its frames by seed and step; ends by itself after 5 steps or by the clock after 7, as the seed has it."""

    environment_spec = SPEC
    observation_space = SPEC.observation.space
    action_space = SPEC.action.space
    poison = 1e30

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.first, self.steps = int(self.np_random.integers(100)) * 10, 0
        self.is_short = bool(self.np_random.random() < 0.5)
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        terminated, truncated = self.is_short and self.steps == 5, self.steps == 7
        return self._observation(), self.poison, terminated, truncated, {"success": terminated}

    def _observation(self):
        return {"frame": np.full(1, self.first + self.steps, np.float32), "secret": np.full(1, self.steps, np.float32)}


class Poisoned(Frames):
    poison = 1e30


class Observer:
    def __init__(self, save=None):
        self.save, self.metrics = save, {}

    def on_episode(self, step, **outcome):
        pass

    def on_metrics(self, step, metrics):
        self.metrics |= metrics

    def on_step(self, step, training):
        if self.save is not None and step == self.save[0]:
            save_checkpoint(self.save[1], Checkpoint(step, training.state_dict()))


@pytest.fixture(scope="module", autouse=True)
def _workers_end():
    yield
    end_workers()


@pytest.fixture
def written(tmp_path):
    def write(text, name="program.py", **settings):
        (tmp_path / name).write_text(text)
        return ProgramReward(str(tmp_path / name), limits=LENIENT, **settings)

    return write


def expected(frames, actions):
    return frames + 1 + 0.5 * np.clip(actions[:, 0], -1, 1)


def episode_of(seed=0):
    return rollout(Frames(), RandomPolicy(SPEC, seed), seed=seed)


def test_labels_are_what_the_program_says_of_each_step(written):
    model, episode = written(NUMBER), episode_of()
    labels = model.label(episode)
    assert labels.valid.all() and labels.values.dtype == np.float32
    np.testing.assert_allclose(labels.values, expected(episode.observations["frame"][1:, 0], episode.actions), rtol=1e-6)
    found = model.score_episode(episode)
    np.testing.assert_allclose(found.terms["push"], 0.5 * episode.actions[:, 0], rtol=1e-6)


def test_identity_covers_program_and_reward_settings(written):
    model = written(NUMBER)
    assert model.identity == written(NUMBER.replace("    now", "    # why\n    now", 1), "elsewhere.py", every=3).identity
    assert model.identity != written(NUMBER.replace("0.5", "0.25"), "other.py").identity
    assert model.identity != replace(model, limits=Limits()).identity


def test_a_row_without_a_finite_number_has_no_label(written):
    episode = episode_of(3)
    labels = written(GAPS).label(episode)
    gaps = episode.observations["frame"][1:, 0] % 7 == 3
    assert gaps.any() and (labels.valid == ~gaps).all() and (labels.values[gaps] == 0).all()


def test_pieces_of_demonstrations_end_at_gaps(written):
    episode = next(found for found in map(episode_of, range(40)) if (found.observations["frame"][2:-1] % 7 == 3).any())
    online = written(GAPS).online(SPEC, weight=2.0, discount=None)
    pieces = list(online.labelled(episode, online.visible(SPEC)))
    frames = episode.observations["frame"][1:, 0]
    assert sum(map(len, pieces)) == (frames % 7 != 3).sum() and len(pieces) > 1
    assert all((piece.rewards == 2 * piece.observations["frame"][1:, 0]).all() for piece in pieces)
    assert [piece.terminated for piece in pieces][:-1] == [False] * (len(pieces) - 1)


def test_a_program_that_fails_says_so(written):
    with pytest.raises(ProgramFailed, match="The program raised an error in line 2"):
        written('def reward(batch):\n    return np.linalg.norm(batch["frame"], axis=3), {}\n').label(episode_of())
    with pytest.raises(InvalidProgram, match="reads columns that test/Frames does not have") as caught:
        written('def reward(batch):\n    return batch["cube"][:, 0], {}\n').online(SPEC, weight=1.0, discount=None)
    assert "got:     cube" in str(caught.value) and "previous_frame" in str(caught.value)
    with pytest.raises(InvalidProgram, match="reads columns that the recorded episode does not have"):
        written('def reward(batch):\n    return batch["cube"][:, 0], {}\n').label(episode_of())
    with pytest.raises(InvalidSetting, match="every"):
        written(NUMBER, every=0)
    with pytest.raises(InvalidSetting, match="weight"):
        written(NUMBER).online(SPEC, weight=float("nan"), discount=None)


@pytest.mark.slow
def test_without_any_number_the_training_stops(written):
    live = written('def reward(batch):\n    return np.log(-1 - batch["frame"][:, 0] ** 2), {}\n').online(
        SPEC, weight=1.0, discount=None
    )
    training = sac(live, steps=2000)
    with pytest.raises(RewardUnavailable, match=r"no usable answer for 1\d\d\d steps(.|\n)*less than 1000 in a row"):
        training.run(Observer())
    assert len(training.step_learner.replay) == 0


def sac(online, *, steps=200, learning_starts=10_000, replay_capacity=60, **settings):
    config = updated(
        SACConfig(),
        settings,
        network={"hidden": (8,)},
        batch_size=8,
        replay={"learning_starts": learning_starts, "capacity": replay_capacity},
    )
    learner = config.build(SPEC, 3)
    return online_training(Frames(), learner, config.sampling, steps=steps, seed=3, rewards=online.running(1))


@pytest.mark.parametrize("every", [1, 3, 64])
def test_stored_rewards_belong_to_steps_past_ring_wrap(every, written):
    training, observer = sac(written(NUMBER, every=every).online(SPEC, weight=1.0, discount=None)), Observer()
    training.run(observer)
    rows, starts = training.step_learner.replay._rows, np.flatnonzero(training.step_learner.replay._rows["starts"])
    frames = rows["vectors"][(starts + 1) % training.step_learner.replay.capacity, 0]
    np.testing.assert_allclose(rows["reward"][starts], expected(frames, rows["action"][starts]), rtol=1e-6)
    assert len(starts) > 40 and observer.metrics["reward/missing"] == 0
    assert observer.metrics["reward/now"] > 5 > abs(observer.metrics["reward/push"])
    assert observer.metrics["reward/model_return"] > observer.metrics["reward/now"]


def test_a_step_without_a_reward_is_not_stored(written):
    training = sac(written(GAPS, every=4).online(SPEC, weight=1.0, discount=None), replay_capacity=1000)
    training.run(Observer())
    rows, starts = training.step_learner.replay._rows, np.flatnonzero(training.step_learner.replay._rows["starts"])
    frames = rows["vectors"][starts + 1, 0]
    assert (rows["reward"][starts] == frames).all() and not (frames % 7 == 3).any() and 150 < len(starts) < 190


def test_vector_rollouts_score_final_frame_of_episode(written):
    """Not of the first one of the next, which an automatic reset shows."""
    live = written(NUMBER).online(SPEC, weight=1.0, discount=None).running(3)
    environments = SequentialEnvironments(Poisoned, 3, autoreset_mode=AutoresetMode.SAME_STEP)
    observations, _ = environments.reset(seed=[1, 2, 3])
    for index in range(3):
        live.begin(index, {name: each[index] for name, each in observations.items()}, None)
    wanted = []
    for _ in range(20):
        actions = np.random.default_rng(0).uniform(-2, 2, (3, 1)).astype(np.float32)
        before = observations["frame"][:, 0].copy()
        observations, _, terminated, truncated, infos = environments.step(actions)
        for index in range(3):
            ended = terminated[index] or truncated[index]
            seen = infos["final_obs"][index] if ended else {name: each[index] for name, each in observations.items()}
            ends = {"terminated": bool(terminated[index]), "truncated": bool(truncated[index])}
            live.add(index, seen, action=actions[index], reward=np.nan, **ends)
            wanted.append(before[index] + 2 + 0.5 * np.clip(actions[index, 0], -1, 1))
            if ended:
                live.begin(index, {name: each[index] for name, each in observations.items()}, None)
    found = live.score()
    values, known, ends = found.labels.values, found.labels.valid, found.ends
    np.testing.assert_allclose(values, wanted, rtol=1e-6)
    assert known.all() and not ends.any() and len(live.score().labels.values) == 0


SMALL = {"learning_rate": 1e-3, "batch_size": 16, "policy_kwargs": {"net_arch": [8]}}


@pytest.mark.parametrize(
    "config",
    [
        PPOConfig(num_envs=2, steps_per_env=16, epochs=1, batch_size=16, network=PolicyValueNetwork(hidden=(8,))),
        sb3.PPOConfig(n_envs=2, n_steps=16, n_epochs=1, **SMALL),
        sb3.SACConfig(n_envs=2, buffer_size=200, learning_starts=20, **SMALL),
    ],
    ids=["ppo", "sb3-ppo", "sb3-sac"],
)
def test_all_learners_use_program_without_environment_reward(config, written):
    observer = Observer()
    reward = written(NUMBER, every=8).online(SPEC, weight=1e-3, discount=None)
    training = config.training(Poisoned, steps=64, seed=0, reward=reward)
    training.run(observer)
    assert np.isfinite([value for name, value in observer.metrics.items() if name.startswith(("train", "reward"))]).all()
    assert observer.metrics["reward/now"] > 5


@pytest.mark.slow
def test_resumed_anywhere_equals_uninterrupted(written, tmp_path):
    online = written(GAPS, every=4).online(SPEC, weight=1e-3, discount=None)

    def make():
        return sac(online, learning_starts=5, steps=30, replay_capacity=1000)

    def finished(training):
        observer = Observer()
        training.run(observer)
        state = training.state_dict()["learner"]["networks"]["actor"]
        return b"".join(np.asarray(state[name]).tobytes() for name in sorted(state)), observer.metrics["reward/now"]

    whole = finished(make())
    for step in (6, 7, 16):
        make().run(Observer(save=(step, tmp_path / str(step))))
        resumed = make()
        resumed.load_state_dict(load_checkpoint(tmp_path / str(step)).parts)
        assert resumed.resumed == "exact" and finished(resumed) == whole, f"resumed at step {step}"
    waits = [load_checkpoint(tmp_path / str(step)).parts for step in (6, 7, 16)]
    frames = [parts["training"]["waiting"]["rewards"]["queue"]["waiting"]["after"]["frame"] for parts in waits]
    number = next(number for number, values in enumerate(frames) if len(values))
    frames[number][:] += 1
    mistaken = make()
    mistaken.load_state_dict(waits[number])
    assert finished(mistaken) != whole, "the comparison can fail"
