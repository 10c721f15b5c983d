"""Page on a search for a reward program: candidates, errors, curves, the winner and the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from robo_papers.icpl.candidates import Outcome, TrainedCandidate
from robo_papers.icpl.rounds import Round
from robo_rl.report import template
from robo_rl.report.charts import COLORS, Across, Series, line_chart
from robo_rl.runs.run import write_text

REASONS = {
    "eureka": "It was chosen because its policy reached declared success most often, in episodes not trained on. Its "
    "own rewards count for nothing.",
    "icpl": "It was chosen by comparisons of policies alone. The success below was shown neither to the model nor, unless "
    "it is an oracle, to the rater.",
}


def write_search(rounds: Sequence[Round], confirmed: Sequence[Outcome], facts: Mapping[str, Any], out: Path) -> Path:
    """Write the page to `out` and return it; facts: task, method, settings and reason of the end."""
    candidates = [each for round in rounds for each in round.candidates]
    winner = rounds[-1].incumbent if rounds else None
    page = template("page", __package__).render(
        facts=facts,
        winner=winner,
        has_won=any(each.has_succeeded for each in candidates),
        why=REASONS[facts["method"]],
        confirmed=confirmed,
        rounds=[(each, [_row(candidate, each) for candidate in each.candidates]) for each in rounds],
        errors=Counter(each.status for each in candidates if each.status != "ok").most_common(),
        trained=sum(each.is_scored for each in candidates),
        count=len(candidates),
        charts=[(title, chart) for title, chart in _charts(rounds, winner) if chart],
        colors=COLORS,
        written=f"{datetime.now():%d %B %Y, %H:%M}",
    )
    write_text(out, page)
    return out


def _row(candidate: TrainedCandidate, round: Round) -> Mapping[str, Any]:
    chosen = {"best": round.best, "worst": round.worst, "incumbent": round.incumbent}
    marks = [name for name, other in chosen.items() if other is not None and other.name == candidate.name]
    lines = candidate.reason.strip().splitlines()
    return {
        "candidate": candidate,
        "score": candidate.outcome.score if candidate.outcome is not None else None,
        "marks": ", ".join(marks),
        "reason": lines[0] if lines else "",
        "details": "\n".join(lines[1:]),
        "repairs": candidate.repairs,
    }


def _charts(rounds: Sequence[Round], winner: TrainedCandidate | None) -> Iterator[tuple[str, Any]]:
    scores = [
        (float(each.number), each.incumbent.outcome.score) for each in rounds if each.incumbent and each.incumbent.outcome
    ]
    incumbent = Series("incumbent", 0, [(place, score) for place, score in scores if score is not None])
    across = Across("round", "round")
    yield (
        "Success of the best program so far",
        line_chart([incumbent], title="Success", y_limits=(0.0, 1.0), percent=True, across=across),
    )
    learning = [_course(each, winner) for round in rounds for each in round.candidates if each.is_scored]
    yield (
        "Success while learning, each candidate; the winner is thick",
        line_chart(learning, title="Learning", y_limits=(0.0, 1.0), percent=True),
    )
    if winner is not None and winner.outcome is not None:
        terms = [
            Series(name, color, list(enumerate(map(float, values))))
            for color, (name, values) in enumerate(winner.outcome.terms.items())
            if len(values) > 1
        ]
        yield "Terms of the winner, mean per step", line_chart(terms, title="Terms", across=Across("line of the log", "line"))


def _course(candidate: TrainedCandidate, winner: TrainedCandidate | None) -> Series:
    outcome = candidate.outcome or Outcome()
    points = [(float(step), success) for step, success in zip(outcome.steps, outcome.successes, strict=True)]
    is_winner = winner is not None and winner.name == candidate.name
    return Series(f"candidate {candidate.name}", 0 if is_winner else candidate.round, points, faint=not is_winner)
