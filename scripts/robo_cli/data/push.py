"""robo-rl push: a run or a dataset to a folder, an object store or the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.sharing.payload import kind_of
from robo_app.sharing.transfer import push
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import find_run

EXAMPLES = """robo-rl push latest /media/usb/pick
robo-rl push latest hf://me/arm-pick-rlpd              (the token is the client's own: hf auth login)
robo-rl push data/pick hf://datasets/me/pick
robo-rl push data/pick s3://bucket/pick                (needs s3fs)"""


@dataclass(frozen=True)
class Push:
    """Send a run or a dataset, with a card made from its report; what looks like a token or a key is refused."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN|DATASET")]
    """Run (path, name or "latest") or folder of a dataset."""
    url: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="URL")]
    """New folder, address of a store that fsspec knows, hf://USER/NAME or hf://datasets/USER/NAME."""
    resumable: bool = False
    """Send a run's replay memory, too, so that its training can go on."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""


def run(arguments: Push) -> int:
    """Print what was sent."""
    sent = push(_folder(arguments.what, arguments.runs), arguments.url, resumable=arguments.resumable)
    print(f"{arguments.url}: {sent.kind} {sent.name}, {len(sent.files)} files, {sent.size / 1e6:.1f} MB")
    return 0


def _folder(what: str, runs: Path) -> Path:
    try:
        kind_of(Path(what))
    except InvalidSetting:
        return find_run(what, runs).path
    return Path(what)
