"""Identity of a reward model in a few hex digits: labels of different models are never mixed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any, ClassVar


def settings_hash(model: Any) -> str:
    """Return a hash of the settings of a model that is a dataclass of plain values."""
    return hash_of(json.dumps(asdict(model), sort_keys=True).encode())


def hash_of(*parts: bytes) -> str:
    """Return 16 hex digits that tell apart any two sequences of parts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:16]


class NamedSettings:
    """A dataclass of plain settings that all its answers follow from."""

    name: ClassVar[str]
    """Name of the entry point."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings."""
        return self.name, settings_hash(self)
