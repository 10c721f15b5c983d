"""Embed films in the page: the mp4 while there is room, after that a row of pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from robo_rl.errors import MissingExtra
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.video import Frame, read_frames
from robo_rl.report.reading import RecordedRun

ROOM = 12_000_000  # [bytes] of all embedded films: pages beyond that are slow to open on a phone
POSTER = 1.0  # share of the film at which its poster is taken: the end shows the result
STRIP = 6  # pictures of a film strip
STRIP_WIDTH = 240  # [pixels] of one of them


@dataclass(frozen=True)
class Film:
    """A film of an episode as the report shows it: the mp4, or a row of pictures in its place."""

    caption: str
    outcome: str
    """Outcome of the episode: "success", "failure" or "" if unknown."""
    poster: str
    """Picture shown before the film plays, as a data URL."""
    source: str | None
    """Data URL of the mp4; None if it is too large for the page."""
    strip: list[str]
    """Pictures that replace a film for which there is no room, as data URLs."""


def embed_films(runs: Sequence[RecordedRun]) -> list[Film]:
    """Return the films of all evaluations of finished policies, successes first."""
    found = []
    room = ROOM
    for run, label, evaluation, seed, path in _listed(runs):
        size = path.stat().st_size
        try:
            found.append(_film(label, evaluation, seed, path, embed=size <= room))
        except (OSError, MissingExtra) as error:
            run.warnings.append(f"{path.name} cannot be read: {error}")
            continue
        room -= size if size <= room else 0
    return found


def _listed(runs: Sequence[RecordedRun]) -> list[tuple[RecordedRun, str, Evaluation, int, Path]]:
    listed = []
    for run in runs:
        for label, evaluation in run.judged:
            for seed, name in evaluation.videos.items():
                path = run.path / "videos" / Path(name).name
                if path.is_file():
                    listed.append((run, label, evaluation, seed, path))
                else:
                    run.warnings.append(f"The film {path.name} is missing.")
    return sorted(listed, key=lambda item: not _success(item[2], item[3]))


def _success(evaluation: Evaluation, seed: int) -> bool | None:
    return evaluation.successes[evaluation.seeds.index(seed)] if seed in evaluation.seeds else None


def _film(label: str, evaluation: Evaluation, seed: int, path: Path, *, embed: bool) -> Film:
    success = _success(evaluation, seed)
    outcome = {True: "success", False: "failure", None: ""}[success]
    details = [label, f"evaluation seed {seed}"]
    if seed in evaluation.seeds:
        index = evaluation.seeds.index(seed)
        details += [f"{evaluation.lengths[index]} steps", f"return {evaluation.returns[index]:.3g}"]
        details += [f"ended by {evaluation.stop_reasons[index]}"]
    return embed_film(path, " · ".join(details), outcome, embed=embed)


def embed_film(path: Path, caption: str, outcome: str = "", *, embed: bool = True) -> Film:
    """Return a film for a page; embed: False for a row of pictures in its place.

    Raises OSError if it cannot be read, MissingExtra without the package for films.
    """
    poster, *strip = read_frames(path, [POSTER, *([] if embed else np.linspace(0.0, 1.0, STRIP))])
    return Film(
        caption=caption,
        outcome=outcome,
        poster=_jpeg(poster),
        source=f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}" if embed else None,
        strip=[_jpeg(_narrow(frame)) for frame in strip],
    )


def _narrow(frame: Frame) -> Frame:
    height, width = frame.shape[:2]
    size = (STRIP_WIDTH, max(1, height * STRIP_WIDTH // width))
    return np.asarray(cv2.resize(frame, size, interpolation=cv2.INTER_AREA), np.uint8)


def _jpeg(frame: Frame) -> str:
    _, data = cv2.imencode(".jpg", frame[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 82])
    return f"data:image/jpeg;base64,{base64.b64encode(data.tobytes()).decode()}"
