"""Identity of a reward model as a name and a hash, so that labels of different models are never mixed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any, ClassVar


def settings_hash(model: Any) -> str:
    """Return a hash of the settings of a model, a dataclass of plain values."""
    return hash_of(json.dumps(asdict(model), sort_keys=True).encode())


def hash_of(*parts: bytes) -> str:
    """Return a hash of 16 hex digits of a sequence of byte strings; the boundaries between them count."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:16]


class NamedSettings:
    """Base class of components whose results depend only on their settings: a dataclass of plain values."""

    name: ClassVar[str]
    """Name of the entry point, which recipes use."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name of the component, and a hash of its settings: equal for components whose results are equal."""
        return self.name, settings_hash(self)
