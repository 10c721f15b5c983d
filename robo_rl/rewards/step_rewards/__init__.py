"""Rewards of single steps: data, places, scorers, and their use while a policy acts."""
