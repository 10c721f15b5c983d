"""Exploration as memory: an environment of arms with a map."""
