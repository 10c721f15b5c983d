"""highway-env beside the stand-in, for `robo-rl bench drive`: a light simulator of motorways that many papers use.

It is another simulator: no client and server, simpler roads and cars. What is measured is one frame of 0.05 s of one driven
car and 20 others, with a list of the nearest cars or a picture as its observation.
"""

from __future__ import annotations

import importlib.util
import os
import time
from typing import Any

import gymnasium
import numpy as np

NAME = "highway-env"
STRAIGHT_ON = np.zeros(2)


def is_installed() -> bool:
    """Whether it can be measured."""
    return importlib.util.find_spec("highway_env") is not None


class Motorway:
    """An episode of highway-env after another; how long they take to begin does not count."""

    def __init__(self, cars: int, picture: int, frames: float) -> None:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # it draws with pygame
        observation: dict[str, Any] = {"type": "Kinematics"}
        if picture:
            shape, weights = (picture, picture), [0.3, 0.6, 0.1]
            observation = {"type": "GrayscaleObservation", "observation_shape": shape, "stack_size": 1, "weights": weights}
        config = {
            "observation": observation,
            "action": {"type": "ContinuousAction"},
            "vehicles_count": cars,
            "simulation_frequency": frames,
            "policy_frequency": frames,
            "offscreen_rendering": True,
        }
        gymnasium.register_envs(importlib.import_module("highway_env"))
        self.environment = gymnasium.make("highway-v0", config=config, disable_env_checker=True).unwrapped
        self.environment.reset(seed=0)

    def close(self) -> None:
        """Ends it."""
        self.environment.close()

    def driven(self, seconds: float) -> tuple[int, float, float]:
        """Returns how many frames there were, in which time [s] and which time of the processor [s]."""
        frames, taken, used = 0, 0.0, 0.0
        while taken < seconds:
            started, busy = time.perf_counter(), time.process_time()
            _, _, terminated, truncated, _ = self.environment.step(STRAIGHT_ON)
            frames, taken, used = frames + 1, taken + time.perf_counter() - started, used + time.process_time() - busy
            if terminated or truncated:
                self.environment.reset()
        return frames, taken, used

    def trial(self, seconds: float) -> float:
        """Returns frames per second."""
        frames, taken, _ = self.driven(seconds)
        return frames / taken

    def busy(self, seconds: float) -> float:
        """Returns the processor time of a frame [us]."""
        frames, _, used = self.driven(seconds)
        return 1e6 * used / frames
