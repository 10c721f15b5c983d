"""Run a reward program in a separate process that can do nothing but compute.

    with Sandbox(RewardProgram.parse(text)) as sandbox:
        rewards = sandbox.run({"cube_position": ..., "goal": ..., "action": ...})

The process is a fresh interpreter with an empty environment and no files, no network, no children (confinement.py); its
results are untrusted bytes (process.py), which must pass the output checks (output_checks.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidProgram, InvalidSetting, ProgramFailed, SandboxUnavailable
from robo_rl.rewards.programs.output_checks import Limits, OutputChecks
from robo_rl.rewards.programs.process import ENDED, TIMEOUT, Process
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.shared_memory import ColumnLayout, Layout
from robo_rl.rewards.programs.system_calls import filter_program
from robo_rl.rewards.programs.worker import DONE, MEMORY, RAISED, SHAPE
from robo_rl.rewards.step_rewards.steps import StepScores
from robo_rl.types import Array

MOST_BYTES = 256 * 2**20
"""Largest size of the columns of a batch [bytes]; longer batches are divided."""
SLOW = 8
"""Number of slow batches, less the fast ones, after which a program fails; the validation did not try these rows."""
KINDS = "biuf"
"""NumPy's kinds of types that a column may have: bool, integers, floats."""


class Sandbox:
    """Process that runs one reward program and can do nothing but compute; a context manager.

    It starts at the first batch and ends with `close`.
    """

    def __init__(self, program: RewardProgram, limits: Limits | None = None) -> None:
        self.program, self.limits = program, limits or Limits()
        self.output_checks = OutputChecks(program.terms, self.limits)
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._kinds: list[tuple[np.dtype[Any], tuple[int, ...]]] = []
        self._slow = 0
        self.spent = 0.0
        """[s] that all batches took."""
        self.batches = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if there is one; another `run` starts a new one."""
        with self._lock:
            self._stop()

    @property
    def guards(self) -> tuple[str, ...]:
        """Guards of the running process: "limits", "nobody", "no new rights", "seccomp"; empty without a process."""
        return self._process.guards if self._process else ()

    def run(self, columns: Mapping[str, Array]) -> StepScores:
        """Return the rewards of N rows.

        Args:
            columns: Name -> (N, ...), at least the columns that the program reads.

        Raises:
            ProgramFailed: The program raised an error, took too long or too much memory, or returned invalid rewards. The
                process has been ended.
            InvalidProgram: The program reads a missing column.
            InvalidSetting: The columns differ in length, or are not numbers.
        """
        with self._lock:
            try:
                return self.output_checks.accept(self._computed(columns))
            except BaseException:  # also Ctrl-C: the process may answer too late
                self._stop()
                raise

    def _computed(self, columns: Mapping[str, Array]) -> npt.NDArray[np.float64]:
        """Return (1 + terms, N) numbers; a batch with the same layout as the last one is not checked again, for speed."""
        process = self._process
        if process is None or process.seconds_left <= 0 or not process.is_like(columns):
            return self._in_pieces(*self._checked(columns))
        return self._piece(columns, process.rows)

    def _checked(self, columns: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        used = {name: self._column(name, columns) for name in self.program.columns}
        rows = len(next(iter(columns.values()), ()))
        if any(len(column) != rows for column in used.values()):
            got = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
            raise InvalidSetting("The columns differ in length.", got=got, allowed="N rows each")
        return used, rows

    def _column(self, name: str, columns: Mapping[str, Array]) -> Array:
        if name not in columns:
            problem = f"The program reads a column {name!r} that is not there."
            raise InvalidProgram("unknown column", problem, got=name, allowed=", ".join(columns))
        column = np.asarray(columns[name])
        if column.dtype.kind not in KINDS or column.ndim == 0:
            got, allowed = f"{column.dtype}, shape {column.shape}", "numbers or truth values, N rows"
            raise InvalidSetting(f"The column {name!r} is not a column of numbers.", got=got, allowed=allowed)
        return column

    def _in_pieces(self, used: Mapping[str, Array], rows: int) -> npt.NDArray[np.float64]:
        pieces = [np.empty((len(self.program.terms) + 1, 0))]
        done = 0
        while done < rows:
            most = min(self._ready(used).layout.rows, rows - done)
            pieces.append(self._piece({name: column[done : done + most] for name, column in used.items()}, most))
            done += most
        return np.concatenate(pieces, axis=1)

    def _ready(self, used: Mapping[str, Array]) -> Process:
        """Return a process that has room for these columns, and CPU time left."""
        kinds = [(column.dtype, column.shape[1:]) for column in used.values()]
        if self._process is None or kinds != self._kinds or self._process.seconds_left <= 0:
            self._stop()
            self._process, self._kinds = self._started(used), kinds
        return self._process

    def _started(self, used: Mapping[str, Array]) -> Process:
        columns = {name: ColumnLayout(array.dtype.str, array.shape[1:]) for name, array in used.items()}
        size = sum(column.size for column in columns.values())
        layout = Layout(columns, len(self.program.terms), max(1, min(self.limits.rows, MOST_BYTES // max(size, 1))))
        return Process(self._settings(layout), layout, self.limits)

    def _settings(self, layout: Layout) -> dict[str, Any]:
        """Return the settings of the process; see robo_rl.rewards.programs.worker."""
        try:
            system_calls = filter_program().hex()
        except SandboxUnavailable:
            if not self.limits.without_seccomp:
                raise
            system_calls = ""
        columns = {name: (column.dtype, column.shape) for name, column in layout.columns.items()}
        settings = {"code": self.program.code, "terms": self.program.terms, "columns": columns, "rows": layout.rows}
        return settings | {"system_calls": system_calls, "is_free": False}

    def _piece(self, columns: Mapping[str, Array], rows: int) -> npt.NDArray[np.float64]:
        process = self._process or self._ready(columns)
        try:
            answer, values = process.computed(columns, rows)
        except BrokenPipeError:  # it ended while idle, so it is not the program's fault
            self._stop()
            process = self._ready(columns)
            answer, values = process.computed(columns, rows)
        self.spent, self.batches = self.spent + process.seconds, self.batches + 1
        if answer != DONE:
            raise self._failure(answer, process, rows)
        self._require_pace(process.seconds, rows)
        return values

    def _require_pace(self, seconds: float, rows: int) -> None:
        """Raise ProgramFailed if batch after batch takes more than half of the time limit.

        A single slow batch means nothing, since the machine may be busy.
        """
        limit = self.limits.seconds / 2
        self._slow = self._slow + 1 if seconds > limit else max(0, self._slow - 1)
        if self._slow >= SLOW:
            self._slow = 0
            got, allowed = f"{seconds:.2g} s for {rows} rows, again and again", f"{limit:g} s"
            raise ProgramFailed(
                "timeout", "The program is too slow to learn from.", got=got, allowed=allowed, fix="compute less"
            )

    def _failure(self, answer: bytes, process: Process, rows: int) -> ProgramFailed:
        if answer == RAISED:
            return self._raised(process.message())
        if answer == SHAPE:
            fix = "return one number for each row; np.full_like(total, 0.1) for a constant"
            problem = "The program returned another shape."
            return ProgramFailed("shape", problem, got=process.message(), allowed=f"({rows},)", fix=fix)
        memory = f"{self.limits.memory / 2**20:.0f} MiB"
        if answer == MEMORY:
            fix = "make no arrays that are larger than the columns"
            return ProgramFailed("memory", "The program ran out of memory.", allowed=memory, fix=fix)
        if answer == TIMEOUT:
            allowed = f"{self.limits.seconds:g} s for {rows} rows"
            return ProgramFailed("timeout", "The program took too long and was stopped.", allowed=allowed, fix="compute less")
        if answer == ENDED:
            problem, fix = "The process that ran the program ended.", "compute less, with smaller arrays"
            return ProgramFailed("killed", problem, got=process.ending(), allowed=memory, fix=fix)
        return ProgramFailed("protocol", "The process that ran the program broke the protocol.", got=repr(answer))

    def _raised(self, message: str) -> ProgramFailed:
        number, _, words = message.partition(" ")
        where = self.program.where(int(number)) if number.isdecimal() and len(number) < 6 else ""
        fix = "use np.where, & and |: a program gets N rows at once" if "truth value" in words else None
        return ProgramFailed("raised", f"The program raised an error{' in ' if where else ''}{where}.", got=words, fix=fix)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
