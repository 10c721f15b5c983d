"""Measures what a replay memory of pictures takes: `python -m robo_policies.replay_peak [rows]`.

Each memory is filled, and ours are saved, in a process of its own with transitions of one 84x84 camera; the growth of that
process's peak resident memory counts. Of a mapped memory only what belongs to no file counts: the system takes mapped pages
back when it needs them.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.buffers import DictReplayBuffer

from robo_rl.checkpoints import Checkpoint, save_checkpoint
from robo_rl.memory import InMemory, Mapped, Storage
from robo_rl.replay import ReplayBuffer
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Transition

PIXELS = EnvironmentSpec(
    "pixels",
    ObservationSpec((ArraySpec("camera_front", (84, 84, 3), "uint8", 0, 255, role="image"),)),
    ActionSpec(("a",), (-1.0,), (1.0,), ("1",)),
)
MEGABYTE = 1e6  # bytes
EPISODE = 100
"""Steps of an episode: one row in a hundred is its last observation."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: str
    unit: str
    ours: float
    peers: dict[str, float]


def measure(rows: int = 10_000) -> list[Row]:
    """Returns the peak of memories of that many rows, filled and saved, beside their stated size and Stable-Baselines3's."""
    stated = ReplayBuffer.bytes_at_capacity(PIXELS, rows) / MEGABYTE
    peers = {"stated beforehand": stated, "stable-baselines3, not saved": _growth(_fill_stable_baselines, rows, "VmHWM")}
    case = f"replay of {rows} pictures 84x84"
    return [
        Row(f"{case} in RAM", "MB at the peak", _growth(_fill_ours, rows, "VmHWM"), peers),
        Row(f"{case} mapped", "MB at the end", _growth(_fill_mapped, rows, "RssAnon"), peers),
    ]


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
    return np.full((84, 84, 3), number % 256, np.uint8)


def _megabytes(field: str) -> float:
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024 / MEGABYTE


def main(rows: int) -> None:
    """Prints one line per case."""
    for row in measure(rows):
        peers = "  ".join(f"{name} {value:.0f}" for name, value in row.peers.items())
        sys.stdout.write(f"{row.case:42} {row.unit}: ours {row.ours:.0f}  {peers}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
