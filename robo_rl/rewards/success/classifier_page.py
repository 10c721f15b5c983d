"""HTML page on the reliability of a success classifier on held-out episodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from robo_rl.report import template
from robo_rl.report.charts import Across, Series, line_chart
from robo_rl.rewards.success.classifier import ClassifierConfig
from robo_rl.rewards.success.examples import Measured
from robo_rl.runs.run import write_text


def write_classifier(found: Measured, config: ClassifierConfig, facts: Mapping[str, Any], out: Path) -> Path:
    """Write the page to `out` and return `out`; facts: origin of the classifier, such as dataset and environment."""
    points = [(each.score, each.rate.estimate) for each in found.bins]
    band = [(each.score, each.rate.low, each.rate.high) for each in found.bins]
    series = [Series("calibrated", 5, [(0.0, 0.0), (1.0, 1.0)], faint=True), Series("moments", 0, points, band)]
    across = Across("probability of success", "probability")
    page = template("classifier_page", __package__).render(
        found=found,
        config=config,
        facts=facts,
        chart=line_chart(series, title="Reliability", y_limits=(0.0, 1.0), percent=True, across=across),
        written=f"{datetime.now():%d %B %Y, %H:%M}",
    )
    write_text(out, page)
    return out
