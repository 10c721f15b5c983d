"""Checks of what a reward program returns: every batch must pass them before anything learns from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.errors import ProgramFailed, require_allowed
from robo_rl.rewards.step_rewards.steps import StepScores
from robo_rl.types import Labels

LEAST_ROWS = 1_000
"""Smallest number of rows over which the share without a reward is computed."""
RECENT = 100_000
"""Number of rows after which earlier rows count half, so that a program that fails late is noticed as early as any other."""
LARGEST_TERM = 1e12
"""Largest absolute value of a term, because terms are squared later."""
CLOSE = 1e-6
"""Largest difference between the sum of the terms and the total, relative to the total or to 1."""


@dataclass(frozen=True)
class Limits:
    """Limits of a reward program: time, memory and rows of its process, size of its rewards, share of missing ones."""

    seconds: float = 2.0
    """[s] of wall-clock time for one batch of at most `rows` rows."""
    memory: int = 512 * 2**20
    """[bytes] besides the interpreter, numpy and the columns; at least a mebibyte."""
    rows: int = 16_384
    """Rows computed at once; longer batches are divided."""
    start_seconds: float = 120.0
    """[s] for the interpreter to start and to load numpy, also on a busy machine."""
    largest: float = 1e4
    """Largest absolute value of a reward."""
    invalid_share: float = 0.001
    """Largest share of recent rows (at least a thousand) without a finite reward, 0 to 1; above it the program has failed."""
    is_additive: bool = False
    """True to require that the terms sum to the total, up to a relative difference of 1e-6."""
    without_seccomp: bool = False
    """True to run also if system calls cannot be filtered; a program that gets past the grammar could then read files."""

    def __post_init__(self) -> None:
        allowed = {
            "seconds": (0 < self.seconds < np.inf, "above 0 [s]"),
            "memory": (self.memory >= 2**20, "a mebibyte or more [byte]"),
            "rows": (self.rows >= 1, "1 or more"),
            "start_seconds": (0 < self.start_seconds < np.inf, "above 0 [s]"),
            "largest": (0 < self.largest < np.inf, "above 0"),
            "invalid_share": (0 <= self.invalid_share <= 1, "0 to 1"),
        }
        require_allowed(self, allowed)


@dataclass
class OutputChecks:
    """Checks of the values that one program returns; they also count its rows."""

    terms: Sequence[str]
    """Names of the terms that the program returns."""
    limits: Limits
    rows: int = 0
    """Number of recent rows, of which older ones count less."""
    invalid_rows: int = 0
    """Number of recent rows without a finite reward."""

    def accept(self, values: npt.NDArray[np.float64]) -> StepScores:
        """Check the values of N rows and return them as scores; raises ProgramFailed if they are no valid rewards.

        For speed, one sum of squares shows in most cases that all numbers are finite and small.

        values: (1 + terms, N) total and terms, which may be changed.
        """
        total = values[0]
        if np.vdot(values, values) <= self.limits.largest**2:
            self.rows += len(total)
            valid: npt.NDArray[np.bool_] = np.isfinite(total)
        else:
            valid = np.logical_and.reduce(np.isfinite(values), axis=0)
            total[~valid] = np.nan
            self._count(valid)
            self._check_scale("A reward", total[valid], self.limits.largest)
            self._check_scale("A term", values[1:, valid], LARGEST_TERM)
        if self.limits.is_additive and self.terms:
            self._check_sum(values[:, valid])
        return StepScores(Labels(total, valid), dict(zip(self.terms, values[1:], strict=True)))

    def _count(self, valid: npt.NDArray[np.bool_]) -> None:
        while self.rows >= RECENT:
            self.rows, self.invalid_rows = self.rows // 2, self.invalid_rows // 2
        self.rows += len(valid)
        self.invalid_rows += len(valid) - int(np.count_nonzero(valid))
        if self.invalid_rows > self.limits.invalid_share * max(self.rows, LEAST_ROWS):
            got = f"{self.invalid_rows} of {self.rows} rows"
            allowed = f"{self.limits.invalid_share:.1%} of them, of {LEAST_ROWS} at least"
            fix = "divide by x + 1e-6, take roots and logarithms of np.maximum(x, 1e-6), limit exponents with np.clip"
            raise ProgramFailed("not finite", "Rewards or terms are not finite.", got=got, allowed=allowed, fix=fix)

    @staticmethod
    def _check_scale(name: str, numbers: npt.NDArray[np.float64], largest: float) -> None:
        size = np.abs(numbers).max(initial=0.0)
        if size > largest:
            got, allowed, fix = f"{size:.3g}", f"{largest:g} in size", "scale the terms, so that each is about 1 in size"
            raise ProgramFailed("scale", f"{name} is too large.", got=got, allowed=allowed, fix=fix)

    @staticmethod
    def _check_sum(values: npt.NDArray[np.float64]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.abs(values[1:].sum(axis=0) - values[0])
        if not (apart <= CLOSE * np.maximum(1.0, np.abs(values[0]))).all():
            got, fix = f"{apart.max():.3g} apart", "return the terms as they are added, with their weights"
            raise ProgramFailed("sum", "The terms do not sum to the total.", got=got, allowed=f"{CLOSE:g}", fix=fix)
