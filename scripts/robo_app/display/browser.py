"""Browser of this machine."""

from __future__ import annotations

import os
import sys


def has_display() -> bool:
    """Returns True if a window can open; without one, Python would start a browser inside the terminal."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
