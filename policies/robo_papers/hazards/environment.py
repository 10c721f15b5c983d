"""Point mass and car among disc hazards: the shortest way leads through a hazard, a longer one around it.

Rules after the Goal tasks of Safety Gym (Ray, Achiam and Amodei 2019, "Benchmarking Safe Exploration in Deep Reinforcement
Learning") with one goal, a plane without physics engine, and observations in metres instead of lidar. N environments, H
hazards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Stateful
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation, ObservationSpec
from robo_rl.types import StateDict
from robo_sims.batched.environment import BatchStep, SimulationBatch
from robo_sims.batched.generators import Generators
from robo_sims.simulation import Arrays, Barriers, Simulation, SimulationStep, VectorLayout
from robo_sims.task_family import TaskFamily

Array = npt.NDArray[np.float64]
PERIOD = 0.1
"""[s] control period."""
HAZARDS = 4
RADIUS = 0.5
"""[m] radius of each hazard."""
REACHED = 0.2
"""[m] distance at which the goal is reached."""
TOP_SPEED = 1.0
"""[m/s] largest speed of the body."""
ACCELERATION = 2.0
"""[m/s^2] largest acceleration, along each axis for the point, along the heading for the car."""
CURVATURE = 2.0
"""[1/m] largest curvature of the car's path."""
LOSS = 0.05
"""Amount subtracted from the reward in each step: the detour around a hazard, about three steps, costs 0.15 of about 2.4."""
HALF = 2.5
"""[m] half the width of the picture and of the field."""
PIXELS = 320


APPROACH = 0.2
"""Largest share of the distance to a hazard that a step may take away: at top speed braking needs all of ACCELERATION."""


class Body:
    """Base class of the two bodies, point and car: how N of them move.

    States (N, 5) are x, y [m], velocity along x, y [m/s], heading [rad].
    """

    action: ActionSpec
    proprioception: tuple[ArraySpec, ...]

    def move(self, states: Array, controls: Array) -> Array:
        """Return the states (N, 5) after one control period with controls (N, A) in physical units."""
        raise NotImplementedError

    def measure(self, states: Array) -> list[Array]:
        """Return the arrays that the robot itself measures, (N, ...) each."""
        raise NotImplementedError

    def control(self, state: Array, wanted: Array) -> Array:
        """Return an action (A,) in physical units that brings the velocity (2,) [m/s] of one state near the wanted one."""
        raise NotImplementedError

    def effect(self, state: Array) -> Array:
        """Return the accelerations (2, A) [m/s^2] of one state per unit of each element of the action."""
        raise NotImplementedError


class Point(Body):
    """Body that is a point mass with a limited speed: actions are accelerations."""

    action = ActionSpec(
        ("ax", "ay"), (-ACCELERATION,) * 2, (ACCELERATION,) * 2, ("m/s^2",) * 2, "unknown", control_period=PERIOD, frame="world"
    )
    proprioception = (
        ArraySpec("position", (2,), unit="m", frame="world"),
        ArraySpec("velocity", (2,), unit="m/s", frame="world"),
    )

    @override
    def move(self, states: Array, controls: Array) -> Array:
        velocity = states[:, 2:4] + PERIOD * controls
        velocity *= TOP_SPEED / np.maximum(np.linalg.norm(velocity, axis=1, keepdims=True), TOP_SPEED)
        return np.concatenate((states[:, :2] + PERIOD * velocity, velocity, states[:, 4:]), 1)

    @override
    def measure(self, states: Array) -> list[Array]:
        return [states[:, :2], states[:, 2:4]]

    @override
    def control(self, state: Array, wanted: Array) -> Array:
        return (wanted - state[2:4]) / PERIOD

    @override
    def effect(self, state: Array) -> Array:
        return np.eye(2)


class Car(Body):
    """Body that is a car without slip: actions are the acceleration along the heading and the curvature of the path."""

    action = ActionSpec(
        ("acceleration", "curvature"),
        (-ACCELERATION, -CURVATURE),
        (ACCELERATION, CURVATURE),
        ("m/s^2", "1/m"),
        "drive",
        control_period=PERIOD,
        frame="ego",
    )
    proprioception = (
        ArraySpec("position", (2,), unit="m", frame="world"),
        ArraySpec("heading", (2,), unit="1", frame="world", meaning="cosine and sine"),
        ArraySpec("speed", (1,), unit="m/s", frame="ego"),
    )

    @override
    def move(self, states: Array, controls: Array) -> Array:
        heading = states[:, 4]
        speed = states[:, 2] * np.cos(heading) + states[:, 3] * np.sin(heading)
        speed = np.clip(speed + PERIOD * controls[:, 0], 0.0, TOP_SPEED)
        heading = heading + PERIOD * speed * controls[:, 1]
        velocity = speed[:, None] * np.stack((np.cos(heading), np.sin(heading)), 1)
        return np.concatenate((states[:, :2] + PERIOD * velocity, velocity, heading[:, None]), 1)

    @override
    def measure(self, states: Array) -> list[Array]:
        facing = np.stack((np.cos(states[:, 4]), np.sin(states[:, 4])), 1)
        return [states[:, :2], facing, (states[:, 2:4] * facing).sum(1, keepdims=True)]

    @override
    def control(self, state: Array, wanted: Array) -> Array:
        facing = np.array([np.cos(state[4]), np.sin(state[4])])
        off = np.arctan2(facing[0] * wanted[1] - facing[1] * wanted[0], facing @ wanted)
        speed = np.linalg.norm(wanted) * max(0.2, np.cos(off))
        return np.array([(speed - state[2:4] @ facing) / PERIOD, 4.0 * off])

    @override
    def effect(self, state: Array) -> Array:
        facing, speed = np.array([np.cos(state[4]), np.sin(state[4])]), state[2:4] @ state[2:4]
        return np.stack((facing, speed * np.array([-facing[1], facing[0]])), 1)


BODIES: dict[str, Body] = {"Point-v0": Point(), "Car-v0": Car()}


def spec_of(task: str, limit: float | str) -> EnvironmentSpec:
    """Return the spec of a task; limit: of the cost, in steps per episode."""
    body = BODIES[task]
    cost = CostSpec("hazard", 3.0, meaning="steps inside a hazard")
    return EnvironmentSpec(
        f"hazards/{task}",
        ObservationSpec(
            (
                *body.proprioception,
                ArraySpec("goal_from_agent", (2,), unit="m", frame="world", role="goal"),
                ArraySpec(
                    "hazards_from_agent", (2 * HAZARDS,), unit="m", frame="world", role="object", meaning="x, y of each centre"
                ),
                ArraySpec(
                    "hazard_clearance", (HAZARDS,), unit="m", role="object", meaning="distance to the edge, negative inside"
                ),
            )
        ),
        body.action,
        instruction="drive to the goal",
        max_steps=80,
        success_rule=f"less than {REACHED} m from the goal",
        costs=(CostSpec("hazard", cost.limit_of(limit), meaning=cost.meaning),),
    )


class HazardBatch(SimulationBatch):
    """Batched simulation of N worlds, each with a body, a goal and hazards."""

    def __init__(self, task: str, num_envs: int, limit: float | str = 3.0) -> None:
        self.spec, self.num_envs, self.body = spec_of(task, limit), num_envs, BODIES[task]
        self.states = np.zeros((num_envs, 5))
        """(N, 5) as of Body."""
        self.goals = np.zeros((num_envs, 2))
        """(N, 2) [m]"""
        self.hazards = np.zeros((num_envs, HAZARDS, 2))
        """(N, H, 2) [m] centres"""
        self._generators = Generators(num_envs)

    @property
    def distances(self) -> Array:
        """(N,) [m] distances of the bodies from their goals."""
        return np.asarray(np.linalg.norm(self.goals - self.states[:, :2], axis=1))

    @property
    def clearances(self) -> Array:
        """(N, H) [m] distances of the bodies from the edges of the hazards, negative inside."""
        return np.asarray(np.linalg.norm(self.hazards - self.states[:, None, :2], axis=2)) - RADIUS

    @override
    def begin(self, seeds: Mapping[int, int | None]) -> npt.NDArray[Any]:
        for index, seed in seeds.items():
            self._draw(index, self._generators.seeded(index, seed))
        return self.observe()[list(seeds)]

    @override
    def step(self, control: npt.NDArray[Any], seeds: Mapping[int, int | None]) -> BatchStep:
        before = self.distances
        self.states = self.body.move(self.states, control.astype(np.float64))
        terms = {"progress": before - self.distances, "time": np.full(self.num_envs, -LOSS)}
        success = self.distances < REACHED
        terms["goal"] = success.astype(np.float64)
        costs = {"hazard": np.asarray((self.clearances < 0.0).any(1), np.float64)}
        for index, seed in seeds.items():
            self._draw(index, self._generators.seeded(index, seed))
        rewards = terms["progress"] + terms["time"] + terms["goal"]
        return BatchStep(self.observe(), rewards, success, success=success.copy(), reward_terms=terms, costs=costs)

    def observe(self) -> npt.NDArray[np.float32]:
        """Return the observations (N, D) float32, the arrays of the spec side by side."""
        places = self.states[:, None, :2]
        seen = [*self.body.measure(self.states), self.goals - self.states[:, :2]]
        seen += [(self.hazards - places).reshape(self.num_envs, -1), self.clearances]
        return np.concatenate(seen, 1).astype(np.float32)

    def _draw(self, index: int, random: np.random.Generator) -> None:
        """Draw a world: one hazard lies across the way, the others beside it, none on start or goal."""
        start, goal = np.array([-1.5, random.uniform(-0.5, 0.5)]), np.array([1.5, random.uniform(-0.5, 0.5)])
        middle = (start + goal) / 2 + [random.uniform(-0.3, 0.3), random.uniform(-0.2, 0.2)]
        centres = [middle]
        while len(centres) < HAZARDS:
            drawn = random.uniform([-1.6, -2.0], [1.6, 2.0])
            ends = min(np.linalg.norm(drawn - start), np.linalg.norm(drawn - goal)) - RADIUS
            if ends > 0.5 and min(np.linalg.norm(drawn - other) for other in centres) > 2 * RADIUS + 0.3:
                centres.append(drawn)
        heading = random.uniform(-0.3, 0.3)
        self.states[index] = [*start, 0.0, 0.0, heading]
        self.goals[index], self.hazards[index] = goal, centres

    @override
    def render(self) -> Sequence[npt.NDArray[np.uint8]]:
        return [self._drawn(index) for index in range(self.num_envs)]

    def _drawn(self, index: int) -> npt.NDArray[np.uint8]:
        picture = np.full((PIXELS, PIXELS, 3), 245, np.uint8)
        scale = PIXELS / (2 * HALF)

        def pixel(place: Array) -> tuple[int, int]:
            return round(float((place[0] + HALF) * scale)), round(float((HALF - place[1]) * scale))

        for centre in self.hazards[index]:
            cv2.circle(picture, pixel(centre), round(RADIUS * scale), (235, 140, 120), -1, cv2.LINE_AA)
        cv2.circle(picture, pixel(self.goals[index]), round(REACHED * scale), (90, 180, 110), -1, cv2.LINE_AA)
        x, y, *_, heading = self.states[index]
        ahead = np.array([x + 0.25 * np.cos(heading), y + 0.25 * np.sin(heading)])
        if isinstance(self.body, Car):
            cv2.line(picture, pixel(self.states[index]), pixel(ahead), (40, 40, 40), 3, cv2.LINE_AA)
        cv2.circle(picture, pixel(self.states[index]), round(0.08 * scale), (50, 80, 200), -1, cv2.LINE_AA)
        return picture

    @override
    def state_dict(self) -> StateDict:
        arrays = {name: getattr(self, name).copy() for name in ("states", "goals", "hazards")}
        return {**arrays, "generators": self._generators.states()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.states, self.goals, self.hazards = (np.array(state[name]) for name in ("states", "goals", "hazards"))
        self._generators.restore(state["generators"])

    @override
    def close(self) -> None:
        """Do nothing: the simulation holds nothing that must be closed."""


class HazardSimulation(Simulation):
    """Simulation of one world with hazards: a batch of size 1."""

    def __init__(self, task: str, limit: float | str = 3.0) -> None:
        if task not in BODIES:
            raise InvalidSetting("Unknown task.", got=task, allowed=", ".join(BODIES))
        self.batch = HazardBatch(task, 1, limit)
        self.spec = self.batch.spec
        self._layout = VectorLayout(self.spec.observation.arrays)
        self.scripted_policy = self._expert

    @override
    def reset(self, seed: int | None) -> Arrays:
        return self._layout.split(self.batch.begin({0: seed})[0])

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        step = self.batch.step(action[None], {})
        assert step.success is not None
        terms = {name: float(values[0]) for name, values in step.reward_terms.items()}
        costs = {name: float(values[0]) for name, values in step.costs.items()}
        observation, won = self._layout.split(step.vectors[0]), bool(step.success[0])
        return SimulationStep(observation, float(step.rewards[0]), won, success=won, reward_terms=terms, costs=costs)

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        return self.batch.render()[0]

    @override
    def close(self) -> None:
        """Do nothing: the simulation holds nothing that must be closed."""

    def barriers(self) -> Barriers:
        """Return a discrete-time barrier of each hazard (Agrawal and Sreenath 2017): h' >= (1 - APPROACH) h.

        h is the distance to the edge, n points away from the hazard. The next distance is at least h + PERIOD n (v + PERIOD a),
        because a circle lies behind its tangent, so that n a >= -(APPROACH h / PERIOD + n v) / PERIOD is enough.
        """
        state = self.batch.states[0]
        away = state[:2] - self.batch.hazards[0]
        distance = np.linalg.norm(away, axis=1)
        normal = away / np.maximum(distance, 1e-9)[:, None]
        bound = -(APPROACH * (distance - RADIUS) / PERIOD + normal @ state[2:4]) / PERIOD
        return Barriers(normal @ self.batch.body.effect(state), bound, self.batch.body.control(state, np.zeros(2)))

    def _expert(self, seed: int, noise: float = 0.0) -> HazardExpert:
        return HazardExpert(self.spec, self.batch.body, seed, noise)


class HazardExpert(Stateful):
    """Scripted expert: drives to the goal, but along the tangent of a hazard that is near and ahead."""

    margin = 0.25
    """[m] distance kept from hazards."""

    def __init__(self, spec: EnvironmentSpec, body: Body, seed: int, noise: float) -> None:
        self.environment_spec, self._body, self._noise = spec, body, noise
        self._random = np.random.default_rng(seed)

    def reset(self) -> None:
        """Do nothing: each action follows from the observation alone."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> npt.NDArray[np.float32]:
        """Return an action (A,) in [-1, 1], with noise unless `deterministic`."""
        wanted = TOP_SPEED * self._direction(np.asarray(observation["goal_from_agent"], float), observation)
        action = self.environment_spec.action.to_normalized(self._body.control(self._state(observation), wanted))
        noise = 0.0 if deterministic else self._random.normal(0.0, self._noise, action.shape)
        return np.asarray(np.clip(action + noise, -1.0, 1.0), np.float32)

    def _direction(self, goal: Array, observation: Observation) -> Array:
        """Return the unit vector (2,) of the way: tangents of circles around hazards between here and the goal."""
        ahead = goal / max(float(np.linalg.norm(goal)), 1e-9)
        hazards = np.asarray(observation["hazards_from_agent"], float).reshape(-1, 2)
        radius = RADIUS + self.margin
        for centre in sorted(hazards, key=lambda place: float(np.linalg.norm(place))):
            along, across = float(centre @ ahead), float(ahead[0] * centre[1] - ahead[1] * centre[0])
            if 0.0 < along < np.linalg.norm(goal) and abs(across) < radius:
                distance = max(float(np.linalg.norm(centre)), 1e-9)
                turn = np.arcsin(min(1.0, radius / distance)) * (-1.0 if across > 0 else 1.0)
                x, y = centre / distance
                return np.array([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)])
        return ahead

    def _state(self, observation: Observation) -> Array:
        place = observation["position"]
        if isinstance(self._body, Point):
            return np.array([*place, *observation["velocity"], 0.0])
        facing, speed = observation["heading"], observation["speed"][0]
        return np.array([*place, *(speed * facing), np.arctan2(facing[1], facing[0])])

    @override
    def state_dict(self) -> StateDict:
        return {"random": self._random.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._random.bit_generator.state = state["random"]


def _tasks() -> Iterable[str]:
    return tuple(BODIES)


def _simulate(task: str, limit: float | str = 3.0) -> Simulation:
    """limit: of the cost "hazard", in steps per episode."""
    return HazardSimulation(task, limit)


def _batch(task: str, num_envs: int, threads: int, limit: float | str = 3.0) -> SimulationBatch:
    """Return N worlds; `threads` is unused, the rules run in numpy."""
    del threads
    return HazardBatch(task, num_envs, limit)


FAMILY = TaskFamily("hazards", _tasks, _simulate, _batch, drawing=("render_mode",))
"""Family of the environments "hazards/...": a point mass and a car among hazards, with a constraint cost."""
