"""robo-rl data verify, robo-rl data repair: find what is wrong in a dataset, and mend it."""

from __future__ import annotations

from dataclasses import dataclass

from robo_app.arguments.positionals import DATASET
from robo_datasets.dataset import Dataset
from robo_datasets.remarks import remarks_for
from robo_datasets.repair import Finding
from robo_datasets.repair import repair as mend
from robo_datasets.repair import verify as check


@dataclass(frozen=True)
class Verify:
    """Read every episode and report faults, changing nothing; exit status 1 if there is one."""

    dataset: DATASET


@dataclass(frozen=True)
class Repair:
    """Recover episodes after a crash, adopt orphans, move unreadable files to quarantine/; nothing is deleted."""

    dataset: DATASET


def verify(arguments: Verify) -> int:
    """Print the faults."""
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


def _show(findings: list[Finding]) -> None:
    for found in findings:
        print(f"{found.name}: {' '.join(found.problem.split())} -> {found.action}")
