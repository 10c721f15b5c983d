"""robo-rl robot setup: propose the limits of a robot from positions to which you drive its hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.free_settings import DriverSettings
from robo_app.robots.setup import driven_robot, limits_file, require_new, watch_drive
from robo_real.workspace import Margins


@dataclass(frozen=True)
class Setup:
    """Propose a workspace box and limits from positions to which you drive the hand, and write them as a limits file."""

    url: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[URL]")] = ""
    """A robot that is served, and driven at its console."""
    driver: str = ""
    """Or a robot that is not served yet, moved by hand: fake, ur, franka-http, or one of your own."""
    options: DriverSettings = field(default_factory=dict)
    """Setting of the driver, such as --driver.settings.address 192.168.1.10"""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("limits.yaml")
    """New limits file."""
    seconds: float | None = None
    """Length of the drive; Ctrl-C ends it by default."""
    freedrive: bool = False
    """Switch freedrive on meanwhile, if the driver can (ur)."""
    base: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Limits file for all that no drive shows; by default the robot's own limits, or slow and weak ones."""
    speed: float | None = None
    """[m/s] Fastest hand, accelerations and turns in proportion; by default that of the base."""
    margins: Margins = field(default_factory=Margins)


def setup(arguments: Setup) -> int:
    """Watch the drive, write the file and show it."""
    require_new(arguments.out)  # before the drive
    where = (arguments.url, arguments.driver, arguments.options, arguments.base, arguments.freedrive)
    with driven_robot(*where) as source:
        print("Drive the hand to every corner of its workspace: left, right, near, far, up to the top, down to the table.")
        print("Turn it as far as the task needs. Ctrl-C ends the drive." if arguments.seconds is None else "")
        poses = watch_drive(source, arguments.seconds, lambda text: print(text, flush=True))
    limits, notes = limits_file(source, poses, arguments.margins, arguments.speed, arguments.out)
    print("\n".join(["", *notes]))
    print(f"box      {list(limits.box_low)} to {list(limits.box_high)} m, tilt {limits.tilt}, turn {limits.turn} rad")
    print(f"speed    {limits.speed} m/s; forces soft {limits.soft_force}, hard {limits.hard_force} N")
    print(f"written  {arguments.out}; look at it, then robo-rl robot serve {source.serve} --limits {arguments.out}")
    return 0
