"""Write the audit of a reward as an HTML page that works offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from robo_rl.evaluation.figures import Figure, shown
from robo_rl.report import template
from robo_rl.report.charts import COLORS, Across, Series, bar_chart, line_chart
from robo_rl.rewards.audit.result import POINTS, Audit, Curve
from robo_rl.rewards.audit.verdict import USELESS
from robo_rl.runs.run import write_text

RATES = {"pairs", "success by", "missing"}
MEANINGS = {
    "reward, steps": "Spearman of reward and recorded reward, over steps",
    "progress, steps": "Spearman of score and true progress, over steps",
    "mean reward, episodes": "Spearman of mean reward and mean recorded reward, over episodes",
    "return, episodes": "Spearman of the sum of rewards and the recorded return, over episodes",
    "length and return, episodes": "the same for a reward of 1 at every step, which says nothing",
    "reward, pairs": "pairs of steps ordered as the recorded reward orders them",
    "reward, close pairs": "the same, pairs about one step's change apart",
    "progress, pairs": "pairs of steps ordered as true progress orders them",
    "progress, close pairs": "the same, pairs about one step's change apart",
    "success by last score": "area under the ROC curve of success, by the last score",
    "success by mean reward": "area under the ROC curve of success, by the mean reward",
    "order in time": "value-order correlation of successful episodes",
    "missing": "labels that are missing",
    "missing in successes": "missing labels in a successful episode",
    "missing in failures": "missing labels in a failed episode",
    "mean": "mean reward of a step",
    "deviation": "standard deviation of the rewards",
    "roughness": "jumps between neighbouring scores: 0 smooth, 1 noise",
    "unlike when asked again": "difference of two answers about the same clip, in deviations",
    "gain under the wrong text": "rise of the score under the wrong text, of that under the right one",
    "gain while held still": "rise of the score while nothing moves, of that of the whole clip",
    "paid for waiting": "mean reward of a step in the held half of a loitering clip",
    "paid for going on": "mean reward of a step in the same half of the real clip",
}


def write_audit(audit: Audit, facts: Mapping[str, Any], out: Path) -> Path:
    """Write the page to `out` and return `out`; facts: about the reward and its data."""
    page = template("page", __package__).render(
        audit=audit,
        facts=facts,
        written=f"{datetime.now():%d %B %Y, %H:%M}",
        tables={"Agreement with the recording": _rows(audit.agreement), "Scale, noise, gaps": _rows(audit.scale)},
        comparisons=_rows(audit.comparisons),
        controls=[
            (each.name, each.paid.n, [shown(getattr(each, name)) for name in ("order", "gain", "last", "paid")])
            for each in audit.controls
        ],
        charts=_charts(audit),
        legend=[
            (f"{curve.name} (n = {curve.n})", color % COLORS)
            for color, curve in enumerate(audit.curves)
            if np.isfinite(curve.mean).any()
        ],
        cost=_cost(audit),
        useless=f"{USELESS:.0%}",
    )
    write_text(out, page)
    return out


def _rows(figures: Mapping[str, Figure]) -> list[tuple[str, Figure, tuple[str, str]]]:
    """Return the meaning, the figure and its text for all figures, also those without data."""
    return [
        (MEANINGS[name], figure, shown(figure, rate=any(word in name for word in RATES))) for name, figure in figures.items()
    ]


def _charts(audit: Audit) -> list[tuple[str, str, Markup]]:
    """Return title, explanation and drawing of the charts that have data."""
    curves = [_over_time(curve, color) for color, curve in enumerate(audit.curves)]
    over_time = line_chart(curves, title="Score over time", across=Across("share of the clip", "share"))
    failures = Across("share of failures", "share")
    roc = line_chart(_roc(audit.roc), title="ROC", y_limits=(0.0, 1.0), percent=True, across=failures)
    found = [
        ("Score over time", "Mean score of the clips; the band is the 95% interval over clips.", over_time),
        ("Success by last score (ROC)", "Failures and successes above all thresholds of the last score; grey: a coin.", roc),
        _calibration(audit),
        ("Rewards", "How often each reward was given.", bar_chart(*audit.histogram, title="Rewards", across="reward")),
    ]
    return [chart for chart in found if chart[2]]


def _over_time(curve: Curve, color: int) -> Series:
    times = np.linspace(0, 1, POINTS)
    points = [(float(x), y) for x, y in zip(times, curve.mean, strict=True) if np.isfinite(y)]
    band = [(float(x), low, high) for x, low, high in zip(times, curve.low, curve.high, strict=True)]
    return Series(
        curve.name, color, points, band if curve.name in ("successes", "failures", "episodes") else (), faint=color > 1
    )


def _roc(points: Sequence[tuple[float, float]]) -> list[Series]:
    if not points:
        return []
    return [Series("coin", 5, [(0.0, 0.0), (1.0, 1.0)], faint=True), Series("this reward", 0, points)]


def _calibration(audit: Audit) -> tuple[str, str, Markup]:
    bins = audit.calibration
    is_probability = audit.calibration_error is not None
    places = [each.score if is_probability else index for index, each in enumerate(bins, 1)]
    points = [(x, each.rate.estimate) for x, each in zip(places, bins, strict=True)]
    band = [(x, each.rate.low, each.rate.high) for x, each in zip(places, bins, strict=True)]
    series = [Series("episodes", 0, points, band)]
    if is_probability:
        series = [Series("calibrated", 5, [(0.0, 0.0), (1.0, 1.0)], faint=True), *series]
        text = "How often episodes with such a last score succeeded; a calibrated probability lies on the grey line."
        text += f" Expected calibration error {audit.calibration_error:.3f}."
        across = Across("last score", "score")
    else:
        text, across = (
            "Successes among episodes with low to high last scores, in groups of about equal size.",
            Across("group", "group"),
        )
    drawn = line_chart(series if bins else [], title="Calibration", y_limits=(0.0, 1.0), percent=True, across=across)
    return "Calibration", text, drawn


def _cost(audit: Audit) -> str:
    if audit.seconds_per_1000 is None:
        return "Existing labels; the model was not called."
    tokens = "" if audit.tokens_per_1000 is None else f", {audit.tokens_per_1000:,.0f} tokens"
    return f"{audit.seconds_per_1000:.3g} s{tokens} for 1,000 steps, as requested here, the first episode left out."
