"""Error of a check that fails."""

from __future__ import annotations

from robo_rl.errors import ConformanceFailure


def require_rule(holds: bool, model: object, rule: str, failure: str, got: object = None, allowed: object = None) -> None:
    """Raise ConformanceFailure of a model, named by its class or by a text, unless the rule holds."""
    if not holds:
        name = model if isinstance(model, str) else type(model).__name__
        raise ConformanceFailure(name, rule, failure, got=got, allowed=allowed)
