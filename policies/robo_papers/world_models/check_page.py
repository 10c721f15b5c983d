"""Page with the check of a world: verdict, film, errors, calibration, policies, distance to the data; it works offline."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from markupsafe import Markup

from robo_papers.world_models.check import Beside, Check
from robo_papers.world_models.world import World
from robo_rl.evaluation.figures import Figure, shown
from robo_rl.report import template
from robo_rl.report.charts import Across, Series, line_chart
from robo_rl.report.films import embed_film
from robo_rl.runs.run import write_text

ERRORS = (("the world", 0), ("nothing changes", 1))
ERROR_NOTE = "Deviations of the recorded states; the band is the 95% interval over episodes."
CALIBRATION_NOTE = "Recorded numbers in a central part of the predictions; a calibrated world lies on the grey line."
FILM = "recorded on the left, imagined from the same actions on the right"


def write_check(check: Check, world: World, out: Path, film: Path | None = None) -> Path:
    """Write the page to `out` and return `out`; film: of an episode, recorded and imagined side by side, if there is one."""
    page = template("check_page", __package__).render(
        check=check,
        fitted=world.facts,
        spec=world.spec,
        film=embed_film(film, FILM) if film else None,
        written=f"{datetime.now():%d %B %Y, %H:%M}",
        errors=[
            (horizon, shown(check.errors[horizon]), shown(check.trivial[horizon]), shown(saved, rate=True), saved.n)
            for horizon, saved in check.saved.items()
        ],
        figures=[
            ("error that the right actions save after 5 steps, beside actions of other moments", *_row(check.by_actions)),
            ("variance of rewards that is explained", *_row(check.rewards)),
            ("rank correlation of the members' disagreement and the error", *_row(check.by_doubt, rate=False)),
            ("rank correlation of the distance to the data and the error", *_row(check.by_distance, rate=False)),
        ],
        charts=[("Error by steps", ERROR_NOTE, _errors(check)), ("Calibration", CALIBRATION_NOTE, _calibrated(check))],
        errors_legend=ERRORS,
        policies=[(each.name, _sides(each)) for each in check.policies],
        order=None if check.order is None else shown(check.order),
        near=[("the compared episodes", check.near), *((each.name, each.near) for each in check.policies)],
    )
    write_text(out, page)
    return out


def _row(figure: Figure, *, rate: bool = True) -> tuple[tuple[str, str], str]:
    """Return a figure's text, and what it was counted over."""
    return shown(figure, rate=rate), f"{figure.n:,} {figure.of}"


def _sides(policy: Beside) -> list[tuple[str, str]]:
    """Return imagined and real return, imagined and real success, as text."""
    found = [shown(figure) for figure in (policy.imagined_return, policy.real_return)]
    rates = (policy.imagined_success, policy.real_success)
    return found + [("–", "not known") if figure is None else shown(figure, rate=True) for figure in rates]


def _errors(check: Check) -> Markup:
    series = []
    for (label, color), figures in zip(ERRORS, (check.errors, check.trivial), strict=True):
        known = {horizon: each for horizon, each in figures.items() if each.is_measured}
        points = [(float(horizon), each.interval.estimate) for horizon, each in known.items()]
        band = [(float(horizon), each.low, each.high) for horizon, each in known.items()]
        series.append(Series(label, color, points, band))
    return line_chart(series, title="Error by steps", across=Across("steps", "step", whole=True))


def _calibrated(check: Check) -> Markup:
    known = {level: each for level, each in check.coverage.items() if each.is_measured}
    points = [(level, each.interval.estimate) for level, each in known.items()]
    band = [(level, each.low, each.high) for level, each in known.items()]
    series = [Series("calibrated", 5, [(0.0, 0.0), (1.0, 1.0)], faint=True), Series("the world", 0, points, band)]
    across = Across("central part of the predictions", "part")
    return line_chart(series, title="Calibration", y_limits=(0.0, 1.0), percent=True, across=across)
