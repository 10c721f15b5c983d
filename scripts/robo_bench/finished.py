"""Runs of measurements that can be resumed."""

from __future__ import annotations

from pathlib import Path

import robo_rl
from robo_rl.runs.run import Run


def finished(runs: Path, name: str, seed: int) -> Run | None:
    """Return a run of that name and seed which was trained and evaluated, None if there is none."""
    for path in sorted(runs.glob(f"????????-??????-{name}-{seed}")):
        if (path / "evaluation.json").exists():
            return robo_rl.open_run(path)
    return None
