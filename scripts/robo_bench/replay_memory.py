"""Measures what a replay memory of pictures takes, for `robo-rl bench memory`.

Each memory is filled, and ours are saved, in a process of its own with transitions of one 84x84 camera; the growth of that
process's peak resident memory counts. Of a mapped memory only what belongs to no file counts: the system takes mapped pages
back when it needs them.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.buffers import DictReplayBuffer

from robo_bench.measurement import Cases, Effort, Measurement, times_better
from robo_rl.checkpoints import Checkpoint, save_checkpoint
from robo_rl.memory import InMemory, Mapped, Storage
from robo_rl.replay import ReplayBuffer
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Transition

SIZE = 84
"""[pixel] height and width of a picture."""
ROWS_PER_SECOND, MOST_ROWS = 5_000, 10_000
"""Of the memory, for the effort asked for; its size does not change between repeats, so there is one of each."""
PIXELS = EnvironmentSpec(
    "pixels",
    ObservationSpec((ArraySpec("camera_front", (SIZE, SIZE, 3), "uint8", 0, 255, role="image"),)),
    ActionSpec(("a",), (-1.0,), (1.0,), ("1",)),
)
MEGABYTE = 1e6  # bytes
EPISODE = 100
"""Steps of an episode: one row in a hundred is its last observation."""


def cases(effort: Effort) -> Cases:
    """Returns the peaks of a memory in RAM, beside its stated size and Stable-Baselines3's, not saved, and of a mapped one."""
    rows = int(min(MOST_ROWS, ROWS_PER_SECOND * effort.seconds))
    name = f"replay of {rows} pictures {SIZE}x{SIZE}"
    return {
        f"{name} in RAM": lambda: _in_ram(f"{name} in RAM", rows),
        f"{name} mapped: RAM of its own": lambda: _mapped(f"{name} mapped: RAM of its own", rows),
    }


def _in_ram(case: str, rows: int) -> Measurement:
    stated = ReplayBuffer.bytes_at_capacity(PIXELS, rows) / MEGABYTE
    ours, theirs = (_growth(fill, rows, "VmHWM") for fill in (_fill_ours, _fill_stable_baselines))
    return Measurement("memory", case, "MB", ours, {"sb3": theirs}, stated, times_better("MB", [ours], [theirs]))


def _mapped(case: str, rows: int) -> Measurement:
    page = 4096 / MEGABYTE  # a mapped memory may take less than one of its own
    return Measurement("memory", case, "MB", max(page, _growth(_fill_mapped, rows, "RssAnon")))


def _growth(fill: Callable[[int], None], rows: int, field: str) -> float:
    """Returns [MB] by which a field of /proc/self/status grows in a fresh process."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_fill_and_tell, args=(fill, rows, field, sending))
    process.start()
    sending.close()
    grown: float = receiving.recv()
    process.join()
    return grown


def _fill_and_tell(fill: Callable[[int], None], rows: int, field: str, answer: Any) -> None:
    fill(2)  # imports and caches
    before = _megabytes(field)
    fill(rows)
    answer.send(_megabytes(field) - before)


def _fill_ours(rows: int) -> None:
    _fill(rows, InMemory())


def _fill_mapped(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _fill(rows, Mapped(Path(folder)))


def _fill(rows: int, storage: Storage) -> None:
    replay = ReplayBuffer(PIXELS, rows, 0, storage)
    action = np.zeros(1, np.float32)
    for step in range(rows):
        before, after = ({"camera_front": _picture(number)} for number in (step, step + 1))
        if step % EPISODE == 0:
            replay.begin(before)
        replay.add(Transition(before, action, 0.0, after, False, step % EPISODE == EPISODE - 1, action))
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), Checkpoint(0, {"replay": replay.state_dict()}))
    _KEPT.append(replay)


def _fill_stable_baselines(rows: int) -> None:
    spaces = PIXELS.observation.space, gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    replay = DictReplayBuffer(rows, *spaces, device="cpu", handle_timeout_termination=False)
    for step in range(rows):
        before, after = ({"camera_front": _picture(number)[None]} for number in (step, step + 1))
        replay.add(before, after, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    _KEPT.append(replay)


_KEPT: list[object] = []
"""Alive until the answer is sent."""


def _picture(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.full((SIZE, SIZE, 3), number % 256, np.uint8)


def _megabytes(field: str) -> float:
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024 / MEGABYTE
