"""Write an HTML page about one or more runs; it works offline, on phones and desktops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.measures import Measure
from robo_rl.evaluation.statistics import Interval
from robo_rl.report.charts import GREY, share_bar
from robo_rl.report.curves import Curves
from robo_rl.report.films import embed_films
from robo_rl.report.headline import duration, headline
from robo_rl.report.reading import ACTIVITIES, OTHER, RecordedRun, read_runs
from robo_rl.rollout.episode import SUCCESS_CONVENTION
from robo_rl.runs.run import write_text

__all__ = ["ROBUSTNESS", "template", "write_report"]
ROBUSTNESS = "robustness.html"
"""Name of the page that `robo-rl evaluate RUN --perturb PLAN` writes into the run folder."""


def write_report(runs: Sequence[Path], out: Path) -> Path:
    """Write the report on run folders to `out` and return `out`; raises RunNotFound.

    Parts of a run that are missing or damaged are left out, with a warning on the page.
    """
    recorded = read_runs(runs)
    curves = Curves(recorded)
    judged = [pair for run in recorded for pair in run.judged]
    page = template("page").render(
        title=", ".join(dict.fromkeys(run.name for run in recorded)),
        written=f"{datetime.now():%d %B %Y, %H:%M}",
        headlines=[headline(group) for group in curves.groups],
        films=embed_films(recorded),
        curves=curves.evaluations(),
        legend=curves.legend,
        runs=recorded,
        judged=judged,
        measures=_measures(judged),
        commands={label: str(each.commands) for label, each in judged if each.commands is not None},
        ends={label: Counter(each.stop_reasons).most_common() for label, each in judged},
        conditions=list({(each.success_rule, each.seeds, each.deterministic): each for _, each in judged}.values()),
        convention=SUCCESS_CONVENTION,
        times=_times(recorded),
        losses=curves.metrics(lambda tag: tag.startswith(("train/", "time/fps"))),
        recipes=[group[0] for group in curves.groups],
        endures=(recorded[0].path / ROBUSTNESS).exists() and out.parent.resolve() == recorded[0].path.resolve(),
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page)
    return out


def template(name: str, package: str = __name__) -> jinja2.Template:
    """Return the page template `name`.html.jinja of a package, with the common style; it may include parts of this one."""
    environment = jinja2.Environment(
        autoescape=True,  # every text of a run is foreign: a recipe may say <script>
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(lambda part: files(__name__).joinpath(part).read_text()),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": duration}
    style = Markup(files(__name__).joinpath("style.css").read_text())
    return environment.from_string(files(package).joinpath(f"{name}.html.jinja").read_text(), globals={"style": style})


def _measures(judged: Sequence[tuple[str, Evaluation]]) -> list[tuple[Measure, list[tuple[str, Interval, Interval | None]]]]:
    """Return each of the environment's measures with its values, and shares above its limit, by evaluation."""
    known = dict.fromkeys(measure for _, each in judged for measure in each.measures)
    return [
        (
            measure,
            [
                (label, each.measure_intervals[measure.name], each.exceeded.get(measure.name))
                for label, each in judged
                if measure in each.measures
            ],
        )
        for measure in known
    ]


def _times(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """Return a bar for each run, and the common legend: (activity, seconds, share of the total, color)."""
    timed = [run for run in runs if run.time_split and run.seconds > 0]
    named = [name for name in dict.fromkeys(ACTIVITIES.values()) if name != OTHER]
    colors = dict(zip(named, (color for color in range(len(named) + 1) if color != GREY), strict=True)) | {OTHER: GREY}
    total = sum((Counter(run.time_split) for run in timed), Counter())
    seconds = sum(total.values())
    return {
        "bars": [(run, share_bar(run.time_split, colors, title="Time by activity")) for run in timed],
        "legend": [(name, total[name], total[name] / seconds, colors[name]) for name in colors if name in total],
    }
