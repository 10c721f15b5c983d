"""Rule of a conformance suite; a failed requirement raises ConformanceFailure with the name of the rule."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.errors import ConformanceFailure


@dataclass(frozen=True)
class Rule:
    """Rule that an implementation must keep; call it with the outcome of a check."""

    subject: str
    """Name of the implementation."""
    name: str
    """Name of the rule."""

    def __call__(self, holds: bool, what: str, *, got: object = None, allowed: object = None) -> None:
        """Raise ConformanceFailure unless `holds`.

        what: the violation in words.
        """
        if not holds:
            raise ConformanceFailure(self.subject, self.name, what, got=got, allowed=allowed)
