"""Folder of the user's cache, for answers of models and weights unpacked from packages."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Return the cache folder of the user: $ROBO_RL_CACHE, or robo_rl in the system's folder for caches."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robo_rl"
    return Path(os.environ.get("ROBO_RL_CACHE") or home)
