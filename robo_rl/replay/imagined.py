"""Imagined episodes, made from an episode that was played, in replay memories of single steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.sampling import StepMemory
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Transition

IMAGINED = "imagined_episodes"
"""Key in `info` at the end of an episode: imagined episodes, lists of transitions."""


class ImaginedBuffer(ReplayBuffer):
    """Replay memory of steps that a world model imagined (robo_rl.worlds): none of them was executed anywhere."""


def remember_imagined(
    memory: StepMemory, episodes: Iterable[Sequence[Transition]], spec: EnvironmentSpec, *, waits: bool
) -> None:
    """Store imagined episodes in a replay memory; raises InvalidSetting if their observations do not fit the spec.

    Args:
        memory: Replay memory.
        episodes: Imagined episodes, lists of transitions.
        spec: Spec of the memory.
        waits: True if a reward model labels steps later. Imagined steps get no labels, so that this raises InvalidSetting.
    """
    for episode in episodes:
        shapes = {name: np.shape(episode[0].observation[name]) for name in spec.observation}
        if waits or shapes != {name: entry.shape for name, entry in spec.observation.items()}:
            raise InvalidSetting(
                "Imagined episodes cannot be kept here.",
                got="a reward model" if waits else f"observations of {shapes}",
                allowed="the environment's own reward, and no frame stack",
                fix="counterfactual: false",
            )
        memory.begin(episode[0].observation)
        for transition in episode:
            memory.add(transition)
