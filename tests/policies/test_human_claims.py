"""What corrections are for: a small task that demonstrations alone do not solve, with and without a person."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from robo_policies.hg_dagger import HGDAggerConfig
from robo_policies.hil_serl import HILSERLConfig
from robo_rl.evaluation import evaluate
from robo_rl.human import PersonInTheLoop
from robo_rl.rollout import rollout
from robo_rl.simulated_human import KINDS, SimulatedHuman
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec, specification
from robo_rl.training import OnlineTraining
from robo_rl.types import Array, StateDict

WALL, GAP, GOAL, RADIUS, LIMIT = 0.3, 0.08, np.array([0.8, 0.0]), 0.08, 40


class Gap(gymnasium.Env[Any, Any]):
    """A point crosses a wall through a gap to a small goal; only arriving pays. Even seeds start above, odd ones below."""

    environment_spec = EnvironmentSpec(
        "test/Gap",
        ObservationSpec((ArraySpec("position", (2,), unit="m"),)),
        ActionSpec(("x", "y"), (-0.1, -0.1), (0.1, 0.1), ("m", "m"), "joint_velocity", 0.1),
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
        way = following - self.position
        if (self.position[0] < WALL) != (following[0] < WALL):
            height = self.position[1] + way[1] * (WALL - self.position[0]) / way[0]
            if abs(height) > GAP:
                following = self.position
        self.position = following
        self.count += 1
        reached = bool(np.linalg.norm(self.position - GOAL) < RADIUS)
        return self._observe(), float(reached), reached, not reached and self.count == LIMIT, {"success": reached}

    def _observe(self) -> dict[str, Array]:
        return {"position": self.position.astype(np.float32)}


class Guide:
    """Goes in front of the gap, through it, and to the goal, at four fifths of the speed."""

    environment_spec = Gap.environment_spec

    def __init__(self, seed: int) -> None: ...

    def reset(self) -> None: ...

    def act(self, observation: Any, *, deterministic: bool = False) -> Array:
        position = observation["position"].astype(np.float64)
        before = position[0] < WALL and abs(position[1]) > GAP / 2
        way = (np.array([WALL - 0.15, 0.0]) if before else GOAL) - position
        return np.clip(0.8 * way / max(np.abs(way).max(), 0.1), -1, 1).astype(np.float32)

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None: ...


class Silent:
    def on_episode(self, step: int, **outcome: Any) -> None: ...

    def on_metrics(self, step: int, metrics: Any) -> None: ...

    def on_step(self, step: int, training: Any) -> None: ...


HIL = HILSERLConfig(
    hidden=(64, 64), batch_size=64, lr=1e-3, tau=0.01, discount=0.95, learning_starts=100, replay_capacity=10_000
)


def success(kind: str, seed: int, steps: int = 3000, config: Any = HIL) -> tuple[float, PersonInTheLoop | None]:
    """Trains with demonstrations that all start above; returns success from above and below, without the person."""
    environment = Gap()
    spec = specification(environment)
    demonstrations = [rollout(environment, Guide(0), seed=2 * index) for index in range(5)]
    assert all(episode.success for episode in demonstrations)
    person = PersonInTheLoop(SimulatedHuman(Guide, KINDS[kind], seed), 0.1) if kind else None
    training = OnlineTraining(
        environment,
        config.build(spec, seed),
        config.sampling,
        steps=steps,
        seed=seed,
        demonstrations=demonstrations,
        supervisor=person,
    )
    training.run(Silent())
    found = evaluate(training.policy, Gap(), seeds=range(1_000_000, 1_000_040))
    return float(np.mean([bool(each) for each in found.successes])), person
