"""robo-rl data view: look at a recorded dataset in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.display.browser import serve
from robo_datasets.dataset import Dataset


@dataclass(frozen=True)
class View:
    """Open a page of this machine to look at episodes: cameras, signals, rewards, labels, interventions, notes."""

    dataset: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATASET")]
    port: int = 8642
    """Port on 127.0.0.1, which no other machine reaches; 0 takes any free one."""
    browser: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = True
    """Leave the browser alone; without this the page opens in it if there is a display."""


def view(arguments: View) -> int:
    """Serve the page until Ctrl-C."""
    from robo_datasets.viewer.server import viewer_server

    with viewer_server(Dataset(arguments.dataset), arguments.port) as server:
        serve(server, f"{arguments.dataset} is", opens=arguments.browser)
    return 0
