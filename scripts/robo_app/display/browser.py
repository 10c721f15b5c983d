"""Open pages in the browser of this machine."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import Any


def has_display() -> bool:
    """Return True if a window can open; without one, Python would start a browser inside the terminal."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def open_page(url: str, *, is_wanted: bool = True) -> None:
    """Open a page in the browser, if it is wanted and there is a display."""
    if is_wanted and has_display():
        webbrowser.open(url)


def serve(server: Any, what: str, *, opens: bool) -> None:
    """Print the address of a server and wait until Ctrl-C.

    server: object with `url` and `wait()`. what: words for what it shows. opens: True to open the page in the browser.
    """
    try:
        print(f"{what} shown at {server.url}   (Ctrl-C ends it)", flush=True)
        open_page(server.url, is_wanted=opens)
        server.wait()
    except KeyboardInterrupt:
        print("\nended")
