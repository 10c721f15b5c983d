"""Write a sweep as an HTML page: the best trial with its uncertainty, the importance of settings, all trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup

from robo_rl.report import template
from robo_rl.report.charts import Across, Series, line_chart
from robo_rl.report.parallel import Axis, parallel_chart
from robo_rl.runs.run import write_text

Facts = Mapping[str, Any]


def write_sweep(facts: Facts, out: Path) -> Path:
    """Write the page for the contents of a sweep.json of `robo-rl sweep` to `out` and return `out`."""
    page = template("sweep").render(
        facts=facts,
        states=Counter(each["state"] for each in facts["trials"]),
        is_rate=facts["measure"] == "success",
        importance=[(path, share, f"{share:.0%}") for path, share in facts["importance"].items()],
        history=_history(facts),
        parallel=_parallel(facts),
        written=f"{datetime.now():%d %B %Y, %H:%M}",
    )
    write_text(out, page)
    return out


def _history(facts: Facts) -> Markup:
    """Return a chart of the objective of complete trials, and of the best so far."""
    complete = [(float(each["number"]), float(each["value"])) for each in facts["trials"] if each["value"] is not None]
    best = [(number, max(value for _, value in complete[: index + 1])) for index, (number, _) in enumerate(complete)]
    bands = [(float(e["number"]), *e["interval"][1:]) for e in facts["trials"] if e["interval"] and None not in e["interval"]]
    lines = [Series("best so far", 0, best, marked=False), Series("trial", 5, complete, band=bands)]
    limits = (0.0, 1.0) if facts["measure"] == "success" else None
    across = Across("trial", "trial", whole=True)
    return line_chart(lines, title="Objective by trial", y_limits=limits, percent=limits is not None, across=across)


def _parallel(facts: Facts) -> Markup:
    """Return all trials as lines over the settings; the unfinished ones have no objective."""
    axes = [Axis(path, **{key: value for key, value in each.items() if key != "step"}) for path, each in facts["space"].items()]
    values = [each["value"] for each in facts["trials"] if each["value"] is not None]
    if values:
        low, high = (0.0, 1.0) if facts["measure"] == "success" else (min(values), max(values))
        axes.append(Axis(facts["measure"], low, high))
    lines = []
    for each in sorted(facts["trials"], key=lambda each: (each["value"] is not None, each["value"] or 0.0)):
        known = each["values"] | ({facts["measure"]: each["value"]} if each["value"] is not None else {})
        lines.append((_style(each, facts["best"]), f"trial {each['number']}, {each['state']}", known))
    return parallel_chart(axes, lines, title="Settings of each trial")


def _style(trial: Facts, best: int | None) -> str:
    if trial["number"] == best:
        return "line c0"
    return "faint c5" if trial["value"] is not None else "faint c1"
