"""`robo-rl doctor`: check for known problems of machines, each with its remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.markup import escape

from robo_app.display.plain_console import PlainConsole
from robo_app.machine import machine_checks, package_checks, plugin_checks
from robo_app.machine.finding import Finding

Check = Callable[[], Iterator[Finding]]

EXAMPLES = """robo-rl doctor
robo-rl doctor --out /data/runs
robo-rl doctor --json"""
SIGNS = {"ok": "[green]ok     [/]", "warning": "[yellow]warning[/]", "problem": "[red]problem[/]"}


@dataclass(frozen=True)
class Doctor:
    """Check this machine and its packages; each finding comes with its remedy. Exit code 1 if something is broken."""

    json: bool = False
    """Print one JSON list instead of text."""
    out: Path = Path("runs")
    """Folder in which run folders are made."""

    @property
    def checks(self) -> dict[str, Check]:
        """Name -> check, in the order in which they are shown."""
        return {
            "python": package_checks.python,
            "versions": package_checks.locked_versions,
            "mujoco": package_checks.mujoco,
            "double wheels": package_checks.double_wheels,
            "plug-ins": plugin_checks.plugins,
            "rendering": machine_checks.rendering,
            "threads": machine_checks.threads,
            "accelerator": machine_checks.accelerator,
            "sandbox": machine_checks.sandbox,
            "disk": partial(machine_checks.disk, self.out),
            "durable writes": partial(machine_checks.durable_writes, self.out),
        }


def run(arguments: Doctor) -> int:
    """Print every finding; return 1 if one is a problem."""
    findings = [finding for name, check in arguments.checks.items() for finding in _attempt(name, check)]
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    return int(any(finding.level == "problem" for finding in findings))


def _show(findings: list[Finding]) -> None:
    console = PlainConsole(highlight=False, soft_wrap=True)
    for finding in findings:
        console.print(f"{SIGNS[finding.level]}  {escape(finding.text)}")
        if finding.fix:
            console.print(f"         do: {escape(finding.fix)}")


def _attempt(name: str, check: Check) -> list[Finding]:
    try:
        return list(check())
    except Exception as error:  # a broken package may raise any error, and the other checks must still run
        return [Finding("problem", f"the check {name!r} failed: {type(error).__name__}: {error}", package_checks.INSTALL_LOCK)]
