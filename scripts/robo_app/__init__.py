"""Application logic below the command line: recipes, trainings, recordings, experiments, sweeps."""

from robo_rl.system.opengl import prefer_headless

prefer_headless()  # before any module here imports MuJoCo
