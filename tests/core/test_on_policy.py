"""The on-policy loop: what it tells the learner and the observer, and that interrupted and resumed equals uninterrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from factories import make_spec
from robo_policies.learners.ppo import PPOConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting, SimulationFailed
from robo_rl.protocols.components import Training, VectorFactory
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.compatibility import Capabilities, needs_of
from robo_rl.training.on_policy import OnPolicyTraining, VectorStep

NAME = "gymnasium/InvertedPendulum-v5"
SMALL = PPOConfig(num_envs=3, steps_per_env=8, batch_size=8, epochs=2, network=PolicyValueNetwork(hidden=(8,)))


class Observer:
    """Remembers, and saves at one step."""

    def __init__(self, save: tuple[int, Path] | None = None) -> None:
        self.save = save
        self.steps: list[int] = []
        self.episodes: list[dict[str, Any]] = []
        self.metrics: list[int] = []

    def on_episode(self, step: int, **outcome: Any) -> None:
        self.episodes.append({"step": step, **outcome})

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        self.metrics.append(step)

    def on_step(self, step: int, training: Training) -> None:
        assert step == training.step
        self.steps.append(step)
        if self.save is not None and step == self.save[0]:
            save_checkpoint(self.save[1], Checkpoint(step, training.state_dict()))


class Pendulums:
    """Makes pendulums one by one, or simulated in one batch."""

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return make_environment(NAME)

    def make_vector(self, num_envs: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        return make_vector_environment(NAME, num_envs, threads=1, autoreset_mode=AutoresetMode.SAME_STEP)


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps; ends by itself at 3 or by the clock at 5, as the seed has it, and succeeds at step 2 if told to."""

    environment_spec = make_spec("test/Counter", ArraySpec("count", (1,)), ArraySpec("seed", (1,)))
    observation_space = environment_spec.observation.space
    action_space = environment_spec.action.space
    stop_reason: str | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.is_short = 0, bool(self.np_random.random() < 0.5)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert -1 <= float(action[0]) <= 1
        self.count += 1
        terminated, truncated = self.is_short and self.count == 3, self.count == 5
        info: dict[str, Any] = {"success": self.count == 2 and self.is_short}
        if self.stop_reason is not None and (terminated or truncated):
            info["stop_reason"] = self.stop_reason
        return self._observation(), float(self.count), terminated, truncated, info

    def _observation(self) -> dict[str, np.ndarray]:
        return {"count": np.float32([self.count]), "seed": np.float32([self.is_short])}


class Listener:
    """Learns nothing; keeps what it was told."""

    policy: Any = None

    def __init__(self) -> None:
        self.begun, self.told, self.updates = 0, list[VectorStep](), 0
        self.waiting = 0

    @property
    def is_ready(self) -> bool:
        return self.waiting == 4

    def begin(self, observations: Any) -> None:
        self.begun, self.waiting = self.begun + 1, 0

    def act(self) -> np.ndarray:
        return np.zeros((3, 1), np.float32)

    def observe(self, step: VectorStep) -> None:
        self.told.append(step)
        self.waiting += 1

    def update(self) -> dict[str, float]:
        self.updates, self.waiting = self.updates + 1, 0
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


def of_counters(steps: int) -> OnPolicyTraining:
    vector = gymnasium.vector.SyncVectorEnv([Counter] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    return OnPolicyTraining(vector, Listener(), steps=steps, seed=0)


def test_the_learner_is_told_of_ends_cuts_and_last_observations() -> None:
    training = of_counters(60)
    training.run(Observer())
    ends = 0
    for step in training.learner.told:
        cut = step.truncated & ~step.terminated
        ends += int(step.terminated.sum())
        assert np.array_equal(step.observations["count"][step.terminated | cut, 0], np.zeros((step.terminated | cut).sum()))
        if cut.any():
            assert step.final_observations["count"].tolist() == [[5.0]] * int(cut.sum())
        else:
            assert step.final_observations == {}
    assert ends > 0 and any(step.truncated.any() for step in training.learner.told)


def test_the_observer_sees_each_step_and_each_episode() -> None:
    training, observer = of_counters(58), Observer()
    training.run(observer)
    assert isinstance(training, Training)
    assert observer.steps == list(range(3, 58, 3)), "58 is no step of all three"
    assert observer.metrics == [12, 24, 36, 48, 57], "the last rollout is learnt from, although it is not full"
    assert {episode["length"] for episode in observer.episodes} == {3, 5}
    for episode in observer.episodes:
        short = episode["length"] == 3
        assert episode["episode_return"] == (6.0 if short else 15.0)
        assert episode["success"] is short
        assert episode["stop_reason"] == ("goal" if short else "time_limit")
    assert set(training.stopwatch.state_dict()) == {"simulate", "infer", "update", "log", "other"}


def test_too_many_diverged_simulations_stop_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counter, "stop_reason", "sim_diverged")
    with pytest.raises(SimulationFailed, match=r"The simulation diverged in 11 of 11 episodes(.|\n)*at most 10, or one in ten"):
        of_counters(1000).run(Observer())


def finished(training: OnPolicyTraining) -> tuple[bytes, list[dict[str, Any]]]:
    observer = Observer()
    training.run(observer)
    return fingerprint(training.state_dict()), observer.episodes


def fingerprint(state: Any) -> bytes:
    """Returns all that later steps depend on, as bytes; seconds differ from run to run."""
    if isinstance(state, dict):
        return b"".join(key.encode() + fingerprint(state[key]) for key in sorted(state) if key != "seconds")
    if isinstance(state, list | tuple):
        return b"".join(map(fingerprint, state))
    return state.tobytes() if isinstance(state, np.ndarray) else repr(state).encode()


def of_pendulums(steps: int = 240, config: PPOConfig = SMALL) -> OnPolicyTraining:
    return config.training(Pendulums(), steps=steps, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 12, 24, 27, 120, 237, 240])
def test_resumed_anywhere_equals_uninterrupted(step: int, tmp_path: Path) -> None:
    """At the first step, inside a rollout, at its end, and after the last."""
    expected, episodes = finished(of_pendulums())
    of_pendulums().run(Observer(save=(step, tmp_path)))
    resumed = of_pendulums()
    resumed.load_state_dict(load_checkpoint(tmp_path).parts)
    assert (resumed.resumed, resumed.step) == ("exact", step)
    state, later = finished(resumed)
    assert state == expected
    assert later == [episode for episode in episodes if episode["step"] > step] and len(episodes) > 3


@pytest.mark.parametrize("step", [240, 243, 249])
def test_resume_in_a_shortened_rollout_is_exact(step: int, tmp_path: Path) -> None:
    """Of 250 steps 240 are whole rollouts of 24, nine are a rollout of three steps, and one is no step of all three."""
    expected, episodes = finished(of_pendulums(250))
    of_pendulums(250).run(Observer(save=(step, tmp_path)))
    resumed = of_pendulums(250)
    resumed.load_state_dict(load_checkpoint(tmp_path).parts)
    state, later = finished(resumed)
    assert (resumed.resumed, resumed.step, state) == ("exact", 249, expected)
    assert later == [episode for episode in episodes if episode["step"] > step]


@pytest.mark.parametrize("steps", [3, 5, 23, 24, 47, 100])
def test_no_step_is_taken_beyond_the_budget(steps: int) -> None:
    training, observer = of_pendulums(steps), Observer()
    before = training.learner.parameters.clone()
    training.run(observer)
    assert training.step == observer.steps[-1] == steps // 3 * 3
    assert observer.metrics[-1] == training.step, "what was seen last is learnt from, too"
    assert training.learner.buffer.length == 0 and training.learner.buffer.rollouts == -(-training.step // 24)
    assert training.learner.parameters.isfinite().all()
    assert not torch.equal(training.learner.parameters, before)


def test_a_single_row_is_not_learnt_from() -> None:
    config = PPOConfig(num_envs=1, steps_per_env=8, batch_size=8, epochs=2, network=PolicyValueNetwork(hidden=(8,)))
    training = config.training(Pendulums(), steps=9, seed=0)
    training.run(Observer())
    assert (training.step, training.learner.updates) == (9, 2), "advantages of one row cannot be normalised"


@pytest.mark.parametrize(("steps", "least"), [(2, 3), (1, 3)])
def test_fewer_steps_than_environments_are_refused(steps: int, least: int) -> None:
    with pytest.raises(InvalidSetting, match=rf"shorter than one step of all environments(.|\n)*{least} steps or more"):
        of_pendulums(steps)


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", ["acting", "shuffling"])
def test_the_comparison_can_fail(forgotten: str, tmp_path: Path) -> None:
    expected, _ = finished(of_pendulums())
    of_pendulums().run(Observer(save=(27, tmp_path)))
    parts, resumed = load_checkpoint(tmp_path).parts, of_pendulums()
    parts["learner"][forgotten] = resumed.learner.state_dict()[forgotten]
    resumed.load_state_dict(parts)
    assert finished(resumed)[0] != expected


def test_environments_that_cannot_be_saved_are_resumed_warm(tmp_path: Path) -> None:
    SMALL.training(Counter, steps=48, seed=0).run(Observer(save=(27, tmp_path)))
    resumed, again = (SMALL.training(Counter, steps=72, seed=0) for _ in range(2))
    for training in (resumed, again):
        training.load_state_dict(load_checkpoint(tmp_path).parts)
        assert (training.resumed, training.step) == ("warm", 27)
    assert finished(resumed)[0] == finished(again)[0]
    assert resumed.step == 72, "the unfinished rollout is left out, a whole one and a short one follow"
    assert Capabilities.of(SMALL).resume == "exact*", "the listing promises no more"


def test_a_recipes_factory_is_recognised() -> None:
    assert isinstance(Pendulums(), VectorFactory)
    assert not isinstance(Counter, VectorFactory)
    assert needs_of(SMALL).trains_itself


def test_the_policy_is_restored_without_training(tmp_path: Path) -> None:
    training = of_pendulums(steps=48)
    training.run(Observer(save=(48, tmp_path)))
    policy = SMALL.restored_policy(Pendulums(), seed=3, state=load_checkpoint(tmp_path).parts)
    observation = Pendulums()().reset(seed=0)[0]
    for deterministic in (True, False):
        expected = training.policy.act(observation, deterministic=deterministic)
        np.testing.assert_array_equal(policy.act(observation, deterministic=deterministic), expected)


def test_demonstrations_are_refused() -> None:
    with pytest.raises(
        InvalidSetting, match=r"An on-policy learner learns from its own actions alone(.|\n)*use rlpd, bc, or sb3-ppo"
    ):
        SMALL.training(Counter, steps=1, seed=0, demonstrations=[None])  # type: ignore[list-item]
