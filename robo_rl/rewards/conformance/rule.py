"""Function that raises the error of a failed check."""

from __future__ import annotations

from robo_rl.errors import ConformanceFailure


def require_rule(holds: bool, model: object, rule: str, failure: str, got: object = None, allowed: object = None) -> None:
    """Raise ConformanceFailure if a rule does not hold; model: named by its class, or a text that names it."""
    if not holds:
        name = model if isinstance(model, str) else type(model).__name__
        raise ConformanceFailure(name, rule, failure, got=got, allowed=allowed)
