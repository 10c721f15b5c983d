"""The folder of a search: every reply with its outcome, every training, and the winner; the same command resumes it.

FOLDER/search.json                 settings of the search; another search is refused
       calls.jsonl                 every call of the model
       rounds/2/round.json         candidates, choice, warnings
       rounds/2/2-4.md             the reply of candidate 4, and 2-4.py its program, next to its provenance
       trainings/HASH-SEED/        outcome.json, and the run
       comparisons.jsonl           answers of the comparer
       winner.py                   the program, with its provenance
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from robo_rl.errors import RunError
from robo_rl.rewards.chat.client import SILENT
from robo_rl.rewards.chat.log import ENDED, read_log
from robo_rl.rewards.search.candidates import Candidate, Round
from robo_rl.runs.run import write_text

ORDER, CALLS, TRAININGS, COMPARISONS, WINNER = "search.json", "calls.jsonl", "trainings", "comparisons.jsonl", "winner.py"


def begin(folder: Path, order: Mapping[str, Any]) -> None:
    """Create or resume the folder of a search; raise RunError if it holds another one."""
    path = folder / ORDER
    text = json.dumps(order, indent=1, sort_keys=True)
    if path.exists() and _holds_something(folder):
        before = json.loads(path.read_text())
        now = json.loads(text)
        names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if names:
            raise RunError(
                f"The folder {folder} holds a search with other settings.",
                got="; ".join(f"{name}: {now.get(name)}, there {before.get(name)}" for name in names),
                fix="another --out, or the same settings",
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def _holds_something(folder: Path) -> bool:
    """Return True if a reply, a round or a training was kept; a command with wrong settings keeps none."""
    if any((folder / name).exists() for name in ("rounds", TRAININGS, COMPARISONS)):
        return True
    return (folder / CALLS).exists() and any(record["status"] not in (*SILENT, ENDED) for record in read_log(folder / CALLS)[0])


def keep_round(each: Round, folder: Path) -> None:
    """Write replies, programs and choice of a round."""
    place = folder / "rounds" / str(each.number)
    for candidate in each.candidates:
        keep_candidate(candidate, place)
    chosen = {name: _name(getattr(each, name)) for name in ("best", "worst", "incumbent")}
    spread = {name: value for name, value in asdict(each.diversity).items() if not np.isnan(value)}
    facts = {"round": each.number, "chosen": chosen, "diversity": spread, "warnings": each.warnings}
    facts |= {"candidates": [candidate.facts() for candidate in each.candidates]}
    write_text(place / "round.json", json.dumps(facts, indent=1))


def keep_candidate(candidate: Candidate, place: Path) -> None:
    """Write the reply, and its program if there is one."""
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / f"{candidate.name}.md", candidate.text)
    if candidate.program is not None:
        candidate.program.save(place / f"{candidate.name}.py")


def keep_program(candidate: Candidate, path: Path, **facts: Any) -> None:
    """Write the program of a candidate, with `facts` and its score added to its provenance."""
    if candidate.program is None:
        raise AssertionError(f"candidate {candidate.name} is not a program")
    score = None if candidate.outcome is None else candidate.outcome.score
    provenance = {**candidate.program.provenance, **facts, "candidate": candidate.name, "score": score}
    replace(candidate.program, provenance=provenance).save(path)


def _name(candidate: Candidate | None) -> str | None:
    return None if candidate is None else candidate.name
