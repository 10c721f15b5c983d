"""Validation of a reward program on recorded rows before anything learns from it.

    report = validate(program, columns)
    print(report)   # or show report.feedback to the model that wrote the program

A program that keeps to the grammar can still mix rows of a batch, be constant, be far too large, or reward failure more than
success. Programs never see success; only the validation does.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidProgram, InvalidSetting, ProgramFailed
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.sandbox import MOST_BYTES, Sandbox
from robo_rl.rewards.step_rewards.steps import StepScores
from robo_rl.types import Array

Kind = Literal["ok", "note", "failure"]
TOTAL = "The total"
LEAST_ROWS, SINGLE_ROWS = 2, 64
"""Smallest number of rows that can be validated, and number of rows that are also computed one by one, spread over all."""
EVERY_SIZE, OTHER_SIZES = 1_024, 16
"""Largest size up to which batches of every size are tried, because episodes and an off-policy learner's batches have any;
number of larger sizes, drawn at random."""
MOST_LIMITS = 10
"""Multiple of the time limit of one batch that all tried batches together may take; an ordinary program takes a second."""
SATURATION, MOST_AT_BOUND = 0.01, 0.9
"""Share of a value's range within which it counts as at its bound, and largest allowed share of rows at a bound."""
DOMINANCE = 1_000.0
"""Ratio of the standard deviations of two terms above which a note is made."""


@dataclass(frozen=True)
class Clips:
    """Which rows of a batch belong to which of C clips, and whether each clip succeeded."""

    clip: npt.NDArray[np.int64]
    """(N,) number of the clip to which a row belongs, 0 to C - 1"""
    success: npt.NDArray[np.bool_]
    """(C,) True if the clip ended in success"""

    def __post_init__(self) -> None:
        if len(self.clip) and not 0 <= self.clip.min() <= self.clip.max() < len(self.success):
            got, allowed = f"{self.clip.min()} to {self.clip.max()}", f"0 to {len(self.success) - 1}"
            raise InvalidSetting("The number of a clip is out of range.", got=got, allowed=allowed)


@dataclass(frozen=True)
class CheckResult:
    """Finding of one check of a reward program, in words for a person or a language model."""

    check: str
    kind: Kind
    text: str


@dataclass(frozen=True)
class ValidationReport:
    """Findings of all checks of a reward program."""

    findings: tuple[CheckResult, ...]
    rewards: StepScores | None = field(default=None, repr=False)
    """Rewards of all rows; None if the program failed on them."""

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return all(finding.kind != "failure" for finding in self.findings)

    @property
    def feedback(self) -> str:
        """Failures and remarks for the author of the program; "" if there are none."""
        return "\n".join(f"- {finding.text}" for finding in self.findings if finding.kind != "ok")

    def __str__(self) -> str:
        return "\n".join(f"{finding.kind:8}{finding.check}: {finding.text}" for finding in self.findings)


def validate(
    program: RewardProgram,
    columns: Mapping[str, Array],
    *,
    clips: Clips | None = None,
    limits: Limits | None = None,
    sizes: Sequence[int] = (),
    seed: int = 0,
) -> ValidationReport:
    """Check a reward program on recorded rows, and return a report; faults of the program never raise an error.

    Args:
        program: The program.
        columns: Name -> (N, ...), at best 2,000 rows from successes, failures and random motion.
        clips: Division of the rows into clips with known outcomes; None if it is unknown.
        limits: Limits of the program; None for the defaults.
        sizes: Batch sizes of the later use, such as the steps of a rollout, which are tried, too.
        seed: Seed of everything random.

    Raises:
        InvalidSetting: There are too few rows, or the clips do not fit.
        SandboxUnavailable: This machine cannot confine programs.
    """
    used = {name: np.asarray(column) for name, column in columns.items() if name in program.columns}
    rows = len(next(iter(columns.values()), ()))
    if rows < LEAST_ROWS or (clips is not None and len(clips.clip) != rows):
        got = f"{rows} rows" + (f", clips of {len(clips.clip)}" if clips is not None else "")
        raise InvalidSetting("A program cannot be tried on these rows.", got=got, allowed=f"{LEAST_ROWS} or more, best 2,000")
    with Sandbox(program, limits or Limits()) as sandbox:
        try:
            sandbox.run({name: column[:LEAST_ROWS] for name, column in used.items()} or columns)  # start the process
            return _Trial(sandbox, used or columns, sizes, np.random.default_rng(seed)).report(clips)
        except (ProgramFailed, InvalidProgram) as error:
            return ValidationReport((CheckResult(error.status, "failure", " ".join(str(error).split())),))


class _Trial:
    """Checks of one program on one set of rows; each method returns its finding."""

    def __init__(
        self, sandbox: Sandbox, columns: Mapping[str, Array], sizes: Sequence[int], generator: np.random.Generator
    ) -> None:
        self.sandbox, self.columns, self.sizes, self.generator = sandbox, columns, sizes, generator
        self.before = _hash(columns)
        started = time.perf_counter()
        self.rewards = self._run(columns)
        self.seconds = time.perf_counter() - started
        self.rows = len(self.rewards.total)

    def _run(self, columns: Mapping[str, Array]) -> StepScores:
        """Return rewards; raises ProgramFailed if all batches together have taken too long."""
        allowed, spent = MOST_LIMITS * self.sandbox.limits.seconds, self.sandbox.spent
        if spent > allowed:
            got = f"{spent:.3g} s for {self.sandbox.batches} batches, most of them small"
            raise ProgramFailed("timeout", "The program is too slow.", got=got, allowed=f"{allowed:g} s", fix="compute less")
        return self.sandbox.run(columns)

    def report(self, clips: Clips | None) -> ValidationReport:
        findings = [self.order(), self.single_rows(), self.determinism(), self.inputs(), self.duration(), *self.sensitivity()]
        findings += [*self.scale(), *self.missing()]
        findings += [self.ranking(clips)] if clips is not None else []
        return ValidationReport(tuple(findings), self.rewards)

    def order(self) -> CheckResult:
        order = self.generator.permutation(self.rows)
        moved = self._run({name: np.asarray(column)[order] for name, column in self.columns.items()})
        if _close(_values(moved), _values(self.rewards)[:, order]):
            return CheckResult("order", "ok", "rows in another order give the same rewards in that order")
        text = "The reward of a row depends on where it stands among the others: take sums, means, extremes over axis=1 only."
        return CheckResult("order", "failure", text)

    def single_rows(self) -> CheckResult:
        rows = np.unique(np.linspace(0, self.rows - 1, SINGLE_ROWS).astype(np.int64))
        alone = np.concatenate([_values(self._run(self._row(row))) for row in rows], axis=1)
        sizes = self._other_sizes()
        drawn = self.generator.integers(self.rows, size=sizes[-1])  # by chance, some more than once
        batch, wanted = {name: column[drawn] for name, column in self.columns.items()}, _values(self.rewards)[:, drawn]
        if _close(alone, _values(self.rewards)[:, rows]) and all(
            self._are_same(batch, wanted, size) for size in reversed(sizes)
        ):
            words = (
                f"{len(rows)} rows give the same rewards alone as among the others, and in batches of {len(sizes)} other sizes"
            )
            return CheckResult("batch", "ok", words)
        text = "The reward of a row depends on the other rows of the batch, or on their number: "
        return CheckResult("batch", "failure", f"{text}take sums, means, extremes over axis=1 only.")

    def _other_sizes(self) -> list[int]:
        """Return batch sizes to try: all small ones, powers of two, the largest, those of the later use, random ones."""
        row = sum(column[:1].nbytes for column in self.columns.values())
        most = max(2, min(self.sandbox.limits.rows, MOST_BYTES // max(row, 1)))
        drawn = np.exp(self.generator.uniform(np.log(2), np.log(most), OTHER_SIZES)).astype(int)
        known = [part for size in self.sizes for part in (min(size, most), size % most) if part]  # more goes in pieces
        powers = [2**power for power in range(1, most.bit_length())]
        return sorted({*range(2, min(EVERY_SIZE, most) + 1), *powers, most, *known, *drawn.tolist()})

    def _are_same(self, batch: Mapping[str, Array], wanted: npt.NDArray[np.float64], size: int) -> bool:
        """Return True if the first `size` rows of a batch have the same rewards alone as among all rows."""
        found = self._run({name: column[:size] for name, column in batch.items()})
        return _close(_values(found), wanted[:, :size])

    def _row(self, row: int) -> dict[str, Array]:
        return {name: column[row : row + 1] for name, column in self.columns.items()}

    def determinism(self) -> CheckResult:
        """Check that the same rows give the same bits again after other batches, and in another process."""
        again = self._run(self.columns)
        self.sandbox.close()
        elsewhere = self._run(self.columns)
        if _same(self.rewards, again) and _same(self.rewards, elsewhere):
            return CheckResult("determinism", "ok", "the same rows give the same rewards, to the bit, also in another process")
        text = "The same rows give other rewards another time: use no memory of earlier batches and no chance."
        return CheckResult("determinism", "failure", text)

    def inputs(self) -> CheckResult:
        if _hash(self.columns) == self.before:
            return CheckResult("inputs", "ok", "the columns are as they were")
        return CheckResult("inputs", "failure", "The columns were changed.")

    def duration(self) -> CheckResult:
        text = f"{1e6 * self.seconds / self.rows:.2g} microseconds for each of {self.rows} rows"
        share = self.seconds * self.sandbox.limits.rows / max(self.rows, self.sandbox.limits.rows)
        if share <= self.sandbox.limits.seconds / 2:
            return CheckResult("duration", "ok", text)
        return CheckResult("duration", "failure", f"{text} is too slow: compute less, and never for every pair of rows.")

    def sensitivity(self) -> Iterator[CheckResult]:
        for name, known in self._known():
            if np.ptp(known) == 0:
                kind: Kind = "failure" if name == TOTAL else "note"
                yield CheckResult("sensitivity", kind, f"{name} is {known[0]:.4g} on all {len(known)} rows: it says nothing.")

    def scale(self) -> Iterator[CheckResult]:
        spreads = {}
        for name, known in self._known():
            low, high = float(known.min()), float(known.max())
            text = f"{name} is {low:.3g} to {high:.3g}, {known.mean():.3g} in the mean"
            yield CheckResult("scale", "ok", text)
            margin = SATURATION * (high - low)
            at_bound = max(np.mean(known <= low + margin), np.mean(known >= high - margin))
            if high > low and at_bound > MOST_AT_BOUND:
                text = f"{name} is at its bound on {at_bound:.0%} of the rows, where it tells nothing apart."
                yield CheckResult("saturation", "note", text)
            spreads[name] = float(known.std())
        terms = {name: spread for name, spread in spreads.items() if name != TOTAL and spread > 0}
        if len(terms) > 1 and max(terms.values()) > DOMINANCE * min(terms.values()):
            large, small = max(terms, key=terms.__getitem__), min(terms, key=terms.__getitem__)
            text = f"{large} varies {terms[large] / terms[small]:.0f} times as much as {small}, which hardly counts."
            yield CheckResult("scale", "note", text)

    def _known(self) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
        terms = {f"The term {name!r}": term for name, term in self.rewards.terms.items()}
        for name, values in {TOTAL: self.rewards.total, **terms}.items():
            if self.rewards.valid.any():
                yield name, values[self.rewards.valid]

    def missing(self) -> Iterator[CheckResult]:
        number = int(np.count_nonzero(~self.rewards.valid))
        if number:
            yield CheckResult("finite", "note", f"{number} of {self.rows} rows have no finite reward and count as missing.")

    def ranking(self, clips: Clips) -> CheckResult:
        """Check that successful clips have a larger mean return than failed ones."""
        number = len(clips.success)
        earned = np.where(self.rewards.valid, self.rewards.total, 0.0)
        returns = np.bincount(clips.clip, weights=earned, minlength=number)
        won, lost = returns[clips.success], returns[~clips.success]
        if not won.size or not lost.size:
            return CheckResult("ranking", "note", "There are not both successful and failed clips to compare.")
        share = np.mean(won[:, None] > lost[None, :])
        text = f"success earns {won.mean():.4g} in the mean of {won.size} clips, failure {lost.mean():.4g} of {lost.size}"
        text += f"; success earns more in {share:.0%} of all pairs"
        if won.mean() > lost.mean():
            return CheckResult("ranking", "ok", text)
        return CheckResult("ranking", "failure", f"Failure earns as much as success or more: {text}.")


def _values(rewards: StepScores) -> npt.NDArray[np.float64]:
    """Return (1 + terms, N) numbers, the total first."""
    return np.stack([rewards.total, *(rewards.terms[name] for name in rewards.terms)])


def _close(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> bool:
    return np.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True)  # float32 columns, sums in another order


def _same(first: StepScores, second: StepScores) -> bool:
    terms = [(first.terms[name], second.terms[name]) for name in first.terms]
    return all(one.tobytes() == other.tobytes() for one, other in [(first.total, second.total), *terms])


def _hash(columns: Mapping[str, Array]) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(column).tobytes() for column in columns.values())).hexdigest()
