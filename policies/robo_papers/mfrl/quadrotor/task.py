"""One flight through random way-points: the action allots times and smoothness to the segments of a minimum-snap plan.

An episode is one step. The plan with action 0 has the times of least snap, as slow as ideal rotors need (the low fidelity);
the reward is the share of its duration that is saved, -1 if the flight in MuJoCo (the high fidelity) strays from the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_papers.mfrl.quadrotor.flight import GRAVITY, STRAYS, WEIGHT, Flown, Quadrotor, is_within_limits, rotor_thrusts
from robo_papers.mfrl.quadrotor.plan import Trajectory, minimum_snap
from robo_rl.evaluation.measures import Measure
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation
from robo_sims.simulation import Arrays, Simulation, SimulationStep, VectorLayout, overview
from robo_sims.task_family import TaskFamily

Array = npt.NDArray[np.float64]
FEWEST, MOST = 5, 14
"""Smallest and largest number of way-points."""
SEGMENTS = MOST - 1
STRETCH, SMOOTHNESS = 0.7, 2.0
"""Largest logarithms that an action can reach: of a segment's time over its least-snap time, and of its weight in the cost."""
FAILED = -1.0
"""Reward of a flight that strays."""
BOUNDS = -1.5, 0.2
"""Lowest and highest reward."""
GRADIENT_STEPS = 6
START = np.array([0.0, 0.0, 1.5])
"""(3,) [m] position of the first way-point."""


@dataclass(frozen=True)
class Proposal:
    """Planned trajectory that has not been flown yet, with the time that it would save."""

    trajectory: Trajectory
    saved: float
    """Share of the reference duration that it saves: the reward if it is feasible."""

    @property
    def features(self) -> Array:
        """Features (9,) of the plan from which its feasibility is estimated.

        Of the plan: logarithms of the largest speed, acceleration, jerk and snap, lowest thrust over weight, logarithm of the
        duration. Of ideal rotors: least and largest thrust [N], logarithm of the largest change in 20 ms [N].
        """
        at = np.linspace(0.0, self.trajectory.duration, 200)
        sizes = [np.linalg.norm(self.trajectory.sample(at, derivative), axis=1).max() for derivative in range(1, 5)]
        thrust = np.linalg.norm(self.trajectory.sample(at, 2) + WEIGHT, axis=1).min() / GRAVITY
        rotors = rotor_thrusts(self.trajectory)
        changes = np.abs(np.diff(rotors, axis=0)).max()
        plan = [*np.log(sizes), thrust, np.log(self.trajectory.duration)]
        return np.array([*plan, rotors.min(), rotors.max(), np.log(changes + 1e-3)])

    @property
    def reward(self) -> float:
        """Reward that the plan gets if it is feasible."""
        return float(np.clip(self.saved, *BOUNDS))

    def is_feasible_for_ideal_rotors(self) -> bool:
        """Return True if ideal rotors can fly the plan: the label of the low fidelity."""
        return is_within_limits(self.trajectory)


class WaypointSimulation(Simulation):
    """Simulation of a quadrotor that flies through way-points as planned; an episode is one flight."""

    measures = (
        Measure("duration_ratio", "1", "duration of the flight over that of the least-snap plan, of feasible flights"),
        Measure("path_error", "m", "largest distance from the plan"),
    )

    def __init__(self, detail: str = "plain") -> None:
        arrays = (
            ArraySpec(
                "steps",
                (SEGMENTS, 3),
                unit="m",
                frame="world",
                role="goal",
                meaning="from way-point to way-point, 0 beyond the last",
            ),
            ArraySpec("times", (SEGMENTS,), low=0, unit="s", role="goal", meaning="of the least-snap plan, 0 beyond the last"),
        )
        self._layout = VectorLayout(arrays)
        names = [f"{kind}_{index}" for kind in ("stretch", "smoothness") for index in range(SEGMENTS)]
        limits = [STRETCH] * SEGMENTS + [SMOOTHNESS] * SEGMENTS
        self.spec = EnvironmentSpec(
            name="quadrotor/Waypoints-v0",
            observation=self._layout.observation,
            action=ActionSpec(tuple(names), tuple(-limit for limit in limits), tuple(limits), ("1",) * len(names), "unknown"),
            instruction="fly through the way-points as fast as you can",
            max_steps=1,
            success_rule=f"never farther than {100 * STRAYS:g} cm from the plan",
        )
        self._random = np.random.default_rng()
        self._quadrotor = Quadrotor()
        self._overview = overview(detail)
        self.flown: Flown | None = None
        """The newest flight."""

    @property
    @override
    def mujoco(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        return self._quadrotor.model, self._quadrotor.data

    @override
    def reset(self, seed: int | None) -> Arrays:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._quadrotor.restart()
        steps, times = draw_task(self._random)
        padded = np.zeros((SEGMENTS, 4))
        padded[: len(times)] = np.column_stack([steps, times])
        self._observation = self._layout.split(np.concatenate([padded[:, :3].ravel(), padded[:, 3]]))
        return self._copied()

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        if not np.isfinite([*self._quadrotor.data.qpos, *self._quadrotor.data.qvel]).all():
            return SimulationStep(self._copied(), np.nan, True)  # a state that no flight can start from: it has diverged
        proposal = propose(self._observation, np.asarray(action, np.float64))
        self.flown = flown = self._quadrotor.fly(proposal.trajectory)
        reward = proposal.reward if flown.is_feasible else FAILED
        ratio = 1.0 - proposal.saved
        measures = {"path_error": flown.error} | ({"duration_ratio": ratio} if flown.is_feasible else {})
        return SimulationStep(self._copied(), reward, True, success=flown.is_feasible, measures=measures)

    def _copied(self) -> Arrays:
        return {name: values.copy() for name, values in self._observation.items()}

    def propose(self, observation: Observation, action: npt.NDArray[Any]) -> Proposal:
        """Plan the flight of an action (26,) in [-1, 1] without flying it."""
        return propose(observation, self.spec.action.to_physical(action))

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        return self._overview.picture(self._quadrotor.data, "overview")

    @override
    def close(self) -> None:
        self._overview.close()


def propose(observation: Observation, action: Array) -> Proposal:
    """Plan a flight from an action (26,).

    The action holds logarithms of the segments' times and weights, over those of the least-snap plan.
    """
    reference = observation["times"].astype(np.float64)
    count = int((reference > 0.0).sum())
    steps, reference = observation["steps"][:count].astype(np.float64), reference[:count]
    times = reference * np.exp(action[:count])
    weights = np.exp(action[SEGMENTS : SEGMENTS + count])
    trajectory = minimum_snap(waypoints_of(steps), times, weights)
    return Proposal(trajectory, 1.0 - trajectory.duration / float(reference.sum()))


def waypoints_of(steps: Array) -> Array:
    """Return the way-points (S + 1, 3) [m] from the steps (S, 3) [m] between them; the first is 1.5 m above the ground."""
    places: Array = np.concatenate([np.zeros((1, 3)), np.cumsum(steps, 0)]) + START
    return places


def draw_task(random: np.random.Generator) -> tuple[Array, Array]:
    """Draw a task: steps (S, 3) [m] between way-points, and times (S,) [s] of the least-snap plan.

    The plan is as fast as the limits of the low fidelity allow.
    """
    count = int(random.integers(FEWEST, MOST + 1)) - 1
    directions = random.normal(size=(count, 3)) * [1.0, 1.0, 0.3]
    steps = directions / np.linalg.norm(directions, axis=1)[:, None] * random.uniform(0.5, 1.5, (count, 1))
    times = least_snap_times(steps)
    plan = minimum_snap(waypoints_of(steps), times)
    low, high = 0.1, 20.0  # of a common factor: the thrusts fall with it
    for _ in range(12):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if is_within_limits(plan.slowed(float(middle))) else (middle, high)
    return steps, times * high


def least_snap_times(steps: Array) -> Array:
    """Return the durations (S,) [s] of the segments, with sum S, that have the least snap, by gradient descent.

    Mellinger and Kumar 2011, section III-C. steps: (S, 3) [m] between way-points.
    """
    waypoints, count = waypoints_of(steps), len(steps)

    def cost(logarithms: Array) -> float:
        times = np.exp(logarithms)
        plan = minimum_snap(waypoints, times / times.mean())
        at = np.linspace(0.0, plan.duration, 100)
        return float(np.log((plan.sample(at, 4) ** 2).sum(1).mean()))

    logarithms = 0.5 * np.log(np.linalg.norm(steps, axis=1))
    present, rate = cost(logarithms), 0.2
    for _ in range(GRADIENT_STEPS):
        gradient = np.array([cost(logarithms + 0.05 * axis) - present for axis in np.eye(count)]) / 0.05
        moved = logarithms - rate * gradient
        if (found := cost(moved)) < present:
            logarithms, present = moved, found
        else:
            rate /= 4.0
    times = np.exp(logarithms)
    scaled: Array = times / times.mean()
    return scaled


def _tasks() -> Iterable[str]:
    return ("Waypoints-v0",)


def _simulate(task: str, detail: str = "plain") -> Simulation:
    """detail: quality of pictures (robo_sims.cameras)."""
    del task
    return WaypointSimulation(detail)


FAMILY = TaskFamily("quadrotor", _tasks, _simulate)
"""Family of the environments "quadrotor/...": a quadrotor flies a plan through way-points; actions allot times."""
