"""Command of the workbench as a child process, which is terminated when its parent ends for any reason.

python -m robo_cli.job PARENT COMMAND ...
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with(parent: int) -> None:
    """Have this process be sent SIGTERM, at which a training saves itself, once its parent is gone; only on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was gone before
        sys.exit(130)


if __name__ == "__main__":
    end_with(int(sys.argv.pop(1)))
    from robo_cli.main import main

    main()
