"""robo-rl data get: bring a public set from its source, or from a folder, and make a dataset of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.display.display import display
from robo_datasets.dataset import DESCRIPTION
from robo_datasets.public.fetching import fetch
from robo_datasets.public.sets import public_set, public_sets

EXAMPLES = """robo-rl data get     (lists the sets)
robo-rl data get zoo-agents
robo-rl data get donkeycar --from ~/downloads --out data/car"""


@dataclass(frozen=True)
class Get:
    """Bring a public set: source, licence, size and hash are shown first, then it is fetched, checked and converted."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")] = ""
    """Name of the set; without it all are listed."""
    out: Path | None = None
    """Folder to make; by default data/NAME."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from", metavar="FOLDER")] = None
    """Folder that holds the files already, in the place of their source."""


def get(arguments: Get) -> int:
    """Print the set's facts, then fetch it, showing progress."""
    if not arguments.name:
        for name, each in public_sets().items():
            print(f"{name:18} {each.licence:11} {each.summary}")
        return 0
    chosen, out = public_set(arguments.name), arguments.out or Path("data") / arguments.name
    print("\n".join(chosen.lines(arguments.name)))
    members = chosen.members
    before = [sum(member.size for member in members[:number]) for number in range(len(members) + 1)]
    with display(f"get {arguments.name}", before[-1], "bytes") as shown:
        notes = fetch(arguments.name, chosen, out, arguments.from_, lambda file, done: shown.update(before[file] + done, {}))
    for note in notes:
        print(f"  - {note}")
    next_step = f"`robo-rl data info {out}` describes it" if (out / DESCRIPTION).exists() else f"{len(members)} files"
    print(f"{arguments.name} is in {out}; {next_step}")
    return 0
