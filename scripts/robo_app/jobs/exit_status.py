"""Exit statuses of the commands."""

from __future__ import annotations

from robo_rl.errors import NonFiniteUpdate, SimulationFailed

DIVERGED = 3
"""Exit status of a training whose numbers or simulations are no longer finite."""


def status_of(error: Exception) -> int:
    """Return the exit status of an error: 3 (DIVERGED) for numbers or simulations that are not finite, otherwise 1."""
    return DIVERGED if isinstance(error, NonFiniteUpdate | SimulationFailed) else 1
