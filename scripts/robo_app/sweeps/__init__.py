"""Sweeps over settings: search space, search, early stopping, results."""
