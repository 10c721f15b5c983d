"""What a reward model is, in a few hex digits: labels of different models are never mixed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any


def settings_hash(model: Any) -> str:
    """Returns a hash of the settings of a model that is a dataclass of plain values."""
    plain = json.dumps(asdict(model), sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]
