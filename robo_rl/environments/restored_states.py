"""Bring an environment into a state of a recorded episode, by playing its seed and actions again.

Every simulator here repeats an episode bit for bit, with time limits and random generators. So none need save its state.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from robo_rl.errors import InvalidSetting, SimulationFailed
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import Episode

CLOSE = 1e-3
"""Largest difference between a restored and a recorded observation; processors round differently."""


def require_teacher(environment: gymnasium.Env[Any, Any], recorded: EnvironmentSpec) -> None:
    """Raise SpecMismatch if the teacher was recorded with another spec, InvalidSetting if the environment is a robot."""
    spec = specification(environment)
    recorded.require_interface(spec, what="The teacher was recorded in another environment")
    if not getattr(environment.unwrapped, "replays", True):
        got, fix = spec.name, "leave hints out"
        raise InvalidSetting("States of a robot cannot be restored.", got=got, allowed="a simulation", fix=fix)


def restored(
    environment: gymnasium.Env[Any, Any], episode: Episode, steps: int, options: dict[str, Any] | None = None
) -> tuple[Observation, dict[str, Any]]:
    """Bring an environment into the state of an episode after `steps` steps, and return (observation, info).

    Raises SimulationFailed if the observation differs from the recorded one.
    """
    is_over = False
    observation, info = environment.reset(seed=episode.seed, options=options)
    for action in episode.actions[:steps]:
        observation, _, terminated, truncated, info = environment.step(action)
        is_over |= terminated or truncated
    there = {name: (observation[name], values[steps]) for name, values in episode.observations.items() if name in observation}
    alike = [np.allclose(*pair, CLOSE, 0.1 * CLOSE) for pair in there.values() if np.shape(pair[0]) == np.shape(pair[1])]
    if is_over or not all(alike):  # stacks of frames differ in shape, and are left out
        raise SimulationFailed(
            f"A state of the teacher cannot be restored in {specification(environment).name}.",
            got=f"another state after {steps} steps of the episode with seed {episode.seed}",
            allowed="the recorded one",
            fix="record the teacher again, with the simulator and the arguments of this training",
        )
    return observation, {"instruction": info["instruction"]} if "instruction" in info else {}
