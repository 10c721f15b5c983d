"""Measure the memory that a replay of pictures takes, for `robo-rl bench memory`.

Each memory is filled, and ours are saved, in its own process with transitions of one 84x84 camera; the growth of that
process's peak resident memory counts. Of a mapped memory only pages of no file count: the system reclaims mapped pages
when it needs them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.buffers import DictReplayBuffer

from robo_bench.contestant import contestant
from robo_bench.episodes import camera, spec_of
from robo_bench.measurement import Case, Effort, Figures, Trial
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.storage import InMemory, Mapped, Storage
from robo_rl.runs.checkpoints import Checkpoint, save_checkpoint
from robo_rl.types import Transition

SIZE = 84
"""[pixel] height and width of a picture."""
ROWS_PER_SECOND, MOST_ROWS = 5_000, 10_000
"""Size of the measured replay memory [transitions]: rows for each second of requested effort, and the most rows.

The size is the same in all repeats, so each contestant has one memory that is filled once.
"""
PIXELS = spec_of("pixels", camera(SIZE))
MEGABYTE = 1e6  # bytes
EPISODE = 100
"""Steps of an episode: one row in a hundred is its last observation."""


def cases(effort: Effort) -> list[Case]:
    """Return two cases: peak memory of a replay memory in RAM, and of one in memory-mapped files.

    The first is compared with the size that it states itself, and with Stable-Baselines3's memory.
    """
    rows = int(min(MOST_ROWS, ROWS_PER_SECOND * effort.seconds))
    name = f"replay of {rows} pictures {SIZE}x{SIZE}"
    return [
        Case(f"{name} in RAM", "MB", lambda *_: _in_ram(rows)),
        Case(f"{name} mapped: its own RAM", "MB", lambda *_: _mapped(rows)),
    ]


def _in_ram(rows: int) -> Figures:
    ours, theirs = (growth(fill, rows, "VmHWM") for fill in ("fill_memory", "fill_stable_baselines"))
    ratio = theirs / ours
    return Figures(ours, {"sb3": theirs}, limit=stated_size(rows), ratio=ratio, ratios={"sb3": ratio})


def _mapped(rows: int) -> Figures:
    page = 4096 / MEGABYTE  # a mapped memory may take less than one own page
    return Figures(max(page, growth("fill_mapped", rows, "RssAnon")))


def stated_size(rows: int) -> float:
    """Return the size [MB] of a replay memory in RAM as the class itself calculates it.

    rows: number of transitions.
    """
    return ReplayBuffer.bytes_at_capacity(PIXELS, rows) / MEGABYTE


def growth(fill: str, rows: int, field: str) -> float:
    """Return by how much [MB] a field of /proc/self/status grows in a fresh process that fills a memory."""
    with contestant(f"{__name__}:filling", {"fill": fill, "rows": rows, "field": field}) as trial:
        return trial(0.0)


def filling(fill: str, rows: int, field: str) -> Trial:
    """Return a trial that fills a memory once and returns the growth [MB]."""
    filled = {"fill_memory": fill_memory, "fill_mapped": fill_mapped, "fill_stable_baselines": fill_stable_baselines}[fill]
    kept: list[object] = [filled(2)]  # imports and caches

    def trial(_: float) -> float:
        before = _megabytes(field)
        kept.append(filled(rows))
        return _megabytes(field) - before

    return trial


def fill_memory(rows: int, storage: Storage | None = None) -> object:
    """Return our replay memory, filled with `rows` transitions and saved.

    storage: where the memory keeps its arrays; None for RAM.
    """
    replay = ReplayBuffer(PIXELS, rows, 0, InMemory() if storage is None else storage)
    action = np.zeros(1, np.float32)
    for step in range(rows):
        before, after = ({"camera_front": _picture(number)} for number in (step, step + 1))
        if step % EPISODE == 0:
            replay.begin(before)
        replay.add(Transition(before, action, 0.0, after, False, step % EPISODE == EPISODE - 1, action))
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), Checkpoint(0, {"replay": replay.state_dict()}))
    return replay


def fill_mapped(rows: int) -> object:
    """Return our replay memory, filled with `rows` transitions in memory-mapped files and saved."""
    with tempfile.TemporaryDirectory() as folder:
        return fill_memory(rows, Mapped(Path(folder)))


def fill_stable_baselines(rows: int) -> object:
    """Return Stable-Baselines3's replay memory, filled with `rows` transitions."""
    spaces = PIXELS.observation.space, gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    replay = DictReplayBuffer(rows, *spaces, device="cpu", handle_timeout_termination=False)
    for step in range(rows):
        before, after = ({"camera_front": _picture(number)[None]} for number in (step, step + 1))
        replay.add(before, after, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    return replay


def _picture(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.full((SIZE, SIZE, 3), number % 256, np.uint8)


def _megabytes(field: str) -> float:
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024 / MEGABYTE
