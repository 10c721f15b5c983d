"""Reward-weighted regression, and a reward that pays progress towards a goal."""
