"""robo-rl bench: measure speed, with the benchmarks of a checkout."""

from __future__ import annotations

from robo_cli.actions import command_module


def main(arguments: list[str]) -> int:
    """Run a benchmark and return its exit status. Raises RoboRLError if this is no checkout."""
    return int(command_module("robo_bench.command").main(arguments))
