"""robo-rl pull: a run or a dataset from where robo-rl push sent it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.sharing.transfer import pull

EXAMPLES = """robo-rl pull hf://me/arm-pick-rlpd --out runs/arm-pick-rlpd
robo-rl pull s3://bucket/pick --out data/pick"""


@dataclass(frozen=True)
class Pull:
    """Fetch a run or a dataset; every file is compared with its digest, and none can run code."""

    url: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="URL")]
    """Address that it was pushed to."""
    out: Path
    """Folder to make, such as runs/NAME."""


def run(arguments: Pull) -> int:
    """Print what arrived."""
    got = pull(arguments.url, arguments.out)
    print(f"{arguments.out}: {got.kind} {got.name}, {len(got.files)} files, {got.size / 1e6:.1f} MB, all as they were sent")
    return 0
