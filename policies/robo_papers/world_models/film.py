"""Film of a recorded episode beside the same actions in a world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

from robo_papers.world_models.environment import Stage
from robo_papers.world_models.world import World
from robo_rl.evaluation.video import HOLD, UNTIMED_RATE, Frame, write_mp4
from robo_rl.types import Array, Episode
from robo_rl.worlds.steps import arrays_of, coded

GAP = 4  # [pixel] between the two pictures


def film_beside(world: World, episode: Episode, path: Path) -> Path:
    """Write a film: on the left the recorded observations, on the right those that the world imagines of the same actions.

    Raises RenderingUnavailable if the environment cannot draw observations, MissingExtra without the package for films.
    """
    period = world.spec.action.control_period
    with closing(Stage(world.facts, world.spec.name)) as stage:
        write_mp4(path, _frames(world, episode, stage), 1.0 / period if period else UNTIMED_RATE, hold=HOLD)
    return path


def imagined_path(world: World, episode: Episode) -> npt.NDArray[np.float32]:
    """Return the states (T + 1, S) that a learned world predicts from the first state and actions of a recorded episode.

    Each step takes the mean of the world's prediction.
    """
    actions, imagination = coded(world.spec, episode.actions), world.imagination
    states = [world.spec.observation.stack({name: values[:1] for name, values in episode.observations.items()})]
    for step in range(len(episode)):
        states.append(imagination.mean_step(states[-1], actions[step : step + 1])[0])
    return np.concatenate(states)


def _frames(world: World, episode: Episode, stage: Stage) -> Iterator[Frame]:
    path = imagined_path(world, episode)
    sound = int(np.isfinite(path).all(1).argmin()) if not np.isfinite(path).all() else len(path)
    imagined = arrays_of(world.spec, path[:sound])
    for step in range(sound):
        left, right = (stage.draw(_row(side, step)) for side in (episode.observations, imagined))
        gap = np.full((left.shape[0], GAP, 3), 255, np.uint8)
        yield np.concatenate([left, gap, right], 1)


def _row(observations: Mapping[str, Array], step: int) -> dict[str, Array]:
    return {name: values[step] for name, values in observations.items()}
