"""Fork a writer of checkpoints, SIGKILL it at a random moment, check what it left; again and again.

usage: kill_checkpoint_writer.py FOLDER TIMES      prints the number of kills, and how many of them hit a write
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step, {"learner": {"w": np.full(60_000, step)}, "replay": {"n": [step]}})


def newest(folder: Path) -> int:
    return max(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def is_writing(folder: Path) -> bool:
    return any(".tmp-" in path.name for path in folder.iterdir())


def await_true(condition: Callable[..., bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.0002)


def write_until_killed(folder: Path, step: int) -> None:
    while True:
        step += 1
        save_checkpoint(folder, checkpoint(step))


def main(folder: Path, times: int) -> None:
    dice = random.Random(0)
    save_checkpoint(folder, checkpoint(0))
    step = hits = 0
    for _ in range(times):
        child = os.fork()
        if child == 0:
            write_until_killed(folder, step)
        started = time.monotonic()
        await_true(lambda before=step: newest(folder) > before)
        duration = time.monotonic() - started
        # disks differ: the next write takes about as long as this one did, and the kill may fall anywhere into it
        await_true(lambda: is_writing(folder))
        time.sleep(dice.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        hits += is_writing(folder)
        loaded = load_checkpoint(folder)
        assert loaded.step > step, "the writer made no progress: this kill proves nothing"
        step = loaded.step
        assert (loaded.parts["learner"]["w"] == step).all(), "arrays of another step"
        assert loaded.parts["replay"]["n"] == [step], "parts of different steps"
    print(times, hits)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
