"""Runs: their folders, checkpoints and logs."""

from robo_rl.runs.run import Curve, Run, circumstances, find_run, is_run, write_text

__all__ = ["Curve", "Run", "circumstances", "find_run", "is_run", "write_text"]
