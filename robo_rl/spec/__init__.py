"""Specs: names, shapes, units, frames, limits and rates of observations and actions."""

from robo_rl.spec.environment import EnvironmentSpec, specification

__all__ = ["EnvironmentSpec", "specification"]
