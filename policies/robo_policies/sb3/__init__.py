"""Stable-Baselines3 behind the protocols of the workbench."""
