"""Success, return and length of a training are told once each environment has ended an episode; success at any step counts."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from factories import axes, make_spec
from robo_papers.bresa.learner import BresaConfig
from robo_policies.networks.settings import Network
from robo_policies.sb3.algorithms import PPOConfig as SB3PPOConfig
from robo_rl.collectors.synchronous import SynchronousTraining
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.runs.observer import Cadence, RunRecord
from robo_rl.runs.run import Run
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.on_policy import OnPolicyTraining

COUNT, LONG = 8, 20
SPEC = make_spec("test/Race", ArraySpec("count", (1,)), action=axes("a", "b"), costs=(CostSpec("hazard", 1.0),))


class Race(gymnasium.Env[Any, Any]):
    """One episode in four succeeds after two steps, the others fail after twenty; each succeeds in passing at `passes`."""

    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space
    passes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.is_good = 0, bool(self.np_random.random() < 0.25)
        return {"count": np.zeros(1, np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        succeeds = self.is_good and self.count == 2 and not self.passes
        info = {"success": succeeds or self.count == self.passes, "costs": {"hazard": 0.0}}
        return {"count": np.full(1, self.count, np.float32)}, 0.0, succeeds, self.count == LONG, info


class Passing(Race):
    passes = 3


class Idle:
    """Learns nothing."""

    policy: Any = None
    is_ready = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_: {}

    def act(self) -> np.ndarray:
        return np.zeros((COUNT, 2), np.float32)


def lines_of(path: Path, training: Any, log: int = COUNT) -> list[dict[str, Any]]:
    """Return what a run logs of a training."""
    shown = SimpleNamespace(update=lambda *_: None)
    with (
        Run.create(path, recipe_name="race", seed=0, recipe="{}", spec=SPEC) as run,
        closing(RunRecord(run, Cadence(log, 0, 0), lambda policy: pytest.fail(), shown)) as record,
    ):
        training.run(record)
        return run.metrics()


def of_one_process(steps: int) -> OnPolicyTraining:
    environments = SequentialEnvironments(Race, COUNT, autoreset_mode=AutoresetMode.SAME_STEP)
    return OnPolicyTraining(environments, Idle(), steps=steps, seed=0)  # type: ignore[arg-type]


def of_sb3(steps: int) -> Any:
    config = SB3PPOConfig(n_envs=COUNT, n_steps=4, batch_size=4, n_epochs=1, policy_kwargs={"net_arch": [4]}, device="cpu")
    return config.training(Race, steps=steps, seed=0)


@pytest.mark.parametrize("make", [of_one_process, of_sb3])
def test_nothing_is_told_before_each_environment_has_ended_one(make: Any, tmp_path: Path) -> None:
    lines = lines_of(tmp_path, make(2 * LONG * COUNT))
    told = {line["step"]: line["rollout/success_rate"] for line in lines if "rollout/success_rate" in line}
    assert min(told) >= LONG * COUNT - COUNT, "the first that end are the successful ones"
    assert {0.0 < rate < 0.6 for rate in told.values()} == {True}
    for line in lines:
        of_episodes = {tag for tag in line if tag.startswith(("rollout/ep_", "rollout/success", "costs/"))}
        assert (line["step"] in told) == bool(of_episodes)


def test_collectors_tell_the_environments_apart() -> None:
    training = SynchronousTraining.__new__(SynchronousTraining)
    training.step, training._environments = 0, 5
    parts = [
        {"rewards": np.zeros((4, count)), "episodes": [{"step": 1, "place": (0, count)}, {"step": 2, "place": (1, count)}]}
        for count in (2, 3)
    ]
    told = list[tuple[int, int]]()
    training._report_episodes(parts, SimpleNamespace(on_episode=lambda step, place: told.append(place)))  # type: ignore[arg-type]
    assert told == [(0, 5), (1, 5), (2, 5), (3, 5)]


def test_a_record_goes_on_with_what_it_had_heard(tmp_path: Path) -> None:
    told = {"episode_return": 1.0, "length": 2, "success": True, "stop_reason": "goal"}
    with ExitStack() as open_records:

        def record(name: str) -> RunRecord:
            with Run.create(tmp_path / name, recipe_name="race", seed=0, recipe="{}", spec=SPEC) as run:
                made = RunRecord(run, Cadence(0, 0, 0), lambda policy: pytest.fail(), SimpleNamespace())  # type: ignore[arg-type]
            return open_records.enter_context(closing(made))

        first, second = record("first"), record("second")
    first.on_episode(1, **told, place=(0, 2))
    assert first._recent_metrics() == {}
    second.load_state_dict(first.state_dict())
    second.on_episode(2, **told, place=(1, 2))
    assert second._recent_metrics()["rollout/success_rate"] == 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: BresaConfig(network=Network(hidden=(4,)), hold=2).training(Passing, steps=LONG, seed=0),
        lambda: SB3PPOConfig(n_steps=LONG, batch_size=LONG, n_epochs=1, device="cpu").training(Passing, steps=LONG, seed=0),
    ],
    ids=["bresa", "sb3"],
)
def test_success_at_any_step_counts_in_loops_of_their_own(make: Any, tmp_path: Path) -> None:
    assert lines_of(tmp_path, make(), log=LONG)[-1]["rollout/success_rate"] == 1.0
