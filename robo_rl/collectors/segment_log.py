"""Log of segments on disk, in the order of arrival, written before they are learned from: a killed learner loses none.

    collected/0000000000.log  0000012000.log      named by the steps before them; a new file after each checkpoint

Each record of a file (robo_rl.system.framed_log) is a segment as it was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from robo_rl.collectors.segments import Segment
from robo_rl.errors import RunError
from robo_rl.runs.checkpoints import unpacked
from robo_rl.system.framed_log import FramedLog, read_records

SUFFIX = ".log"


class SegmentLog:
    """Log of segments, written and read by one process; continues after the last complete segment of an earlier process."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        """Open the log in `folder`.

        step: step of the restored checkpoint, in case a power failure removed steps from the log.
        """
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        last = self._files()[-1:]
        self.steps = max(step, *(int(path.stem) + sum(map(len, _segments(path))) for path in last), 0)
        """Steps that were written, those before the first file included."""
        self._log: FramedLog | None = None

    def add(self, segment: bytes, steps: int) -> None:
        """Write a packed segment of `steps` steps durably; raises RunError if the disk is full."""
        try:
            if self._log is None:
                self._log = FramedLog(self._folder / f"{self.steps:010d}{SUFFIX}")
            self._log.append(segment)
        except OSError as error:
            raise RunError(
                "A collected segment could not be written.", got=error, fix="make room on the disk; then robo-rl resume"
            ) from error
        self.steps += steps

    def since(self, step: int) -> Iterator[tuple[int, Segment]]:
        """Yield (number of steps before it, segment) for each segment that ends after step `step`."""
        for path in self._files():
            before = int(path.stem)
            for segment in _segments(path):
                if before + len(segment) > step:
                    yield before, segment
                before += len(segment)

    def forget(self, step: int) -> None:
        """Start a new file, and delete files whose steps all lie at or before `step`, because no learner resumes from them."""
        self.close()
        for path, following in pairwise(self._files()):
            if int(following.stem) <= step:
                path.unlink()

    def close(self) -> None:
        """Close the file."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{SUFFIX}"))


def _segments(path: Path) -> Iterator[Segment]:
    """Yield the complete segments of a file, up to the first torn one."""
    return (Segment(unpacked(content)) for content in read_records(path))
