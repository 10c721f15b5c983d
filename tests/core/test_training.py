"""The training loops: interrupted and resumed equals uninterrupted, bit for bit, wherever the interruption falls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories import rest_slow
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.rlpd import RLPDConfig
from robo_policies.learners.sac import SACConfig
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, SimulationFailed
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import specification
from robo_rl.training.off_policy import OfflineTraining, OnlineTraining, online_training
from robo_rl.training.step_sources import EnvironmentSteps, episode_seed
from robo_rl.types import Metrics

SMALL: dict[str, Any] = {"network": {"hidden": (8, 8)}, "batch_size": 8, "replay": {"learning_starts": 5}}
STEPS = 60


class Silent:
    """Observes nothing, or saves at one step."""

    def __init__(self, save: tuple[int, Path] | None = None) -> None:
        self.save = save
        self.ends: list[tuple[int, str]] = []

    def on_episode(self, step: int, *, stop_reason: str, **outcome: Any) -> None:
        self.ends.append((step, stop_reason))

    def on_metrics(self, step: int, metrics: Metrics) -> None: ...

    def on_step(self, step: int, training: Any) -> None:
        if self.save is not None and step == self.save[0]:
            save_checkpoint(self.save[1], Checkpoint(step, training.state_dict()))
            self.save = None


def sac_on_mujoco() -> OnlineTraining[EnvironmentSteps]:
    environment = make_environment("gymnasium/InvertedPendulum-v5")
    config = updated(SACConfig(), SMALL)
    learner = config.build(specification(environment), 3)
    return online_training(environment, learner, config.sampling, steps=STEPS, seed=3)


def rlpd_on_the_arm() -> OnlineTraining[EnvironmentSteps]:
    environment = make_environment("robo/ArmReach-v0", max_steps=15)
    config = updated(
        RLPDConfig(), SMALL, critics=3, updates_per_step=2, replay={"n_step": 2}, network={"normalization_rows": 50}
    )
    expert = environment.get_wrapper_attr("scripted_policy")
    demonstrations = [rollout(environment, expert(seed), seed=seed) for seed in (1, 2)]
    learner = config.build(specification(environment), 4)
    return online_training(environment, learner, config.sampling, steps=STEPS, seed=4, demonstrations=demonstrations)


def bc_on_minigrid() -> OnlineTraining[EnvironmentSteps]:
    """Cloning itself is no method, but exercises everything that a discrete learner saves."""
    environment = make_environment("minigrid/MiniGrid-Empty-Random-5x5-v0")
    config = updated(BCConfig(), network={"hidden": (8,)}, batch_size=8)
    learner = config.build(specification(environment), 5)
    sampling = updated(SACConfig(), SMALL).sampling
    return online_training(environment, learner, sampling, steps=STEPS, seed=5)


TRAININGS = [sac_on_mujoco, rlpd_on_the_arm, bc_on_minigrid]


def finished(training: OnlineTraining[EnvironmentSteps]) -> tuple[bytes, list[tuple[int, str]]]:
    observer = Silent()
    training.run(observer)
    return fingerprint(training.state_dict()["learner"]), observer.ends


def fingerprint(state: Any) -> bytes:
    if isinstance(state, dict):
        return b"".join(key.encode() + fingerprint(state[key]) for key in sorted(state))
    return np.asarray(state).tobytes()


@pytest.mark.parametrize("make", rest_slow([sac_on_mujoco, bc_on_minigrid, rlpd_on_the_arm], fast=2))
def test_resumed_anywhere_equals_uninterrupted(make: Callable[[], OnlineTraining[EnvironmentSteps]], tmp_path: Path) -> None:
    expected, ends = finished(make())
    first_end = next((step for step, _ in ends if step > 5), STEPS // 2)
    last_step, start, middle = first_end - 1, first_end, first_end + 3
    for step in (1, last_step, start, start + 1, middle, STEPS - 1):
        make().run(Silent(save=(step, tmp_path / str(step))))
        resumed = make()
        resumed.load_state_dict(load_checkpoint(tmp_path / str(step)).parts)
        assert resumed.resumed == "exact" and resumed.step == step
        assert finished(resumed)[0] == expected, f"resumed at step {step}"


@pytest.mark.slow
def test_mapping_the_replay_changes_nothing(tmp_path: Path) -> None:
    def mapped() -> OnlineTraining[EnvironmentSteps]:
        environment = make_environment("gymnasium/InvertedPendulum-v5")
        config = updated(SACConfig(), SMALL, replay={"folder": str(tmp_path)})
        return online_training(environment, config.build(specification(environment), 3), config.sampling, steps=STEPS, seed=3)

    expected, _ = finished(sac_on_mujoco())
    mapped().run(Silent(save=(30, tmp_path / "checkpoints")))
    resumed = mapped()
    resumed.load_state_dict(load_checkpoint(tmp_path / "checkpoints").parts)
    assert finished(resumed)[0] == expected
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


@pytest.mark.slow
def test_the_comparison_can_fail(tmp_path: Path) -> None:
    expected, _ = finished(sac_on_mujoco())
    sac_on_mujoco().run(Silent(save=(20, tmp_path)))
    parts = load_checkpoint(tmp_path).parts
    resumed = sac_on_mujoco()
    parts["replay"]["generator"] = resumed.step_learner.replay.state_dict()["generator"]  # one forgotten random generator
    resumed.load_state_dict(parts)
    assert finished(resumed)[0] != expected


@pytest.mark.slow
def test_nondeterministic_environment_is_resumed_warm(tmp_path: Path) -> None:
    sac_on_mujoco().run(Silent(save=(20, tmp_path)))
    parts = load_checkpoint(tmp_path).parts
    observation = parts["training"]["rollout"]["observation"]
    name = next(iter(observation))
    observation[name] = observation[name] + np.float32(1e-6)
    resumed = sac_on_mujoco()
    resumed.load_state_dict(parts)
    assert resumed.resumed == "warm"
    finished(resumed)
    assert resumed.step == STEPS


def test_training_resets_stay_apart_from_evaluation_seeds() -> None:
    seeds = {episode_seed(run, index) for run in range(20) for index in range(500)}
    assert len(seeds) > 9_990 and min(seeds) >= 2**30 and max(seeds) < 2**31


def test_a_simulation_that_always_diverges_stops_the_training() -> None:
    training = sac_on_mujoco()

    step = training.source.step

    def blow_up(sink: Any) -> Any:
        if training.source.episode is not None:
            training.source.environment.unwrapped.data.qvel[:] = np.nan  # type: ignore[attr-defined]
        return step(sink)

    training.source.step = blow_up  # type: ignore[method-assign]
    with pytest.raises(SimulationFailed, match=r"The simulation diverged in 11 of 11 episodes(.|\n)*at most 10, or one in ten"):
        training.run(Silent())
    assert np.isfinite(training.step_learner.replay._rows["vectors"]).all()


def test_offline_training_without_episodes_says_so() -> None:
    environment = make_environment("robo/ArmReach-v0")
    spec = specification(environment)
    config = BCConfig()
    with pytest.raises(InvalidSetting, match=r"Offline learning needs recorded episodes(.|\n)*demonstrations.episodes"):
        OfflineTraining(spec, config.build(spec, 0), config.sampling, steps=1, seed=0, demonstrations=[])


def test_demonstrations_beyond_the_capacity_are_refused() -> None:
    environment = make_environment("gymnasium/InvertedPendulum-v5")
    spec = specification(environment)
    config = updated(SACConfig(), SMALL, replay={"capacity": 10})
    episodes = [rollout(environment, RandomPolicy(spec, seed), seed=seed) for seed in range(5)]
    with pytest.raises(InvalidSetting, match=r"do not fit into the replay memory(.|\n)*raise learner.replay.capacity"):
        online_training(environment, config.build(spec, 0), config.sampling, steps=1, seed=0, demonstrations=episodes)
