"""Reward shaping: stages that transform a reward, and pipelines of several rewards."""
