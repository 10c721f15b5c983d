"""robo-rl data view: look at a recorded dataset in the browser."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.display.browser import has_display
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
    """Serves the page until Ctrl-C."""
    from robo_datasets.viewer.server import viewer_server

    with viewer_server(Dataset(arguments.dataset), arguments.port) as server:
        try:
            print(f"{arguments.dataset} is shown at {server.url}   (Ctrl-C ends it)", flush=True)
            if arguments.browser and has_display():
                webbrowser.open(server.url)
            server.wait()
        except KeyboardInterrupt:
            print("\nended")
    return 0
