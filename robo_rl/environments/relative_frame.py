"""Relative frames of the hand: observations relative to its pose at the reset, commands relative to its present pose.

Luo et al. 2024, "Precise and Dexterous Robotic Manipulation via Human-in-the-Loop Reinforcement Learning" (arXiv:2410.21845).
Let T_o be the pose of the hand at the reset and T its present pose. Positions and orientations are observed as T_o^-1 T ..., in
the frame "start". Differences, axes and velocities are observed along the axes of the hand, in the frame "end_effector", and
displacements are commanded in that frame. A policy trained at one place of a table then acts alike at another.

Differs from the authors' code, whose adjoint matrix mixes displacement and turn: here both are rotated separately. Entries
without a frame, such as joint angles, stay absolute: leave them out of the policy's observations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.protocols.planning import replan
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.types import Array

BASE, START, HAND = "base", "start", "end_effector"
POSITION, ORIENTATION = "end_effector_position", "end_effector_quaternion"
VECTORS = ("_from_", "_axis", "_velocity")
"""Parts of the names of entries that have a direction but no position."""
DISPLACEMENT, TURN = ("dx", "dy", "dz"), "turn"
Matrix = npt.NDArray[np.float64]


class RelativeFrame(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper of an arm's environment: observations and actions are relative to the pose of the hand."""

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        """Wrap an environment; raises InvalidSetting unless it observes the pose of a hand in the frame of the base."""
        super().__init__(environment)
        self._inner = specification(environment)
        self.environment_spec = _relative(self._inner)
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        self._moved = [self._inner.action.names.index(name) for name in DISPLACEMENT]
        self._turned = self._inner.action.names.index(TURN) if TURN in self._inner.action.names else None
        self._start: tuple[Matrix, Array] = (np.eye(3), np.zeros(3))
        self.seen: Observation = {}
        """The newest observation in the frame of the base."""

    def reset(self, **arguments: Any) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; the present pose of the hand becomes the frame "start"."""
        self.seen, info = super().reset(**arguments)
        self._start = _rotation(self.seen[ORIENTATION]), np.asarray(self.seen[POSITION], np.float64)
        return self._observed(), info

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Command a displacement along the axes of the hand; it is clipped to the limits along the axes of the base."""
        hand = _rotation(self.seen[ORIENTATION])
        self.seen, reward, terminated, truncated, info = super().step(self.commanded(action, hand))
        if "executed_action" in info:
            info = {**info, "executed_action": self.commanded(info["executed_action"], hand.T)}
        return self._observed(), reward, terminated, truncated, info

    def scripted_policy(self, seed: int, noise: float = 0.0) -> Policy:
        """Return the task's expert; it observes the environment in the frame of the base."""
        return _Expert(self, self.env.get_wrapper_attr("scripted_policy")(seed=seed, noise=noise))

    def commanded(self, action: Any, rotation: Matrix) -> Array:
        """Return an action (A,) with its displacement rotated by `rotation` (3, 3), clipped to [-1, 1].

        The turn about the vertical changes its sign if the rotation turns the z axis upside down; other elements are unchanged.
        """
        found = np.array(action, np.float64)
        found[self._moved] = rotation @ found[self._moved]
        if self._turned is not None:  # about the hand's z axis, which stands upright in the frame of the base
            found[self._turned] *= np.sign(rotation[2, 2]) or 1.0
        clipped: Array = np.clip(found, -1.0, 1.0).astype(self._inner.action.dtype)
        return clipped

    def _observed(self) -> Observation:
        (start, origin), hand = self._start, _rotation(self.seen[ORIENTATION])
        found: dict[str, Array] = {}
        for name, array in self.environment_spec.observation.items():
            value = self.seen[name]
            if array.frame == HAND:
                value = hand.T @ value
            elif array.frame == START and array.shape == (4,):
                value = _between(start, _rotation(value))
            elif array.frame == START:
                value = start.T @ (value - origin)
            found[name] = np.asarray(value, array.dtype)
        return found


class _Expert:
    """Expert that decides in the frame of the base; its action is converted to the frame of the hand."""

    def __init__(self, environment: RelativeFrame, expert: Policy) -> None:
        self._environment, self._expert = environment, expert

    @property
    def environment_spec(self) -> EnvironmentSpec:
        return self._environment.environment_spec

    def reset(self) -> None:
        self._expert.reset()

    def replan(self) -> None:
        replan(self._expert)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        seen = self._environment.seen
        action = self._expert.act(seen, deterministic=deterministic)
        return self._environment.commanded(action, _rotation(seen[ORIENTATION]).T)


def _relative(spec: EnvironmentSpec) -> EnvironmentSpec:
    action, observed = spec.action, spec.observation
    pose = [observed[name].frame for name in (POSITION, ORIENTATION) if name in observed]
    if pose != [BASE, BASE] or action.frame != BASE or not set(DISPLACEMENT) <= set(action.names):
        raise InvalidSetting(
            f"{spec.name} has no frame of a hand.",
            got=f"action {action.names} in the frame {action.frame!r}, poses in {pose}",
            allowed=f"displacements {DISPLACEMENT} and the hand's pose in the frame {BASE!r}",
        )
    highest = {action.high[action.names.index(name)] for name in DISPLACEMENT}
    lowest = {-action.low[action.names.index(name)] for name in DISPLACEMENT}
    if len(highest | lowest) != 1:
        raise InvalidSetting("Displacements have other limits along other axes.", got=(action.low, action.high), allowed="one")
    arrays = tuple(_moved(array) for array in observed.values())
    return replace(spec, observation=ObservationSpec(arrays), action=replace(action, frame=HAND))


def _moved(array: ArraySpec) -> ArraySpec:
    if array.frame != BASE or array.shape not in ((3,), (4,)):
        return array
    return replace(array, frame=HAND if any(word in array.name for word in VECTORS) else START, low=-np.inf, high=np.inf)


def _rotation(quaternion: Any) -> Matrix:
    """Return the rotation matrix (3, 3) of a quaternion (w, x, y, z)."""
    w, x, y, z = (float(value) for value in quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _between(start: Matrix, now: Matrix) -> Array:
    """Return the rotation from `start` to `now`, both (3, 3), as a quaternion (w, x, y, z) with w >= 0."""
    turn = start.T @ now
    w = np.sqrt(max(0.0, 1 + np.trace(turn))) / 2
    if w > 0.1:
        axis = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
        return np.array([w, *axis / (4 * w)])
    values, vectors = np.linalg.eigh(turn + turn.T)  # near half a turn: the axis is the invariant direction
    axis = vectors[:, np.argmax(values)]
    sine = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) @ axis
    return np.array([w, *axis * np.sqrt(1 - w * w) * (1.0 if sine >= 0 else -1.0)])
