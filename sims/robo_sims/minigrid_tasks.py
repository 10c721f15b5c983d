"""MiniGrid and BabyAI: grid worlds seen from the agent, with the mission in words as the instruction."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import gymnasium
import minigrid
import numpy as np
import numpy.typing as npt
from minigrid.core.actions import Actions
from minigrid.core.constants import OBJECT_TO_IDX
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_sims.simulation import Arrays, SimulationEnvironment, SimulationStep
from robo_sims.task_family import TaskFamily


class MiniGridSimulation:
    """A grid world; the position on the map is not observed, only what the agent sees and where it looks."""

    mujoco = None

    def __init__(self, task: str) -> None:
        gymnasium.register_envs(minigrid)
        made = gymnasium.make(task, render_mode="rgb_array", disable_env_checker=True)
        self._environment: Any = made.unwrapped
        self.instruction: str | None = None
        size = self._environment.agent_view_size
        is_level = isinstance(self._environment, RoomGridLevel)  # BabyAI levels draw a new time limit for every mission
        self.spec = EnvironmentSpec(
            f"minigrid/{task}",
            ObservationSpec(
                (
                    # Object, colour and state number of each cell in view; not a picture.
                    ArraySpec("grid", (size, size, 3), "uint8", 0, max(OBJECT_TO_IDX.values()), frame="ego"),
                    # One-hot: right (+x), down (+y), left (-x), up (-y).
                    ArraySpec("direction", (4,), low=0.0, high=1.0, frame="world"),
                )
            ),
            ActionSpec(tuple(action.name for action in Actions), mode="discrete"),
            version=int(task.rpartition("-v")[2]),
            max_steps=None if is_level else self._environment.max_steps,
            success_rule="the episode ends with a positive reward",
        )

    def reset(self, seed: int | None) -> Arrays:
        """Begins an episode in a new world, with a mission of its own."""
        with contextlib.redirect_stdout(io.StringIO()):  # BabyAI prints every draw that it throws away
            observation, _ = self._environment.reset(seed=seed)
        self.instruction = observation["mission"]
        return self._flat(observation)

    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Acts; a terminal step with a positive reward is a success, lava and collisions are failures."""
        observation, reward, terminated, truncated, _ = self._environment.step(int(action))
        success = bool(terminated) and float(reward) > 0.0
        return SimulationStep(self._flat(observation), float(reward), bool(terminated), bool(truncated), success)

    def render(self) -> npt.NDArray[np.uint8]:
        """Returns a picture of the whole grid."""
        picture: npt.NDArray[np.uint8] = self._environment.render()
        return picture

    def close(self) -> None:
        """Frees the window that is never opened here."""
        self._environment.close()

    def _flat(self, observation: dict[str, Any]) -> Arrays:
        direction = np.zeros(4, np.float32)
        direction[observation["direction"]] = 1.0
        return {"grid": observation["image"].astype(np.uint8), "direction": direction}


def _tasks() -> list[str]:
    """Returns the newest version of each task, without MiniGrid-WFC, whose pattern pictures are missing from the package."""
    gymnasium.register_envs(minigrid)
    newest: dict[str, str] = {}
    for name, entry in gymnasium.registry.items():
        if name.startswith(("MiniGrid-", "BabyAI-")) and not name.startswith("MiniGrid-WFC-"):
            newest[entry.name] = max(name, newest.get(entry.name, name))
    return list(newest.values())


def _build(task: str, render_mode: str | None = None) -> SimulationEnvironment:
    return SimulationEnvironment(MiniGridSimulation(task), render_mode=render_mode)


FAMILY = TaskFamily("minigrid", _tasks, _build)
