"""Films of the episodes of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import gymnasium

from robo_app.playback.playback import Moment, episode_of
from robo_rl.evaluation.video import HOLD, Frame, decisions_per_second, write_mp4
from robo_rl.protocols.components import Policy


def write_film(
    environment: gymnasium.Env[Any, Any], policy: Policy, path: Path, seeds: Sequence[int], *, deterministic: bool, speed: float
) -> list[Moment]:
    """Write a film of one episode for each seed, one after another.

    Args:
        environment: Environment with a render mode.
        policy: The policy.
        path: File of the film, .mp4.
        seeds: Reset seeds of the episodes.
        deterministic: True for the most likely actions, False for samples.
        speed: Speed of the film, as a multiple of the environment's own rate.

    Returns:
        Last moment of each episode.
    """
    outcomes: list[Moment] = []

    def decisions() -> Iterator[list[Frame]]:
        for seed in seeds:
            for pictures, moment in episode_of(environment, policy, seed, deterministic=deterministic):
                yield pictures
                outcomes.extend([moment] if moment.stop_reason is not None else [])
            if seed != seeds[-1]:  # as `hold` does for the end of the film
                still = round(HOLD * decisions_per_second(environment) * max(1, len(pictures)) * speed)
                yield pictures[-1:] * still

    played = decisions()
    start, first = next(played), next(played)
    rate = decisions_per_second(environment) * max(1, len(first)) * speed
    path.parent.mkdir(parents=True, exist_ok=True)
    write_mp4(path, chain(start, first, chain.from_iterable(played)), rate, hold=HOLD)
    return outcomes
