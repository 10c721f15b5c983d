"""Films of recorded episodes, drawn afterwards: an episode is replayed from its seed and its executed actions.

Drawing afterwards keeps rendering out of the evaluation's time and lets successes and failures be chosen, once they are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import av
import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.errors import RenderingUnavailable
from robo_rl.spec import specification
from robo_rl.types import Episode

Frame = npt.NDArray[np.uint8]
"""(H, W, 3) RGB"""

UNTIMED_RATE = 8.0
"""[1/s] Frames where the environment has no control period, such as grid worlds."""


@dataclass(frozen=True)
class VideoRequest:
    """Which episodes to film, and where to."""

    folder: Path
    name: str = "evaluation"
    """Beginning of each file name."""
    episodes: int = 4
    """At most so many; half of them failures where there are both."""
    quality: int = 26
    """Constant rate factor of H.264: less is sharper and larger; 23 is x264's default."""
    longest: float = 20.0
    """[s] of a film; what comes later is not drawn."""

    def choose(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Returns the first successes and failures, as evenly as there are."""
        good = [episode for episode in episodes if episode.success]
        bad = [episode for episode in episodes if not episode.success]
        failures = min(len(bad), max(self.episodes // 2, self.episodes - len(good)))
        return good[: self.episodes - failures] + bad[:failures]


def film(environment: gymnasium.Env[Any, Any], episodes: Sequence[Episode], request: VideoRequest) -> dict[int, Path]:
    """Writes one mp4 per chosen episode at the control rate and returns seed -> path; raises RenderingUnavailable."""
    if environment.render_mode != "rgb_array":
        raise RenderingUnavailable(
            "The environment does not draw.", got=f"render_mode={environment.render_mode!r}", allowed="'rgb_array'"
        )
    request.folder.mkdir(parents=True, exist_ok=True)
    period = specification(environment).action.control_period
    rate = 1.0 / period if period else UNTIMED_RATE
    films = {}
    for episode in request.choose(episodes):
        assert episode.seed is not None
        outcome = {True: "success", False: "failure", None: "episode"}[episode.success]
        films[episode.seed] = request.folder / f"{request.name}-seed{episode.seed}-{outcome}.mp4"
        frames = islice(replayed_frames(environment, episode), round(request.longest * rate))
        write_mp4(films[episode.seed], frames, rate, quality=request.quality)
    return films


def replayed_frames(environment: gymnasium.Env[Any, Any], episode: Episode) -> Iterator[Frame]:
    """Yields T+1 pictures of an episode while it is replayed."""
    environment.reset(seed=episode.seed)
    yield _picture(environment)
    for action in episode.actions:
        environment.step(action)
        yield _picture(environment)


def write_mp4(path: Path, frames: Iterator[Frame], rate: float, *, quality: int = 26) -> None:
    """Writes H.264 in yuv420p, which every browser plays; an odd last row or column is dropped."""
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream = None
        for frame in frames:
            if stream is None:
                stream = container.add_stream("libx264", rate=Fraction(rate).limit_denominator(1000))
                stream.height, stream.width = (side // 2 * 2 for side in frame.shape[:2])
                stream.pix_fmt = "yuv420p"
                stream.options = {"crf": str(quality), "preset": "veryfast"}
                stream.thread_count = 1
            picture = np.ascontiguousarray(frame[: stream.height, : stream.width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        if stream is not None:
            container.mux(stream.encode())


def read_frames(path: Path, shares: Sequence[float]) -> list[Frame]:
    """Returns the pictures at these shares of a film's length, 0 the first and 1 the last."""
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


def _picture(environment: gymnasium.Env[Any, Any]) -> Frame:
    picture = environment.render()
    if not isinstance(picture, np.ndarray) or picture.ndim != 3:
        raise RenderingUnavailable("render() returned no picture.", got=type(picture).__name__, allowed="uint8 (H, W, 3)")
    return picture
