"""robo-rl watch: look at trainings in the browser while they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.display.browser import serve
from robo_app.watching.selection import Selection

EXAMPLES = """robo-rl watch     (the newest run of runs/, also one that begins later)
robo-rl watch '*-arm-pick-rlpd-*'     (training seeds on one page)
robo-rl watch RUN_A RUN_B
robo-rl watch runs/arm-pick-sweep     (all trainings of a sweep or an experiment)
robo-rl watch latest --once page.html     (a page of this moment that needs no server)"""


@dataclass(frozen=True)
class Watch:
    """Show trainings on a page of this machine: state, films, curves, interventions, speed, errors; read from their folders."""

    run: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[RUN ...]")] = ()
    """Runs: path, name, "latest", a pattern, or a folder of several; one that does not exist yet is waited for."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    port: int = 8646
    """Port on 127.0.0.1, which no other machine reaches; 0 takes any free one."""
    browser: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = True
    """Leave the browser alone; without this the page opens in it if there is a display."""
    once: Annotated[Path | None, tyro.conf.arg(metavar="FILE.html")] = None
    """Write the page of this moment to a file instead of serving it."""


def run(arguments: Watch) -> int:
    """Serve the page until Ctrl-C, or write it once."""
    selection = Selection(arguments.run, arguments.runs)
    title = ", ".join(selection.names)
    if arguments.once is not None:
        from robo_app.watching.view import write_snapshot

        print(write_snapshot(selection, title, arguments.once))
        return 0
    from robo_app.watching.server import WatchServer

    with WatchServer(selection, arguments.port) as server:
        serve(server, f"{title}:", opens=arguments.browser)
    return 0
