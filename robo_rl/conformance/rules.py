"""One rule of a conformance suite, as an object that is called with the outcome of a check."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.errors import ConformanceFailure


@dataclass(frozen=True)
class Rule:
    """Rule that an implementation must keep; called with False, it raises ConformanceFailure with the names of both."""

    subject: str
    """Name of the implementation under test."""
    name: str
    """Name of the rule."""

    def __call__(self, holds: bool, what: str, *, got: object = None, allowed: object = None) -> None:
        """Raise ConformanceFailure unless `holds`.

        what: the violation in words.
        """
        if not holds:
            raise ConformanceFailure(self.subject, self.name, what, got=got, allowed=allowed)
