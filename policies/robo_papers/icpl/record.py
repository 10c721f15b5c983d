"""The folder of a search: beside replies and programs, every training, the comparisons, and the winner.

FOLDER/rounds/2/round.json         candidates, choice, warnings
       trainings/HASH-SEED/        outcome.json, and the run
       comparisons.jsonl           answers of the comparer
       winner.py                   the program, with its provenance
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from robo_papers.icpl.candidates import TrainedCandidate
from robo_papers.icpl.rounds import Round
from robo_rl.rewards.writing.record import keep_candidate
from robo_rl.runs.run import write_text

TRAININGS, COMPARISONS, WINNER = "trainings", "comparisons.jsonl", "winner.py"


def keep_round(each: Round, folder: Path) -> None:
    """Write the replies, programs and choices of a round into a folder."""
    place = folder / "rounds" / str(each.number)
    for candidate in each.candidates:
        keep_candidate(candidate, place)
    chosen = {name: _name(getattr(each, name)) for name in ("best", "worst", "incumbent")}
    spread = {name: value for name, value in asdict(each.diversity).items() if not np.isnan(value)}
    facts = {"round": each.number, "chosen": chosen, "diversity": spread, "warnings": each.warnings}
    facts |= {"candidates": [candidate.facts() for candidate in each.candidates]}
    write_text(place / "round.json", json.dumps(facts, indent=1))


def _name(candidate: TrainedCandidate | None) -> str | None:
    return None if candidate is None else candidate.name
