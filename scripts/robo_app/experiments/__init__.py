"""Experiments: inputs, studies, races, seeds and their tables."""
