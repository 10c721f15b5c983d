"""Measures, for `robo-rl bench robot`, what a line of the audit log costs the arm's process, also if the disk hangs."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from robo_bench.measurement import Cases, Effort, Measurement
from robo_real.audit_log import AuditLog

LINES = 2000
PAUSE = 2e-4
"""[s] between two lines"""
ASKED = {"action": [0.1, -0.2, 0.3, 0.0, 1.0], "answers": 1234.567}
DONE = {"executed": [0.1, -0.2, 0.3, 0.0, 1.0], "reasons": ["speed"], "mode": "running"}


def cases(effort: Effort) -> Cases:
    """Return the cases; each takes about a second."""
    names = {"audit log, a line, 99 %": False, "audit log, a line while the disk hangs, 99 %": True}
    return {name: partial(_line, name, hangs) for name, hangs in names.items()}


def _line(name: str, hangs: bool) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        took = times(Path(folder), hangs=hangs)
    return Measurement("robot", name, "us", 1e6 * float(np.percentile(took, 99)))


def times(folder: Path, *, hangs: bool) -> list[float]:
    """Return the times [s] that lines take. hangs: the writer stands still meanwhile, as in a write that does not return."""
    log, took = AuditLog(folder / "audit.jsonl"), []
    writer = log.writer_pid
    assert writer is not None
    if hangs:
        os.kill(writer, signal.SIGSTOP)
    for _ in range(LINES):
        start = time.perf_counter()
        log.add_command("/robo/apply", "measurement", ASKED, DONE)
        took.append(time.perf_counter() - start)
        time.sleep(PAUSE)
    os.kill(writer, signal.SIGCONT)
    log.close()
    return took
