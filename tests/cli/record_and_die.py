"""Record a family and SIGKILL this process before the catalogue learns of episode N, whose file is in place by then.

usage: record_and_die.py N ARGUMENT ...
"""

from __future__ import annotations

import os
import signal
import sys

from robo_cli.main import dispatch
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import DatasetWriter


def main(last: int, arguments: list[str]) -> None:
    adopt, adopted = DatasetWriter.adopt, 0

    def watched(self: DatasetWriter, entry: Entry) -> Entry:
        nonlocal adopted
        adopted += 1
        if adopted == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return adopt(self, entry)

    DatasetWriter.adopt = watched  # type: ignore[method-assign]
    dispatch(arguments)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
