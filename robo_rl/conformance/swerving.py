"""Environment `Swerving`, in which `check_training` runs training loops: it has everything that careless loops get wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_rl.protocols.components import Policy
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation, ObservationSpec
from robo_rl.types import DIVERGED, ActionSource, Array

LENGTH, IMAGINED, SUCCESS, COST, DIVERGENCE = 5, 1, 2, 3, 4
"""Steps of an episode, and its steps (from 1 on) that is imagined, of success, of a cost and of a divergence."""
ZONE, CAMERA = "zone", "camera_front"
"""Names of the cost and of the picture in the observation."""
_PICTURE = 4, 4, 3
_KINDS = 8  # of episodes: one diverges, of the others half terminate


@dataclass
class Outcome:
    """Summary of one episode as the environment itself saw it, to compare with what the training reports."""

    length: int = 0
    """Number of steps."""
    episode_return: float = 0.0
    """Sum of rewards."""
    cost: float = 0.0
    """Sum of costs."""
    succeeded: bool = False
    """True from the step of success on."""
    diverged: bool = False
    """True if its last step diverged."""
    received: list[Array] = field(default_factory=list, compare=False)
    """Actions that the environment was given, one array per step."""


class Swerving(gymnasium.Env[Any, Any]):
    """Environment with episodes of five steps that executes another action than the given one.

    Its observations hold the executed action, so that stored transitions can be checked. Step 1 counts as imagined; success
    comes in step 2, a cost in step 3; some episodes diverge in step 4.
    """

    def __init__(self, *, is_discrete: bool = False, has_camera: bool = False, terminates: bool = True) -> None:
        """Prepare the first episode.

        Args:
            is_discrete: True for choices instead of continuous actions.
            has_camera: True to add a picture to the observations.
            terminates: True if half of the episodes end by termination, False if all end at the time limit.
        """
        self.environment_spec = _spec(is_discrete, has_camera)
        self._terminates = terminates
        self.observation_space, self.action_space = self.environment_spec.observation.space, self.environment_spec.action.space
        self.finished: list[Outcome] = []
        """Finished episodes, the oldest first."""
        self.steps = 0
        """Steps, over all episodes."""
        self._running, self._kind = Outcome(), 0

    def executed(self, action: Array) -> Array:
        """Return the action that is executed in place of `action`."""
        if self.environment_spec.action.is_discrete:
            return np.asarray((int(action) + 1) % self.environment_spec.action.size)
        return np.asarray(0.25 - 0.5 * np.asarray(action), np.float32)

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._kind, self._running = int(self.np_random.integers(_KINDS)), Outcome()
        return self._observe(np.zeros(self.environment_spec.action.size, np.float32)), {}

    @override
    def step(self, action: Array) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        executed, running = self.executed(action), self._running
        running.length += 1
        running.received.append(np.array(action))
        self.steps += 1
        running.diverged = self._kind == 0 and running.length == DIVERGENCE
        is_last, reward = running.length == LENGTH, 1.0 / 2**running.length
        terminated = is_last and self._kind % 2 == 1 and self._terminates
        running.succeeded |= running.length == SUCCESS
        running.cost += float(running.length == COST)
        running.episode_return += reward
        info: dict[str, Any] = {
            "executed_action": executed,
            "success": running.length == SUCCESS,
            "costs": {ZONE: float(running.length == COST)},
            "reward_terms": {"hint": reward},
        }
        info |= {"stop_reason": DIVERGED} if running.diverged else {}
        info |= {"action_source": int(ActionSource.IMAGINED)} if running.length == IMAGINED else {}
        if is_last or running.diverged:
            self.finished.append(running)
        seen = np.eye(self.environment_spec.action.size)[executed] if executed.ndim == 0 else executed
        return self._observe(seen), reward, terminated, (is_last and not terminated) or running.diverged, info

    def scripted_policy(self, seed: int, noise: float = 0.0) -> Policy:
        """Return an expert that proposes the same action in every step."""
        return _Still(self.environment_spec)

    def _observe(self, executed: Array) -> Observation:
        step = np.array([self._running.length / LENGTH, float(self._running.diverged)], np.float32)
        kind = np.array([self._kind % 2 == 1 and self._terminates], np.float32)
        seen = {"executed": np.asarray(executed, np.float32), "step": step, "kind": kind}
        has_camera = CAMERA in self.environment_spec.observation
        return seen | ({CAMERA: np.zeros(_PICTURE, np.uint8)} if has_camera else {})


class _Still:
    """A policy that proposes the same action in every step."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.environment_spec = spec

    def reset(self) -> None:
        """Do nothing."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the first choice, or the middle of the range."""
        action = self.environment_spec.action
        return np.asarray(0) if action.is_discrete else np.zeros(action.size, np.float32)


def _spec(is_discrete: bool, has_camera: bool) -> EnvironmentSpec:
    names = ("left", "stay", "right")[: 3 if is_discrete else 2]
    limits = {} if is_discrete else {"low": (-1.0,) * 2, "high": (1.0,) * 2, "units": ("1", "1")}
    action = ActionSpec(names, mode="discrete" if is_discrete else "joint_position", **limits)  # type: ignore[arg-type]
    arrays = [ArraySpec("executed", (action.size,)), ArraySpec("step", (2,)), ArraySpec("kind", (1,))]
    arrays += [ArraySpec(CAMERA, _PICTURE, "uint8", 0, 255, role="image")] if has_camera else []
    costs = (CostSpec(ZONE, 3.0),)
    return EnvironmentSpec("conformance/Swerving", ObservationSpec(tuple(arrays)), action, max_steps=LENGTH, costs=costs)


class Factory:
    """Callable that makes environments and keeps a list of all that it made."""

    def __init__(self, environment: Callable[[], Swerving]) -> None:
        self.environment, self.made = environment, list[Swerving]()

    def __call__(self) -> Swerving:
        """Return a new environment."""
        self.made.append(self.environment())
        return self.made[-1]

    @property
    def steps(self) -> int:
        """Steps over all environments."""
        return sum(each.steps for each in self.made)

    @property
    def finished(self) -> list[Outcome]:
        """Ended episodes of all environments."""
        return [outcome for each in self.made for outcome in each.finished]
