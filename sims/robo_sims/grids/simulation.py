"""Single environments of MiniGrid and BabyAI; the mission is the instruction of the episode."""

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
from minigrid.minigrid_env import MiniGridEnv
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_sims.grids.cells import CHANNELS, Encoding, look_of
from robo_sims.simulation import Arrays, Simulation, SimulationStep


class MiniGridSimulation(Simulation):
    """One grid world. The agent observes the cells in its view and its direction, but not its position.

    encoding: "codes" for MiniGrid's three numbers of each cell, or "one-hot".
    """

    def __init__(self, task: str, encoding: Encoding = "codes") -> None:
        gymnasium.register_envs(minigrid)
        made = gymnasium.make(task, render_mode="rgb_array", disable_env_checker=True)
        assert isinstance(made.unwrapped, MiniGridEnv)
        self._environment = made.unwrapped
        self._channels = None if _require(encoding) == "codes" else CHANNELS[encoding]
        size = self._environment.agent_view_size
        is_level = isinstance(self._environment, RoomGridLevel)  # BabyAI levels draw a time limit per mission
        self.spec = EnvironmentSpec(
            f"minigrid/{task}",
            ObservationSpec(
                (
                    _grid_entry(size, encoding),
                    ArraySpec(
                        "direction",
                        (4,),
                        low=0.0,
                        high=1.0,
                        frame="world",
                        meaning="where the agent looks, one-hot: right (+x), down (+y), left (-x), up (-y)",
                    ),
                )
            ),
            ActionSpec(tuple(action.name for action in Actions), mode="discrete"),
            version=int(task.rpartition("-v")[2]),
            max_steps=None if is_level else self._environment.max_steps,
            success_rule="the episode ends with a positive reward",
        )

    @override
    def reset(self, seed: int | None) -> Arrays:
        with contextlib.redirect_stdout(io.StringIO()):  # BabyAI prints every rejected draw
            observation, _ = self._environment.reset(seed=seed)
        self.instruction = observation["mission"]
        return self._flat(observation)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Take the discrete action with this number.

        An episode that terminates with a positive reward is a success. Any other termination, such as in lava, is a failure.
        """
        observation, reward, terminated, truncated, _ = self._environment.step(int(action))
        success = bool(terminated) and float(reward) > 0.0
        return SimulationStep(self._flat(observation), float(reward), bool(terminated), bool(truncated), success)

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        return np.asarray(self._environment.render())

    @property
    @override
    def layout(self) -> str:
        return f"{self.source.hash(64)} {self.source.mission}"

    @property
    def source(self) -> Any:
        """The environment of MiniGrid itself, for experiments and privileged views; a policy must not use it."""
        return self._environment

    @override
    def close(self) -> None:
        self._environment.close()

    def _flat(self, observation: dict[str, Any]) -> Arrays:
        direction = np.zeros(4, np.float32)
        direction[observation["direction"]] = 1.0
        image = observation["image"]
        if self._channels is None:
            return {"grid": image.astype(np.uint8), "direction": direction}
        codes = image.astype(np.int32)
        return {"grid": self._channels[look_of(codes[..., 0], codes[..., 1], codes[..., 2])], "direction": direction}


def _grid_entry(size: int, encoding: Encoding) -> ArraySpec:
    if encoding == "codes":
        meaning = "object, colour and state number of each cell in view (MiniGrid's); not a picture"
        return ArraySpec("grid", (size, size, 3), "uint8", 0, max(OBJECT_TO_IDX.values()), frame="ego", meaning=meaning)
    meaning = "one-hot object, colour and state of each cell in view (MiniGrid's), one after the other; not a picture"
    return ArraySpec("grid", (size, size, CHANNELS[encoding].shape[1]), low=0.0, high=1.0, frame="ego", meaning=meaning)


def _require(encoding: str) -> str:
    if encoding not in CHANNELS:
        raise InvalidSetting("Unknown encoding of a grid.", got=repr(encoding), allowed=sorted(CHANNELS))
    return encoding
