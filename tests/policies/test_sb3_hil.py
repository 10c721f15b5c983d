"""Stable-Baselines3's SAC fed from our memories takes the step that it takes from its own replay."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from gymnasium import spaces

from factories import axes, make_spec
from robo_policies.sb3.hil import SB3SACHILConfig
from robo_policies.sb3.state import GlobalRandom
from robo_rl.errors import InvalidSetting, NonFiniteUpdate
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.mixing import SymmetricReplay
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import OnlineTraining, online_training
from robo_rl.training.step_sources import EnvironmentSteps
from robo_rl.types import Transition

SPEC = make_spec(
    "test/Plane",
    ArraySpec("position", (2,), low=-2, high=2),
    ArraySpec("goal", (1,), low=-2, high=2),
    action=axes("x", "y", unit="m"),
)
ROWS = 24
SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [16]}, "batch_size": ROWS // 2, "gradient_steps": 2, "device": "cpu"}


class Plane(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(-2, 2, (3,), np.float32)
    action_space = SPEC.action.space


def walked() -> list[Transition]:
    """Returns steps of which one in five ends the task and another is cut."""
    random, steps = np.random.default_rng(0), []
    for index in range(ROWS):
        before, after = (random.uniform(-1, 1, 3).astype(np.float32) for _ in range(2))
        steps.append(
            Transition(
                {"position": before[:2], "goal": before[2:]},
                random.uniform(-1, 1, 2).astype(np.float32),
                float(random.normal()),
                {"position": after[:2], "goal": after[2:]},
                terminated=index % 5 == 0,
                truncated=index % 5 == 1,
                policy_action=np.zeros(2, np.float32),
            )
        )
    return steps


def put(memory: ReplayBuffer, step: Transition) -> None:
    """Adds a step that leads to no other."""
    memory.begin(step.observation)
    memory.add(step)


def test_update_equals_stable_baselines_on_same_replay() -> None:
    config = SB3SACHILConfig(**SMALL, offline_fraction=0.0)
    ours = config.build(SPEC, 3)
    plain = sb3.SAC(
        "MlpPolicy",
        Plane(),
        seed=3,
        gamma=0.97,
        ent_coef="auto_0.01",
        buffer_size=100,
        device="cpu",
        policy_kwargs={"net_arch": [16]},
    )
    memory, replay = ReplayBuffer(SPEC, 100, 0), plain.replay_buffer
    assert replay is not None
    for step in walked():
        put(memory, step)
        joined = [np.concatenate([seen["position"], seen["goal"]])[None] for seen in (step.observation, step.next_observation)]
        is_over = np.array([step.terminated or step.truncated])
        infos = [{"TimeLimit.truncated": step.truncated}]
        replay.add(*joined, step.action[None], np.array([step.reward]), is_over, infos)
    batch = memory.sample(ROWS, 1, 0.97)
    wanted = batch.rewards
    row_of = {float(np.float32(step.reward)): row for row, step in enumerate(walked())}
    rows = [row_of[float(reward)] for reward in wanted]
    slices = iter([rows[: ROWS // 2], rows[ROWS // 2 :]])
    replay.sample = lambda *_, **__: replay._get_samples(np.array(next(slices)))  # type: ignore[method-assign]
    plain.set_logger(ours.model.logger)
    GlobalRandom.from_state_dict(ours.state_dict()["random"]).restore()
    plain.train(2, ROWS // 2)
    ours.update(batch)
    for name, value in plain.policy.state_dict().items():
        assert torch.equal(value, ours.model.policy.state_dict()[name]), name


class Walk(gymnasium.Env[Any, Any]):
    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left, self.position = 7, self.np_random.uniform(-1, 1, 2)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.position, self.left = np.clip(self.position + 0.1 * action, -2, 2), self.left - 1
        return self._seen(), float(self.position[0]), False, self.left == 0, {}

    def _seen(self) -> Any:
        return {"position": self.position.astype(np.float32), "goal": np.zeros(1, np.float32)}


class Saving:
    """Observes a training and keeps its state at a step."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.kept = at, b""

    def on_episode(self, step: int, **outcome: Any) -> None: ...

    def on_metrics(self, step: int, metrics: Any) -> None: ...

    def on_step(self, step: int, training: Any) -> None:
        if step == self.at:
            self.kept = packed(training.state_dict())


@pytest.mark.slow
def test_a_training_that_was_saved_goes_on_exactly() -> None:
    config = SB3SACHILConfig(**SMALL, offline_fraction=0.0, learning_starts=5, buffer_size=100)

    def made(seed: int) -> OnlineTraining[EnvironmentSteps]:
        return online_training(Walk(), config.build(SPEC, seed), config.sampling, steps=30, seed=1)

    whole, observer = made(2), Saving(17)
    whole.run(observer)
    resumed = made(8)
    resumed.load_state_dict(unpacked(observer.kept))
    resumed.run(Saving())
    assert resumed.resumed == "exact"
    assert packed(resumed.state_dict()["learner"]) == packed(whole.state_dict()["learner"])


def test_demonstrations_and_corrections_train_alike() -> None:
    sampling = SB3SACHILConfig().sampling
    assert sampling.keeps_corrections and sampling.offline_fraction == 0.5 and sampling.discount == 0.97


@pytest.mark.slow
def test_a_single_step_is_learnt_from_both_memories() -> None:
    """Where every step ends the task, the best action is the goal: half of the data show it, half are random."""
    random = np.random.default_rng(1)
    memories = [ReplayBuffer(SPEC, 2000, seed) for seed in range(2)]
    for which, memory in enumerate(memories):
        for _ in range(400):
            seen = {"position": np.zeros(2, np.float32), "goal": random.uniform(-1, 1, 1).astype(np.float32)}
            action = np.float32([0.8 * seen["goal"][0], 0.0]) if which else random.uniform(-1, 1, 2).astype(np.float32)
            reward = -float((action[0] - 0.8 * seen["goal"][0]) ** 2 + action[1] ** 2)
            put(memory, Transition(seen, action, reward, seen, terminated=True, truncated=False, policy_action=action))
    learner = SB3SACHILConfig(policy_kwargs={"net_arch": [32]}, batch_size=64, learning_rate=3e-3, device="cpu").build(SPEC, 0)
    both = SymmetricReplay(*memories)
    for _ in range(300):
        learner.update(both.sample(64, 1, 0.97))
    for goal in (-0.9, 0.1, 0.9):
        action = learner.policy.act({"position": np.zeros(2, np.float32), "goal": np.float32([goal])}, deterministic=True)
        np.testing.assert_allclose(action, [0.8 * goal, 0.0], atol=0.25)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="'learning_rate' is out of range"):
        SB3SACHILConfig(learning_rate=0.0)
    with pytest.raises(InvalidSetting, match="'batch_size' is out of range"):
        SB3SACHILConfig(batch_size=0)


def test_a_loss_that_is_not_finite_is_told() -> None:
    learner = SB3SACHILConfig(**SMALL, offline_fraction=0.0).build(SPEC, 0)
    memory = ReplayBuffer(SPEC, 100, 0)
    for step in walked():
        put(memory, step)
    with torch.no_grad():
        for parameter in learner.model.critic.parameters():
            parameter.fill_(1e30)
    with pytest.raises(NonFiniteUpdate, match="is not finite; unlike our learners"):
        learner.update(memory.sample(ROWS, 1, 0.97))
