"""Learners of Stable-Baselines3 (SB3) in the workbench."""
