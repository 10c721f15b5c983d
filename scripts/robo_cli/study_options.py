"""Settings of a study as words of a command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Settings = dict[str, Any]
"""Options of the command line without their dashes, such as learner.lr: 1e-4"""
Words = Sequence[str]
"""Of a command line, after `robo-rl`."""


def options(settings: Settings) -> list[str]:
    """Returns settings as words of a command line; a mapping or a list is written as its values."""
    words: list[str] = []
    for name, value in settings.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{name}", *(text if isinstance(text, str) else json.dumps(text) for text in values)]
    return words
