"""Scripted experts: a task plans motions from policy observations; `ScriptedPolicy` turns them into actions."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import StateDict
from robo_sims.arm.control import ControlMode, Motion


class Expert(Protocol):
    """Planner of one episode, drawn from a random generator so that demonstrations differ."""

    def motion(self, observation: Observation) -> Motion:
        """Return the motion of the gripper that the expert wants for the next control period."""


class ExpertFactory(Protocol):
    """Factory that makes the expert of one episode."""

    def __call__(self, random: np.random.Generator) -> Expert:
        """Return a new expert."""


class ScriptedPolicy(Stateful):
    """Expert in the actions of a control mode, with optional Gaussian noise."""

    def __init__(self, factory: ExpertFactory, control: ControlMode, spec: EnvironmentSpec, *, seed: int, noise: float) -> None:
        self.environment_spec = spec
        self._factory, self._control, self._noise = factory, control, noise
        self._random = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """Draw a new expert."""
        self._expert = self._factory(self._random)

    def act(self, observation: Observation, *, deterministic: bool = False) -> npt.NDArray[np.float32]:
        """Return an action (A,) in [-1, 1], with noise on every element unless `deterministic`."""
        action = self._control.encode(self._expert.motion(observation), observation)
        if deterministic or self._noise == 0:
            return action
        noisy = action + self._random.normal(0.0, self._noise, action.shape)
        return np.clip(noisy, -1.0, 1.0).astype(np.float32)

    @override
    def state_dict(self) -> StateDict:
        remembered = {name: np.asarray(value).copy() for name, value in vars(self._expert).items()}
        return {"random": self._random.bit_generator.state, "expert": remembered}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._random.bit_generator.state = state["random"]
        for name, value in state["expert"].items():
            setattr(self._expert, name, np.array(value) if np.ndim(value) else np.asarray(value).item())


def heading(observation: Observation) -> float:
    """Return the yaw [rad], up to full turns, of a downward hand: quaternion (0, cos yaw/2, sin yaw/2, 0)."""
    _, x, y, _ = observation["end_effector_quaternion"]
    return float(2 * np.arctan2(y, x))


def turn_to_faces(observation: Observation, fourfold: str) -> float:
    """Return the turn [rad] to the nearest faces of a square object.

    fourfold: observation (cos 4a, sin 4a). Of the four turns, the one that leaves the hand straightest.
    """
    yaw = heading(observation)
    turn = float(np.arctan2(observation[fourfold][1], observation[fourfold][0])) / 4
    return wrap(yaw + turn, np.pi / 2) - yaw


def wrap(angle: float, period: float) -> float:
    """Return the angle [rad] shifted by whole periods into [-period/2, period/2)."""
    return (angle + period / 2) % period - period / 2
