"""Commands that tests of clusters begin and wait for, and the processes below them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from robo_datasets.dataset import Dataset
from robo_rl.runs.checkpoints import checkpoint_steps

REACH = ["record", "robo/ArmReach-v0", "--noise", "0.1", "--environment.arguments.max_steps", "60"]


def long(steps: int) -> list[str]:
    """Returns the words of a training of so many steps: a hundred or more of them take a second."""
    words = ["arm-reach-sac", "--steps", str(steps), "--learner.replay.learning-starts", "30", "--evaluation.every", "0"]
    return [*words, "--checkpoint-every", "100", "--evaluation.episodes", "2", "--evaluation.videos", "0"]


LONG = long(1500)


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    found, new = [], [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found += new
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def hosts(pid: int) -> list[int]:
    """Returns the workers of ours below a process."""
    return [child for child in descendants(pid) if b"ray::Host" in Path(f"/proc/{child}/cmdline").read_bytes()]


def robo_rl(*words: str, before: Sequence[str] = (), group: int | None = None, **environment: str) -> subprocess.Popen[bytes]:
    """Begins a command; what it prints goes into a file, because processes of a cluster may hold a pipe longer than it does.

    before: words of another command that is to run it. group: 0 for a group of processes of its own.
    """
    with Path("told").open("w") as told:
        command = [*before, sys.executable, "-m", "robo_cli.main", *words]
        return subprocess.Popen(command, stdout=told, stderr=told, env={**os.environ, **environment}, process_group=group)


def ended(process: subprocess.Popen[bytes], limit: float = 600.0) -> tuple[int, str]:
    """Returns status and words of a command."""
    return process.wait(limit), Path("told").read_text()


def until(holds: Callable[[], object], process: subprocess.Popen[bytes] | None = None, limit: float = 300.0) -> None:
    deadline = time.monotonic() + limit
    while not holds():
        assert process is None or process.poll() is None, Path("told").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def reached(folder: str, seed: int) -> int:
    runs = [run for below in ("", "arm-reach-sac-seeds/runs/") for run in Path(folder).glob(f"{below}*-{seed}/checkpoints")]
    return max((step for run in runs for step in checkpoint_steps(run)), default=0)


def recorded(folder: str) -> int:
    return len(Dataset(Path(folder))) if Path(folder, "catalogue.sqlite").exists() else 0


def returns(folder: str) -> dict[str, list[float]]:
    found = Path(folder).rglob("*/evaluation.json")
    return {path.parent.name[-1]: json.loads(path.read_text())["returns"] for path in found}
