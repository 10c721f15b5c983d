"""What corrections are for: a small task that demonstrations alone do not solve, with and without a person."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from factories import axes, make_spec
from robo_bench.trainings import Silent
from robo_policies.learners.hg_dagger import HGDAggerConfig
from robo_policies.learners.hil_serl import HILSERLConfig, HILSERLReplay
from robo_policies.learners.offline import OfflineNetwork
from robo_policies.learners.rlpd import RLPDNetwork
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.rollout.episode import rollout
from robo_rl.rollout.intervention import PersonInTheLoop
from robo_rl.rollout.simulated_human import KINDS, SimulatedHuman
from robo_rl.spec.environment import ArraySpec, specification
from robo_rl.training.off_policy import online_training
from robo_rl.types import Array, StateDict

WALL, DOOR, GAP, GOAL, RADIUS, LIMIT = 0.3, 0.5, 0.06, np.array([0.8, 0.0]), 0.08, 40


class TwoRooms(gymnasium.Env[Any, Any]):
    """A point leaves one of two rooms, each with a narrow door of its own, for a small goal; only arriving pays.

    Even seeds start in the upper room, odd ones in the lower, which mirrors it.
    """

    environment_spec = make_spec(
        "test/TwoRooms",
        ArraySpec("position", (2,), unit="m"),
        action=axes("x", "y", limit=0.1, unit="m", mode="joint_velocity", control_period=0.1),
        max_steps=LIMIT,
        success_rule="within 8 cm of the goal",
    )
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        side = 1.0 if seed is not None and seed % 2 == 0 else -1.0
        self.position = np.array([self.np_random.uniform(-0.9, -0.5), side * self.np_random.uniform(0.5, 0.9)])
        self.count = 0
        return self._observe(), {}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        following = np.clip(self.position + self.environment_spec.action.to_physical(action), -1, 1)
        if self._is_blocked(following):
            following = self.position
        self.position = following
        self.count += 1
        reached = bool(np.linalg.norm(self.position - GOAL) < RADIUS)
        return self._observe(), float(reached), reached, not reached and self.count == LIMIT, {"success": reached}

    def _is_blocked(self, following: Array) -> bool:
        (x, y), way = self.position, following - self.position
        if (x < WALL) != (following[0] < WALL):
            height = y + way[1] * (WALL - x) / way[0]
            return abs(abs(height) - DOOR) > GAP
        return bool(x < WALL and (y < 0) != (following[1] < 0))

    def _observe(self) -> dict[str, Array]:
        return {"position": self.position.astype(np.float32)}


class Guide:
    """Goes in front of the door, through it, and to the goal, at four fifths of the speed."""

    environment_spec = TwoRooms.environment_spec

    def __init__(self, seed: int) -> None: ...

    def reset(self) -> None: ...

    def act(self, observation: Any, *, deterministic: bool = False) -> Array:
        position = observation["position"].astype(np.float64)
        door = np.copysign(DOOR, position[1])
        if position[0] > WALL:
            target = GOAL
        elif abs(position[1] - door) > GAP / 2:
            target = np.array([WALL - 0.15, door])
        else:
            target = np.array([WALL + 0.15, door])
        way = target - position
        return np.clip(0.8 * way / max(np.abs(way).max(), 0.1), -1, 1).astype(np.float32)

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None: ...


CLONING = HGDAggerConfig(network=OfflineNetwork(hidden=(64, 64)), batch_size=64)
HIL = HILSERLConfig(
    network=RLPDNetwork(hidden=(64, 64)),
    batch_size=64,
    lr=1e-3,
    tau=0.01,
    discount=0.95,
    replay=HILSERLReplay(learning_starts=100, capacity=10_000),
)


def success(kind: str, seed: int, steps: int = 3000, config: Any = HIL) -> tuple[float, PersonInTheLoop | None]:
    """Trains with demonstrations from the upper room; returns success from both, without the person."""
    environment = TwoRooms()
    spec = specification(environment)
    demonstrations = [rollout(environment, Guide(0), seed=2 * index) for index in range(5)]
    assert all(episode.success for episode in demonstrations)
    person = PersonInTheLoop(SimulatedHuman(Guide, KINDS[kind], seed), 0.1) if kind else None
    training = online_training(
        environment,
        config.build(spec, seed),
        replace(config.sampling, learning_starts=min(config.sampling.learning_starts, 100)),
        steps=steps,
        seed=seed,
        demonstrations=demonstrations,
        supervisor=person,
    )
    training.run(Silent())
    found = evaluate(training.policy, TwoRooms(), seeds=range(1_000_000, 1_000_040))
    return float(np.mean([bool(each) for each in found.successes])), person


def median(kind: str, steps: int, config: Any) -> float:
    found = [success(kind, seed, steps, config)[0] for seed in range(3)]
    print(f"cloning, {kind or 'nobody'}: {found}")
    return float(np.median(found))


def test_room_without_demonstration_is_never_left_alone() -> None:
    """What the slow tests rest on: the guide knows both rooms, its demonstrations show one."""
    below, above = (rollout(TwoRooms(), Guide(0), seed=seed) for seed in (1, 2))
    assert below.success and above.success
    assert (below.observations["position"][:10, 1] < 0).all() and (above.observations["position"][:10, 1] > 0).all()


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(3))
def test_rl_with_corrections_leaves_both_rooms(seed: int) -> None:
    alone, _ = success("", seed, 4000)
    helped, person = success("perfect", seed, 4000)
    harmed, _ = success("wrong", seed, 4000)
    print(f"reinforcement, seed {seed}: nobody {alone}, perfect {helped}, wrong {harmed}")
    assert alone <= 0.6 and helped >= 0.9
    assert 0.4 <= harmed <= 0.6  # what it is shown pays nothing: it leaves the room of the demonstrations as without a person
    assert person is not None and person.metrics["human/intervention_rate"] < 0.1  # there is less and less to correct


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_cloning_correct_corrections_leaves_both_rooms() -> None:
    assert median("", 2000, CLONING) <= 0.6
    assert median("perfect", 2000, CLONING) >= 0.9
    assert median("wrong", 2000, CLONING) <= 0.2
