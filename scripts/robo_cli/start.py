"""The command `robo-rl`, in a module that imports almost nothing: Ctrl-C during the other imports is one line."""

from __future__ import annotations

import sys


def main() -> None:
    """Import the command line, run it and exit; 130 after Ctrl-C."""
    try:
        from robo_cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
