"""robo-rl data verify, repair, restore: find faults of a dataset, mend them, and take whole episodes back."""

from __future__ import annotations

from dataclasses import dataclass

from robo_app.arguments.positionals import DATASET
from robo_datasets.dataset import Dataset
from robo_datasets.remarks import remarks_for
from robo_datasets.repair import Finding
from robo_datasets.repair import repair as mend
from robo_datasets.repair import verify as check
from robo_datasets.restoration import restore as bring_back


@dataclass(frozen=True)
class Verify:
    """Read every episode and report faults, changing nothing; exit status 1 if there is one."""

    dataset: DATASET


@dataclass(frozen=True)
class Repair:
    """Recover episodes after a crash, adopt orphans, move damaged files to quarantine/; nothing is deleted.

    A lock, a full disk, a missing right or too little memory is no damage: it ends the command, and nothing is changed.
    """

    dataset: DATASET


@dataclass(frozen=True)
class Restore:
    """Move episodes that are whole after all out of quarantine/ and back to their places; exit status 1 if none was."""

    dataset: DATASET


def verify(arguments: Verify) -> int:
    """Check all files of a dataset, print a line for each fault, and return the exit status."""
    dataset = Dataset(arguments.dataset)
    remarks = remarks_for(dataset)
    findings = check(dataset, remarks.add)
    _show(findings)
    for line in remarks.lines():
        print(f"remark: {line}")
    print(f"{len(findings)} problems" if findings else f"{len(dataset)} episodes, all as they were written")
    return int(bool(findings))


def repair(arguments: Repair) -> int:
    """Print the repairs."""
    dataset = Dataset(arguments.dataset)
    with dataset.writer() as writer:
        findings = mend(writer)
    _show(findings)
    print(f"{len(findings)} problems mended; {len(dataset)} episodes")
    return 0


def restore(arguments: Restore) -> int:
    """Move whole episodes from quarantine/ back into the dataset and print a finding for each file.

    Returns:
        The exit status: 1 if there were files and none could be restored, else 0.
    """
    dataset = Dataset(arguments.dataset)
    before = len(dataset)
    with dataset.writer() as writer:
        findings = bring_back(writer)
    _show(findings)
    count = len(dataset)
    print(f"{count - before} episodes restored; {count} episodes")
    return int(count == before and bool(findings))  # nothing in quarantine is no failure


def _show(findings: list[Finding]) -> None:
    for found in findings:
        print(f"{found.name}: {' '.join(found.problem.split())} -> {found.action}")
