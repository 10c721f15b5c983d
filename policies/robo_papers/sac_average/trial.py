"""The environment of the conformance suite without an end: a task that ends has no mean reward."""

from __future__ import annotations

from robo_rl.conformance.swerving import Swerving


class Endless(Swerving):
    """Environment of the conformance suite whose episodes end by time alone."""

    def __init__(self) -> None:
        super().__init__(terminates=False)
