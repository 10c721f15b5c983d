"""The folder of a search for programs: all replies and programs; the same command resumes the search.

FOLDER/search.json                 settings of the search; one with other settings is refused
       calls.jsonl                 all calls of the model
       rounds/2/2-4.md             reply of candidate 4, with its program and provenance in 2-4.py
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
    """Create the folder of a search, or resume the search in it; raises RunError if it contains another search.

    order: settings of the search.
    """
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
    """Return True if the folder contains a result or an answered call; wrong settings leave neither."""
    if any(path.name not in (ORDER, CALLS) for path in folder.iterdir()):
        return True
    return (folder / CALLS).exists() and any(record["status"] not in (*SILENT, ENDED) for record in read_log(folder / CALLS)[0])


def keep_candidate(candidate: Candidate, place: Path) -> None:
    """Write the answer of a candidate, and its program if there is one, into a folder."""
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / f"{candidate.name}.md", candidate.text)
    if candidate.program is not None:
        candidate.program.save(place / f"{candidate.name}.py")


def keep_program(candidate: Candidate, path: Path, **facts: Any) -> None:
    """Write a candidate's program, with `facts` added to its provenance; raise AssertionError if it has none."""
    if candidate.program is None:
        raise AssertionError(f"candidate {candidate.name} is not a program")
    provenance = {**candidate.program.provenance, **facts, "candidate": candidate.name}
    replace(candidate.program, provenance=provenance).save(path)
