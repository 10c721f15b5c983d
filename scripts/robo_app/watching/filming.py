"""Film of a run's newest episode, made in a process of its own while the training goes on.

python -m robo_app.watching.filming RUN EPISODE.npz OUT.mp4
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import gymnasium
import numpy as np

from robo_app.recipes.recipe import EnvironmentSettings
from robo_datasets.packed_pictures import size_of_jpeg
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, RenderingUnavailable, RoboRLError
from robo_rl.evaluation.video import HOLD, UNTIMED_RATE, Frame, decisions_per_second, render_mode_for_films, rendered, write_mp4
from robo_rl.runs.newest_episode import Kind, NewestEpisode
from robo_rl.runs.run import Run
from robo_rl.settings import settings_as
from robo_rl.types import AS_PROPOSED

NICE = 10
LONGEST = 20.0
"""Largest length of a film [s]; later steps are left out."""
HEIGHT = 480
"""Largest height of a film [pixel]."""
MOST_PIXELS = 1 << 25
"""Largest size of a recorded picture [pixel], that of 8K video; a larger one counts as damaged."""
BORDER, ORANGE = 6, (230, 120, 0)
"""Border [pixel] and its RGB colour, around the pictures of steps that a person or a guard commanded."""


def film_newest(run: Run, file: Path, out: Path) -> None:
    """Write an MP4 film of a run's newest episode.

    It is made of the recorded pictures. If there are none, the episode is simulated again from its seed and actions.

    Args:
        run: The run that the episode belongs to.
        file: File that the training writes its newest episode to, .npz.
        out: File of the film, .mp4.

    Raises:
        RenderingUnavailable: The film cannot be made; the message says why.
    """
    newest = NewestEpisode.read(file)
    if newest is None:
        raise RenderingUnavailable("The episode cannot be read.", got=file.name, fix="wait for the next one")
    if newest.pictures:
        period = run.spec.action.control_period
        rate = (1.0 / period if period else UNTIMED_RATE) / newest.stride
        write_mp4(out, islice(_recorded(newest), round(LONGEST * rate)), rate, hold=HOLD)
    elif newest.replays:
        _film_again(run, newest, out)
    else:
        raise RenderingUnavailable("This environment does not repeat an episode, and has no camera.", got=run.spec.name)


def _recorded(newest: NewestEpisode) -> Iterator[Frame]:
    """Yield one frame for each recorded moment, with the pictures of all cameras beside each other."""
    for moment, coded in enumerate(zip(*newest.pictures.values(), strict=True)):
        pictures = [_decoded(each) for each in coded]
        height = max(picture.shape[0] for picture in pictures)
        yield _marked(np.hstack([_scaled(picture, height) for picture in pictures]), newest, moment * newest.stride - 1)


def _decoded(jpeg: bytes) -> Frame:
    size = size_of_jpeg(jpeg)
    if size is None or size[0] * size[1] > MOST_PIXELS:  # before decoding: it may declare 65,535 x 65,535
        raise RenderingUnavailable("A picture of the episode is damaged.", got=f"{size} pixels in {len(jpeg)} bytes")
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        raise RenderingUnavailable("A picture of the episode is damaged.", got=f"{len(jpeg)} bytes")
    return np.asarray(picture[..., ::-1], np.uint8)


def _film_again(run: Run, newest: NewestEpisode, out: Path) -> None:
    with_mode = _maker(run, newest.kind)
    environment = with_mode()
    if environment.metadata.get("takes_server"):
        environment.close()
        what, fix = "A film would take the server from the training.", "evaluate with --videos afterwards"
        raise RenderingUnavailable(what, got=run.spec.name, fix=fix)
    mode = render_mode_for_films(environment)
    environment.close()
    stage = with_mode(render_mode=mode)
    try:
        moments = _replayed(stage, newest)
        start, first = next(moments), next(moments, [])
        rate = decisions_per_second(stage) * max(1, len(first))
        frames = (frame for part in ([start, first], moments) for drawn in part for frame in drawn)
        write_mp4(out, islice(frames, round(LONGEST * rate)), rate, hold=HOLD)
    finally:
        stage.close()


def _replayed(stage: gymnasium.Env[Any, Any], newest: NewestEpisode) -> Iterator[list[Frame]]:
    stage.reset(seed=newest.seed)
    yield [_small(each) for each in rendered(stage)]
    for step, action in enumerate(newest.actions):
        stage.step(action)
        yield [_marked(_small(each), newest, step) for each in rendered(stage)]


def _maker(run: Run, kind: Kind) -> Any:
    """Return a function that makes the environment of an episode; it imports none of the learner's packages."""
    recipe = run.recipe
    try:
        place, judged = settings_as(EnvironmentSettings, recipe["environment"], source="environment"), recipe.get("evaluation")
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidSetting(f"The recipe of {run.path.name} names no environment.", got=error) from None
    if kind == "evaluation":
        place = place.in_evaluation((judged or {}).get("arguments") or {}, (judged or {}).get("wrappers") or ())
    return lambda **more: make_environment(place.name, **place.everything, **more)


def _scaled(picture: Frame, height: int) -> Frame:
    if picture.shape[0] == height:
        return picture
    size = max(2, round(picture.shape[1] * height / picture.shape[0])), height
    how = cv2.INTER_AREA if picture.shape[0] > height else cv2.INTER_NEAREST
    return np.asarray(cv2.resize(picture, size, interpolation=how), np.uint8)


def _small(picture: Frame) -> Frame:
    return _scaled(picture, min(picture.shape[0], HEIGHT))


def _marked(picture: Frame, newest: NewestEpisode, step: int) -> Frame:
    """Return a picture, with an orange border unless the policy commanded the step."""
    if not 0 <= step < len(newest.sources) or newest.sources[step] in AS_PROPOSED:
        return picture
    marked = picture.copy()
    for part in (marked[:BORDER], marked[-BORDER:], marked[:, :BORDER], marked[:, -BORDER:]):
        part[:] = ORANGE
    return marked


def main(path: str, file: str, out: str) -> int:
    """Write a film and return the exit status; print the reason and return 1 if it cannot be made."""
    os.nice(NICE)
    try:
        film_newest(Run(Path(path)), Path(file), Path(out))
    except RoboRLError as error:
        print(" ".join(str(error).split()))
        return 1
    except Exception as error:  # OpenGL, codecs and simulators fail in their own ways
        print(f"{type(error).__name__}: {' '.join(str(error).split())}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
