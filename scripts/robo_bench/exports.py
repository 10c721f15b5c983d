"""Table of exported policies: difference from the policy, and time of a step of both.

    .venv/bin/python -m robo_bench.exports                   # ONNX and TorchScript, about ten minutes
    .venv/bin/python -m robo_bench.exports --to torchscript  # one minute

Networks have the learners' default sizes and first parameters (seed 0), observations are random (seed 0).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from robo_policies.export.exporting import export, random_episodes
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import specification

TASK = "robo/ArmPick-v0"
LEARNERS = ("sac", "ppo", "bc", "iql", "hil-serl", "drq", "act", "flow-bc", "diffusion-bc")
SB3 = ("sb3-ppo", "sb3-sac", "sb3-td3", "sb3-tqc", "sb3-recurrent-ppo")
SEES = ("drq",)
"""Learners whose policies see pictures in this table."""


def policies() -> dict[str, Callable[[], Policy]]:
    """Return a dictionary: name of a learner -> function that makes a policy of it, with networks of default size."""
    return {name: partial(_policy, name) for name in (*LEARNERS, *SB3)}


def _policy(name: str) -> Policy:
    arguments: dict[str, Any] = {"cameras": ["front"]} if name in SEES else {}
    config, environment = load("learners", name)(), make_environment(TASK, **arguments)
    if name in SB3:
        trained = config.training(lambda: environment, steps=config.n_steps if hasattr(config, "gae_lambda") else 1, seed=0)
        found: Policy = trained.policy
        return found
    found = config.build(specification(environment), 0).policy
    return found


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", nargs="+", default=["onnx", "torchscript"])
    formats = parser.parse_args().to
    torch.set_num_threads(1)
    print(f"| learner | format | largest difference | policy [ms] | exported [ms] |\n|{'---|' * 5}")
    for name, make in policies().items():
        policy = make()
        for to in formats:
            with tempfile.TemporaryDirectory() as folder:
                done = export(policy, to, Path(folder) / "out", random_episodes(policy.environment_spec))
            latencies = f"{done.own.median:.2f} | {done.exported.median:.2f}"
            print(f"| `{name}` | {to} | {done.difference:.0e} | {latencies} |", flush=True)


if __name__ == "__main__":
    main()
