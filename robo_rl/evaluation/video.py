"""Films of recorded episodes: an episode is replayed from its seed and its executed actions, and rendered.

Rendering afterwards takes no time from the evaluation, and successes and failures can be chosen once they are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.errors import RenderingUnavailable, optional
from robo_rl.spec.environment import specification
from robo_rl.system.durable_files import drafted
from robo_rl.types import Episode

if TYPE_CHECKING:
    import av

Frame = npt.NDArray[np.uint8]
"""One picture of a film, (H, W, 3) uint8 RGB."""

UNTIMED_RATE = 8.0
"""[1/s] steps per second in a film of an environment without a control period, such as a grid world."""
HOLD = 0.6
"""[s] for which the last picture is shown, so that the end of the episode can be seen."""
RENDER_MODES = ("rgb_array_list", "rgb_array")
"""Render modes that can be filmed, best first: a list also has the pictures between two steps."""


@dataclass(frozen=True)
class VideoRequest:
    """Request for films of an evaluation: which episodes to film, and where to write the films."""

    folder: Path
    """Folder of the films."""
    name: str = "evaluation"
    """First part of each film's file name."""
    episodes: int = 4
    """Largest number of films; half of them show failures if there are both successes and failures."""
    quality: int = 26
    """Constant rate factor of H.264: less is sharper and larger; 23 is x264's default."""
    longest: float = 20.0
    """Largest length of a film [s]; later steps are not drawn. An environment may set another length as `film_seconds` in its
    metadata."""
    stage: Callable[[], gymnasium.Env[Any, Any]] | None = None
    """Makes an environment for rendering; None to use the environment of the evaluation, which must then have a render mode."""

    def choose(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Return the episodes to film: the first successes and the first failures, in equal numbers if possible."""
        good = [episode for episode in episodes if episode.success]
        bad = [episode for episode in episodes if not episode.success]
        failures = min(len(bad), max(self.episodes // 2, self.episodes - len(good)))
        return good[: self.episodes - failures] + bad[:failures]


def film(environment: gymnasium.Env[Any, Any], episodes: Sequence[Episode], request: VideoRequest) -> dict[int, Path]:
    """Write an mp4 in real time for each chosen episode; return seed -> path. Raises RenderingUnavailable."""
    if request.stage is None:
        return _film(environment, episodes, request)
    stage = request.stage()
    try:
        return _film(stage, episodes, request)
    finally:
        stage.close()


def render_mode_for_films(environment: gymnasium.Env[Any, Any]) -> str:
    """Return the first of RENDER_MODES that the environment offers; "rgb_array" if it declares none."""
    offered = environment.metadata.get("render_modes", ())
    return next((mode for mode in RENDER_MODES if mode in offered), "rgb_array")


def decisions_per_second(environment: gymnasium.Env[Any, Any]) -> float:
    """Return the control rate of the environment [1/s]; UNTIMED_RATE if it has no control period."""
    period = specification(environment).action.control_period
    return 1.0 / period if period else UNTIMED_RATE


def rendered(environment: gymnasium.Env[Any, Any]) -> list[Frame]:
    """Return the pictures (H, W, 3) uint8 since the call before, or one in the mode "rgb_array".

    Raises RenderingUnavailable.
    """
    drawn = environment.render()
    pictures: list[Any] = drawn if isinstance(drawn, list) else [drawn]
    for picture in pictures:
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise RenderingUnavailable(
                "render() returned no picture.", got=type(picture).__name__, allowed="uint8 (H, W, 3), or a list of it"
            )
    return pictures


def replayed_frames(environment: gymnasium.Env[Any, Any], episode: Episode) -> Iterator[list[Frame]]:
    """Replay an episode, and yield T+1 lists of pictures: those of its start, then those of each step."""
    environment.reset(seed=episode.seed)
    yield rendered(environment)
    for action in episode.actions:
        environment.step(action)
        yield rendered(environment)


def write_mp4(path: Path, frames: Iterator[Frame], rate: float, *, quality: int = 26, hold: float = 0.0) -> None:
    """Write frames (H, W, 3) as H.264 in yuv420p, which every browser plays; an odd last row or column is dropped.

    The file appears under its name only when it is complete; on a full disk there is none.

    Args:
        path: File to write.
        frames: Pictures of the same size.
        rate: Pictures per second.
        quality: Constant rate factor of H.264; less is sharper and larger.
        hold: Time for which the last picture is shown [s].
    """
    with optional("A film", "av", "films"):
        import av  # takes longer to import than all else of an evaluation

    per_second = Fraction(rate).limit_denominator(1000)
    with drafted(path) as draft, av.open(str(draft), "w", options={"movflags": "faststart"}) as container:
        stream = None
        for index, frame in enumerate(frames):
            if stream is None:
                stream = container.add_stream("libx264", rate=per_second)
                stream.height, stream.width = (side // 2 * 2 for side in frame.shape[:2])
                stream.pix_fmt = "yuv420p"
                # Without B-frames, whose order would hide the pause before the last picture from the length of the film.
                stream.options = {"crf": str(quality), "preset": "veryfast", "bf": "0"}
                stream.thread_count = 1
            picture = np.ascontiguousarray(frame[: stream.height, : stream.width])
            container.mux(stream.encode(_timed(picture, index, 1 / per_second)))
        if stream is not None:
            if hold > 0.0:
                container.mux(stream.encode(_timed(picture, index + max(1, round(hold * rate)), 1 / per_second)))
            container.mux(stream.encode())


def read_frames(path: Path, shares: Sequence[float]) -> list[Frame]:
    """Return the pictures at the given shares of a film's length, from 0 (first) to 1 (last); raises OSError, MissingExtra."""
    with optional("A film", "av", "films"):
        import av

    try:
        with av.open(str(path)) as container:
            last = container.streams.video[0].frames - 1
            wanted = [round(share * last) for share in shares]
            # One at a time: a whole film of decoded pictures may not fit in memory.
            kept = {
                index: np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
                for index, frame in enumerate(container.decode(video=0))
                if index in wanted
            }
        return [kept[index] for index in wanted]
    except (av.FFmpegError, IndexError, KeyError) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _film(environment: gymnasium.Env[Any, Any], episodes: Sequence[Episode], request: VideoRequest) -> dict[int, Path]:
    if environment.render_mode not in RENDER_MODES:
        raise RenderingUnavailable(
            "The environment does not draw.", got=f"render_mode={environment.render_mode!r}", allowed=RENDER_MODES
        )
    request.folder.mkdir(parents=True, exist_ok=True)
    films = {}
    for episode in request.choose(episodes):
        assert episode.seed is not None
        outcome = {True: "success", False: "failure", None: "episode"}[episode.success]
        films[episode.seed] = request.folder / f"{request.name}-seed{episode.seed}-{outcome}.mp4"
        moments = replayed_frames(environment, episode)
        start, first = next(moments), next(moments)
        rate = decisions_per_second(environment) * max(1, len(first))
        longest = environment.metadata.get("film_seconds", request.longest)
        frames = islice(chain(start, first, chain.from_iterable(moments)), round(longest * rate))
        write_mp4(films[episode.seed], frames, rate, quality=request.quality, hold=HOLD)
    return films


def _timed(picture: Frame, time: int, unit: Fraction) -> av.VideoFrame:
    import av

    frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
    frame.pts, frame.time_base = time, unit
    return frame
