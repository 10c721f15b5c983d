"""Reward machines: tasks of several steps as automata, or as formulas of temporal logic."""
