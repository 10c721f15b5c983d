"""Sweeps: search space, search, stopping, results."""
