"""The wrapper `planned`: a driving task whose action is a plan, one of four speeds and of three ways, held for some seconds.

After Jiang et al. 2025, "AlphaDrive: Unleashing the Power of VLMs in Autonomous Driving via Reinforcement Learning and
Reasoning", arXiv:2503.07608, without its language model and in closed loop: a plan is driven, not compared with a recorded one.
An episode is one plan from a state in the middle of a route, which the seed gives; so a group of episodes with one seed is a
group of plans from one snapshot. With `whole` it is a whole route.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.measures import Measure
from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.types import MEASURES, StateDict
from robo_sims.carla.driver import CORRIDOR, REACH, ScriptedDriver, Seen, line_of, pedal
from robo_sims.carla.termination import GOAL

SPEEDS = ("keep", "faster", "slower", "stop")
WAYS = ("lane", "left", "right")
PLANS = tuple(f"{speed}_{way}" for speed in SPEEDS for way in WAYS)
LANE = 3.5
"""[m] distance from the route to the lane beside it."""
CHANGE = 5.0
"""[m/s] difference of speed by which a plan is faster or slower than now."""
SIGHT = 40.0
"""[m] distance ahead within which something on the route counts as in the way."""
PREFIX_NOISE = 0.2
"""Share of random plans on the way to the state from which an episode begins."""
VALID = 0.2
"""Reward of a plan that can be driven at all."""
MEASURED = (
    Measure("progress", "1", "share of the pace that the plans of the episode held, in the mean"),
    Measure("invalid", "1", "share of its plans to a lane that there is not"),
)


class PlannedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Driving environment whose actions are plans; each is executed for `horizon` steps by a tracker.

    The reward is 0 for an invalid plan, else 0.2 + w * (safe + (1 - safe) * progress). The second term is 0 after an
    infraction.
    """

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        *,
        horizon: int = 30,
        pace: float = 10.0,
        safe: float = 0.3,
        prefix: int = 3,
        weights: Mapping[str, float] | None = None,
        whole: bool = False,
    ) -> None:
        """Raise InvalidSetting, UnknownName for settings out of range.

        horizon: steps for which a plan is held. pace: [m/s] progress of 1; no plan is faster. safe: worth of standing without
        an infraction. prefix: most plans of the script before it. weights: name of a speed or a way -> w, if something is in
        the way ahead. whole: an episode is a route, plan by plan.
        """
        super().__init__(environment)
        spec = specification(environment)
        if spec.action.names != ("steer", "longitudinal"):
            raise InvalidSetting("Plans are of a driving task.", got=spec.name, allowed="a driving task of carla")
        for name, value, low in (("horizon", horizon, 1), ("prefix", prefix, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise InvalidSetting(f"{name} is out of range.", got=value, allowed=f"an integer from {low}")
        if not 0 < pace < np.inf or not 0 <= safe <= 1:
            raise InvalidSetting("pace or safe is out of range.", got=(pace, safe), allowed="above 0, and 0 to 1")
        self._weights = dict(weights or {})
        for name, weight in self._weights.items():
            if name not in (*SPEEDS, *WAYS):
                raise UnknownName("part of a plan", name, (*SPEEDS, *WAYS))
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < np.inf:
                raise InvalidSetting(f"The weight of {name} is out of range.", got=weight, allowed="0 or more")
        self._horizon, self._pace, self._safe, self._prefix, self._whole = horizon, pace, safe, prefix, bool(whole)
        lanes = ArraySpec("lanes", (2,), low=0.0, high=1.0, role="object", meaning="1 for a lane to the left, to the right")
        self.environment_spec: EnvironmentSpec = replace(
            spec,
            name=f"planned:{spec.name}",
            observation=ObservationSpec((*spec.observation.arrays, lanes)),
            action=ActionSpec(PLANS, mode="discrete", control_period=horizon * (spec.action.control_period or 0.1)),
            max_steps=-(-(spec.max_steps or 1) // horizon) if whole else 1,
            success_rule=spec.success_rule if whole else "the plan can be driven, and ends without an infraction",
        )
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        self.measures = MEASURED
        self._tracker = Tracker(spec, seed=0, noise=0.0)
        self._now: Observation = {}
        self._progress, self._invalid = list[float](), list[bool]()
        self._is_open = False

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._tracker.reset()
        self._progress, self._invalid = [], []
        self._now = observation
        if not self._whole:
            drawn = int(self.unwrapped.np_random.integers(2**31)) if seed is None else seed
            plans, info = int(np.random.default_rng([drawn, 4]).integers(self._prefix + 1)), dict(info)
            while plans and not self._is_driven(plans, drawn):  # the route ended before: one plan fewer
                plans -= 1
                self._now, info = self.env.reset(seed=drawn, options=options)
        self._is_open = True
        kept = {key: value for key, value in info.items() if key == "instruction"}
        return self._seen(), kept | {"success": False}

    def _is_driven(self, plans: int, seed: int) -> bool:
        """Drive plans of the script, a fifth of them by chance; returns False if an episode ends on the way."""
        script = self.scripted_policy(seed, PREFIX_NOISE)
        for _ in range(plans):
            terminated, truncated, _, _ = self._driven(int(script.act(self._seen())))
            if terminated or truncated:
                return False
        return True

    def _driven(self, number: int) -> tuple[bool, bool, dict[str, Any], bool]:
        """Drive a plan; return the ends of its last step, its facts, and False for a lane that there is not."""
        speed_name, way = PLANS[number].split("_")
        is_valid = way == "lane" or bool(self._lanes()[WAYS.index(way) - 1])
        offset = {"lane": 0.0, "left": -LANE, "right": LANE}[way] if is_valid else 0.0
        speed = float(self._now["velocity"][0])
        faster, slower = min(speed + CHANGE, self._pace), max(speed - CHANGE, 0.0)
        target = {"keep": speed, "faster": faster, "slower": slower, "stop": 0.0}[speed_name]
        terminated = truncated = False
        info: dict[str, Any] = {}
        for _ in range(self._horizon):
            controls = self._tracker.controls(self._now, target, offset)
            self._now, _, terminated, truncated, info = self.env.step(controls)
            if terminated or truncated:
                break
        return terminated, truncated, info, is_valid

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        number = int(self.environment_spec.action.validate(action))
        if not self._is_open:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun: call reset() before step().")
        blocked, before = is_blocked(self._now), self._along()
        terminated, truncated, info, is_valid = self._driven(number)
        reached = info.get("stop_reason") == GOAL
        period = self._horizon * (specification(self.env).action.control_period or 0.1)
        progress = 1.0 if reached else float(np.clip((self._along() - before) / (self._pace * period), 0.0, 1.0))
        is_safe = not terminated or reached
        weight = float(np.prod([self._weights.get(part, 1.0) for part in PLANS[number].split("_")])) if blocked else 1.0
        accuracy = weight * (self._safe + (1.0 - self._safe) * progress) * is_safe
        terms = {"valid": VALID * is_valid, "accuracy": accuracy * is_valid}
        self._progress.append(progress)
        self._invalid.append(not is_valid)
        success = reached if self._whole else is_safe and is_valid
        kept = {key: value for key, value in info.items() if key in ("stop_reason", "problem")}
        measures = {"progress": float(np.mean(self._progress)), "invalid": float(np.mean(self._invalid))}
        found = {"success": success, "reward_terms": terms, MEASURES: measures, **kept}
        is_over = terminated or not self._whole
        self._is_open = not (is_over or truncated)
        found |= {"stop_reason": kept.get("stop_reason", "goal" if success else "failure")} if is_over and not truncated else {}
        return self._seen(), sum(terms.values()), is_over and not truncated, truncated, found

    def scripted_policy(self, seed: int, noise: float = 0.0) -> ScriptedPlanner:
        """Return a scripted expert that changes lanes before an obstacle, to the left four times of five.

        noise: share of random plans.
        """
        return ScriptedPlanner(self.environment_spec, seed=seed, noise=noise)

    def _along(self) -> float:
        """Return the place along the route [m]."""
        return float(self.unwrapped.situation.place.s)  # type: ignore[attr-defined]  # of DrivingEnv

    def _lanes(self) -> npt.NDArray[np.float32]:
        """Return 1 for a lane beside the route that leads the same way, to the left and to the right."""
        driving: Any = self.unwrapped
        ego, place = driving.scene.ego, driving.situation.place
        across = np.array([-np.sin(place.heading), np.cos(place.heading)])  # to the right
        middle = np.array([ego.x, ego.y]) - place.offset * across
        sides = [middle + offset * across for offset in (-LANE, LANE)]
        roads = driving.roads
        is_lane = [roads.is_road(*side) and not roads.is_oncoming(*side, place.heading) for side in sides]
        return np.array(is_lane, np.float32)

    def _seen(self) -> Observation:
        return {**self._now, "lanes": self._lanes()}


def is_blocked(observation: Observation) -> bool:
    """Return True if another road user stands on the route ahead, nearer than SIGHT."""
    line = line_of(observation)
    for there, x, y, *_ in observation["others"].tolist():
        if there and 0 < x < SIGHT:
            along, away = project(line, x, y)
            if away < CORRIDOR and along < SIGHT:
                return True
    return False


class Tracker(ScriptedDriver):
    """Controller that drives at a given speed and a given distance beside the route."""

    def controls(self, observation: Observation, target: float, offset: float) -> npt.NDArray[np.float32]:
        """Return the controls (steer, longitudinal), float32, that lead to a speed and a lateral position.

        Args:
            observation: Observation of the driving environment.
            target: Wanted speed [m/s].
            offset: Wanted distance to the right of the route [m].
        """
        line = line_of(observation)
        steps = np.diff(line, axis=0)
        right = np.stack([-steps[:, 1], steps[:, 0]], 1) / np.maximum(np.hypot(*steps.T), 1e-6)[:, None]
        beside = {**observation, "route": observation["route"] + offset * right}
        speed = float(observation["velocity"][0])
        wanted = min(target, self._in_bends(Seen(beside)))
        return np.clip([self._steer(beside, speed), pedal(wanted, speed)], -1.0, 1.0).astype(np.float32)


class ScriptedPlanner(Stateful):
    """Scripted expert for plans: holds its lane, and leaves it for another one before an obstacle."""

    def __init__(self, spec: EnvironmentSpec, *, seed: int, noise: float) -> None:
        self.environment_spec, self._noise = spec, noise
        self._random = np.random.default_rng(seed)

    def reset(self) -> None:
        """Do nothing: the expert has no memory."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> npt.NDArray[np.int64]:
        """Return the number of the plan that the expert chooses, an int64 scalar."""
        if not deterministic and self._random.random() < self._noise:
            return np.asarray(self._random.integers(len(PLANS)))
        speed = "faster" if observation["velocity"][0] < 8.0 else "keep"
        way = "lane"
        if is_blocked(observation):
            left, right = (bool(lane) for lane in observation["lanes"])
            ways = [side for side, is_one in (("left", left), ("right", right)) if is_one] or ["lane"]
            way = ways[0] if len(ways) == 1 or self._random.random() < 0.8 else ways[1]
            speed = "stop" if way == "lane" else speed
        return np.asarray(PLANS.index(f"{speed}_{way}"))

    @override
    def state_dict(self) -> StateDict:
        return {"random": self._random.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._random.bit_generator.state = state["random"]


@dataclass(frozen=True)
class PlannedWrapper(EnvironmentWrapper):
    """Settings of the wrapper `planned`: drive by plans, each chosen as one action and held for some steps."""

    changes = ("name", "observation", "action", "max_steps", "success_rule")

    horizon: int = 30
    """Number of steps for which a plan is held."""
    pace: float = 10.0
    """[m/s] Speed that counts as a progress of 1; no plan is faster."""
    safe: float = 0.3
    """Part of a plan's reward, 0 to 1, that it gets without progress if there was no infraction."""
    prefix: int = 3
    """Largest number of scripted plans that are driven before an episode begins."""
    weights: dict[str, float] = field(default_factory=dict)
    """Name of a speed or a way -> weight w of the reward of its plans, if something is in the way ahead."""
    whole: bool = False
    """True if an episode is a whole route, plan by plan; False if it is one plan."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> PlannedEnv:
        return PlannedEnv(environment, **vars(self))


def project(line: npt.NDArray[np.float64], x: float, y: float) -> tuple[float, float]:
    """Project a position onto a route: return the distance along the route and the distance from it [m].

    Args:
        line: (N, 2) points of the route [m].
        x: Position [m].
        y: Position [m].
    """
    start, step = line[:-1], np.diff(line, axis=0)
    share = ((x - start[:, 0]) * step[:, 0] + (y - start[:, 1]) * step[:, 1]) / np.maximum((step**2).sum(1), 1e-6)
    share = np.clip(share, 0.0, 1.0)
    away = np.hypot(start[:, 0] + share * step[:, 0] - x, start[:, 1] + share * step[:, 1] - y)
    nearest = int(np.argmin(away))
    return float(REACH[nearest] + share[nearest] * (REACH[nearest + 1] - REACH[nearest])), float(away[nearest])
