"""FISOR: hard constraints from recorded data."""
