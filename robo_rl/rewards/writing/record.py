"""The folder in which programs are written: every reply, and the programs; the same command resumes it.

FOLDER/search.json                 settings of the search; another search is refused
       calls.jsonl                 every call of the model
       rounds/2/2-4.md             the reply of candidate 4, and 2-4.py its program, next to its provenance
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from robo_rl.errors import RunError
from robo_rl.rewards.chat.client import SILENT
from robo_rl.rewards.chat.log import ENDED, read_log
from robo_rl.rewards.writing.candidate import Candidate
from robo_rl.runs.run import write_text

ORDER, CALLS = "search.json", "calls.jsonl"


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
    """Return True if a reply or what came of one was kept; a command with wrong settings keeps none."""
    if any(path.name not in (ORDER, CALLS) for path in folder.iterdir()):
        return True
    return (folder / CALLS).exists() and any(record["status"] not in (*SILENT, ENDED) for record in read_log(folder / CALLS)[0])


def keep_candidate(candidate: Candidate, place: Path) -> None:
    """Write the reply, and its program if there is one."""
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / f"{candidate.name}.md", candidate.text)
    if candidate.program is not None:
        candidate.program.save(place / f"{candidate.name}.py")


def keep_program(candidate: Candidate, path: Path, **facts: Any) -> None:
    """Write the program of a candidate, with `facts` added to its provenance."""
    if candidate.program is None:
        raise AssertionError(f"candidate {candidate.name} is not a program")
    provenance = {**candidate.program.provenance, **facts, "candidate": candidate.name}
    replace(candidate.program, provenance=provenance).save(path)
