"""What going on online did in the runs of a study: where it started from, where it came to, what it cost on the way.

Regret is that of `robo_cli.regret`: the mean shortfall over the evaluations of the online phase (D5RL, CORL).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from robo_datasets.figures import normalised
from robo_rl.evaluation import Evaluation
from robo_rl.plain_files import read_yaml
from robo_rl.runs import Run

Phases = Mapping[tuple[str, str], Mapping[int, "Phase"]]
"""(method, dataset) -> seed -> its online phase"""


@dataclass(frozen=True)
class Phase:
    """The online phase of one run."""

    before: float
    """Normalised score after the last update from recorded data alone, in the episodes that are looked at during training."""
    after: float
    """Normalised score of the final policy, in all evaluation episodes."""
    regret: float
    """In [0, 1] where success is declared."""


def phase_of(run: Path, reference: Mapping[str, Any]) -> Phase | None:
    """Returns the online phase of a finished run; None where it had none, or no evaluation at its start."""
    offline_steps = read_yaml(run / "recipe.yaml")["steps"]
    lost = Run(run).description.get("regret")
    start = next((file for file in (run / "evaluations").glob("*.json") if int(file.stem) == offline_steps), None)
    if lost is None or start is None:
        return None
    return Phase(_score(start, reference), _score(run / "evaluation.json", reference), lost)


def phase_cell(phases: Mapping[int, Phase]) -> dict[str, list[float]]:
    """Returns name -> one value for each seed, as plain values."""
    rows = [asdict(phase) for _, phase in sorted(phases.items())]
    return {name: [round(row[name], 4) for row in rows] for name in rows[0]}


def phase_rows(facts: Mapping[str, Any]) -> list[str]:
    """Returns the table of online phases for a page; none where no run went on."""
    rows = [
        f"| {dataset} | {method} | {_told(cell['online']['before'], '.0f')} | {_told(cell['online']['after'], '.0f')} "
        f"| {_told(cell['online']['regret'], '.3f')} |"
        for dataset, row in facts["datasets"].items()
        for method, cell in row["methods"].items()
        if "online" in cell
    ]
    head = ["", "| dataset | method | offline | then online | regret |", "|---|---|---|---|---|"]
    return [*head, *rows] if rows else []


def _score(file: Path, reference: Mapping[str, Any]) -> float:
    returns = Evaluation.read(file).returns
    return fmean(normalised(value, reference) for value in returns)


def _told(values: list[float], number: str) -> str:
    """Returns the mean, and what it is the mean of: three values are too few for an interval."""
    each = ", ".join(f"{value:{number}}" for value in values)
    return f"{fmean(values):{number}} ({each})"
