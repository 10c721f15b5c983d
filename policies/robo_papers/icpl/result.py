"""Results of a reward search: candidates of each round, the winner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from robo_papers.icpl.candidates import Outcome, TrainedCandidate
from robo_papers.icpl.loop import Search
from robo_papers.icpl.record import WINNER, keep_round
from robo_papers.icpl.rounds import Round
from robo_rl.rewards.writing.record import keep_program
from robo_rl.runs.run import write_text

CONFIRMED, RESULT = "confirmations", "result.json"


def shown_rounds(search: Search[Any], out: Path) -> list[Round]:
    """Return the rounds of a search; each is kept in its folder and printed when it ends."""
    rounds = []
    for each in search.rounds():
        keep_round(each, out)
        rounds.append(each)
        for candidate in each.candidates:
            print(f"  {candidate.name:6} {_summary(candidate)}")
        for warning in each.warnings:
            print(f"  WARNING {warning}")
        best = each.incumbent
        print(
            f"round {each.number}: {each.diversity}; best so far {best.name + ', ' + _summary(best) if best else 'none'}",
            flush=True,
        )
    return rounds


def _summary(candidate: TrainedCandidate) -> str:
    if candidate.outcome is not None and candidate.outcome.score is not None:
        return f"success {candidate.outcome.score:.1%}"
    return f"{candidate.status}: {' '.join(candidate.reason.split())[:140]}"


def keep_winner(winner: TrainedCandidate, confirmed: list[Outcome], rounds: list[Round], out: Path, **facts: Any) -> int:
    """Keep the winner and the result in the folder of a search, and print them; returns the exit status, 0."""
    scores = [outcome.score for outcome in confirmed]
    keep_program(winner, out / WINNER, **facts, score=winner.merit[0], confirmed=scores)
    by_chance = _by_chance(rounds)
    result = facts | {"winner": winner.name, "score": winner.merit[0], "confirmed": scores, "chosen by chance": by_chance}
    write_text(out / RESULT, json.dumps(result, indent=1))
    print(f"winner   candidate {winner.name}, {_summary(winner)}: {out / WINNER}")
    if scores:
        shown = ", ".join("failed" if score is None else f"{score:.1%}" for score in scores)
        print(f"again    from {len(scores)} other seeds, in other episodes: {shown}")
    shown = ", ".join(f"{mean:.1%} ({name})" for name, mean in by_chance.items() if mean is not None)
    print(f"chance   a program drawn at random reaches in the mean {shown}")
    print(f"use it:  robo-rl train RECIPE --reward.name program:{out / WINNER}")
    return 0


def keep_failure(best: TrainedCandidate | None, rounds: list[Round], out: Path, **facts: Any) -> int:
    """Keep and print the result of a search in which no candidate succeeded; returns the exit status, 1."""
    score = None if best is None else best.merit[0]
    result = facts | {"winner": None, "score": score, "best": best and best.name, "confirmed": []}
    write_text(out / RESULT, json.dumps(result | {"chosen by chance": _by_chance(rounds)}, indent=1))
    if best is None:
        print("no program could be used: see the reasons above")
        return 1
    during = f"; while it learnt {best.merit[1]:.1%} in the mean" if best.merit[1] else ""
    print(f"no candidate succeeded: the best score is {score:.1%}, of candidate {best.name}{during}")
    print("there is no winner: train longer (--recipe.steps ...), search on with more rounds, or make the task easier")
    return 1


def _by_chance(rounds: list[Round]) -> dict[str, float | None]:
    return {"first round": _mean_score(rounds[:1]), "all rounds": _mean_score(rounds)}


def _mean_score(rounds: list[Round]) -> float | None:
    """Return the mean over all requested programs; an unusable one counts as 0."""
    asked = [each for round in rounds for each in round.candidates if each.status != "budget"]
    scores = [(each.outcome.score or 0.0) if each.outcome else 0.0 for each in asked]
    return float(np.mean(scores)) if scores else None
