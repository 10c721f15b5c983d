"""Measure updates alone of learners with gradients: `python updates.py [--turns N] [--only CASE ...] [PYTHON ...]`.

Every measurement runs in a process of its own on one thread and counts processor time. Engines take turns, and so do
interpreters, those of other versions of the project among them; one without the setting `engine` has one row.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sac": ("sac", {}),
    "rlpd-2": ("rlpd", {"critics": 2, "updates_per_step": 1}),
    "rlpd-10": ("rlpd", {"critics": 10, "updates_per_step": 1}),
    "hil-serl": ("hil-serl", {}),
    "iql": ("iql", {}),
    "cql": ("cql", {}),
    "td3-bc": ("td3-bc", {}),
}
ENGINES = ("auto", "reference")
WARM_UP, UPDATES = 15, 60


def milliseconds(case: str, engine: str) -> float | None:
    """Return processor time of one update; None if this version has no such engine."""
    import torch

    from robo_bench.off_policy import SPEC
    from robo_rl.discovery import load
    from robo_rl.learner_conformance import random_batch

    use_threads: Callable[[int], None] = torch.set_num_threads
    with contextlib.suppress(ImportError):  # of an earlier version
        use_threads = importlib.import_module("robo_rl.threads").use_threads
    use_threads(1)
    name, settings = CASES[case]
    config = load("learners", name)(**settings)
    if hasattr(config, "engine"):
        config = replace(config, engine=engine)
    elif engine != "auto":
        return None
    learner = config.build(SPEC, 0)
    batch = random_batch(SPEC, config.batch_size * getattr(config, "updates_per_step", 1), seed=0)
    for _ in range(WARM_UP):
        learner.update(batch)
    started = time.process_time()
    for _ in range(UPDATES):
        learner.update(batch)
    return 1e3 * (time.process_time() - started) / UPDATES


def main() -> None:
    """Print medians of all turns, in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("interpreters", nargs="*", default=[sys.executable])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--one", nargs=2, metavar=("CASE", "ENGINE"), help="measure one in this process")
    asked = parser.parse_args()
    if asked.one:
        sys.stdout.write(json.dumps(milliseconds(*asked.one)) + "\n")
        return
    for case in asked.only:
        rows = [(engine, interpreter) for engine in ENGINES for interpreter in asked.interpreters]
        found: dict[tuple[str, str], list[float]] = {row: [] for row in rows}
        for _ in range(asked.turns):
            for engine, interpreter in rows:
                command = [interpreter, __file__, "--one", case, engine]
                result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[-2])
                if result is not None:
                    found[engine, interpreter].append(result)
        for (engine, interpreter), values in found.items():
            if values:
                sys.stdout.write(f"{case:9s} {engine:9s} {statistics.median(values):7.2f} ms  {interpreter}\n")


if __name__ == "__main__":
    main()
