"""robo-rl reward calls, robo-rl reward packs: language model calls of a run, and the included replies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_rl.rewards.chat.log import Record, account, read_log
from robo_rl.rewards.chat.packs import Pack, pack_files, read_pack

SHOWN = 1000
"""Characters of a message that are shown."""


@dataclass(frozen=True)
class Calls:
    """Show a run's calls to a language model, and their cost."""

    log: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="LOG")]
    """calls.jsonl of a run, or its folder."""
    show: int = 0
    """Number of the last calls to print in full."""


@dataclass(frozen=True)
class Packs:
    """List packs of replies made by hand or by rule, or show one."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PACK")] = ""
    """Which one to show; also a file."""


def show_calls(arguments: Calls) -> int:
    """Print the account of a log, and its last calls."""
    records, torn = read_log(arguments.log)
    print(account(records))
    if torn:
        print(f"the last line is torn ({torn} bytes) and left out")
    for record in records[len(records) - arguments.show :] if arguments.show > 0 else []:
        print(_call(record))
    return 0


def list_packs(arguments: Packs) -> int:
    """Print the packs, or the content of one."""
    if arguments.name:
        print(_whole(read_pack(arguments.name).pack))
        return 0
    for name in pack_files():
        pack = read_pack(name).pack
        print(f"{name:28} made {pack.made}; {pack.method} on {pack.task}: {pack.about}")
    return 0


def _call(record: Record) -> str:
    """Return the full text of a call."""
    head = f"\n=== {record['purpose']}, prompt {record['round']}, sample {record['sample']}: {record['status']}"
    facts = f"{record['origin']}, {record['attempts']} attempts, {record['seconds']:g} s, cost {record['cost']:.4g}"
    said = [f"--- {message['role']}\n{_shown(message['text'])}" for message in record["messages"]]
    return "\n".join([f"{head} ({facts})", *said, f"--- {record['model'] or 'nobody'}\n{record['raw']}"])


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n... ({len(text) - SHOWN} characters more)"


def _whole(pack: Pack) -> str:
    """Return the description of a pack, and its number of replies."""
    lines = [f"made {pack.made}, not by a model; {pack.author}", f"{pack.method} on {pack.task}: {pack.about}"]
    for purpose, entries in pack.replies.items():
        counts = [len(entry) if isinstance(entry, list) else len(entry.samples) for entry in entries]
        lines.append(f"{purpose:20} {len(counts)} prompts or rules with {', '.join(map(str, counts))} replies")
    return "\n".join(lines)
