"""Benchmarks against peers: in a checkout, not in the wheel."""

from robo_rl.system.opengl import prefer_headless

prefer_headless()  # before any module here imports MuJoCo
