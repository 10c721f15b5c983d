"""Page that shows the terms of a reward in an episode."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from robo_rl.report import template
from robo_rl.report.charts import Across, Series, line_chart, thinned
from robo_rl.rewards.shaping.pipeline import BESIDE
from robo_rl.rewards.step_rewards.steps import StepScores
from robo_rl.runs.run import write_text
from robo_rl.types import Episode

Values = npt.NDArray[np.float64]
ACROSS = Across("steps of the episode", "step")
OWN = "the environment's own"


def write_explanation(found: StepScores, episode: Episode, facts: Mapping[str, Any], out: Path) -> Path:
    """Write the page to `out` and return `out`.

    facts: reward, model, hash, dataset, environment, number of the episode.
    """
    total = np.where(found.valid, found.total, np.nan)
    terms = {name: np.asarray(values, np.float64) for name, values in found.terms.items() if name != BESIDE}
    drawn = {name: values for name, values in terms.items() if not np.array_equal(values, total, equal_nan=True)}
    lines = {"total": total, **drawn}  # the total first: later lines are drawn above it
    own = episode.rewards.astype(np.float64)
    charts = [
        ("Reward of each step", _chart("Reward of each step", lines)),
        ("Added up so far", _chart("Added up so far", {name: _summed(values) for name, values in lines.items()})),
        ("The environment's own reward, added up", _chart("Own reward", {OWN: _summed(own)}, color=5)),
    ]
    page = template("explanation_page", __package__).render(
        facts=facts,
        episode=episode,
        charts=charts,
        legend=[(name, color) for color, name in enumerate(lines)],
        rows=[_row(name, values) for name, values in {"total": total, **terms, OWN: own}.items()],
        missing=int((~found.valid).sum()),
        written=f"{datetime.now():%d %B %Y, %H:%M}",
    )
    write_text(out, page)
    return out


def _chart(title: str, lines: Mapping[str, Values], color: int = 0) -> Markup:
    """Return a line for each name over the steps, counted from 1, without missing values."""
    series = []
    for number, (name, values) in enumerate(lines.items(), color):
        points = thinned((step + 1.0, float(value)) for step, value in enumerate(values))
        series.append(Series(name, number, points, marked=False))
    return line_chart(series, title=title, across=ACROSS)


def _summed(values: Values) -> Values:
    return np.where(np.isfinite(values), np.cumsum(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)), np.nan)


def _row(name: str, values: Values) -> tuple[str, list[str]]:
    """Return the name, and sum, minimum, maximum and share of nonzero values as text."""
    known = values[np.isfinite(values)]
    if not known.size:
        return name, ["none"] * 4
    figures = [f"{value:.4g}" for value in (known.sum(), known.min(), known.max())]
    return name, [*figures, f"{np.mean(known != 0):.0%}"]
