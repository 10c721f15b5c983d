"""robo-rl robot tare: zero the force sensor of a served robot."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import tyro

from robo_real.remote_robot import RemoteRobot


@dataclass(frozen=True)
class TareForce:
    """Zero the force sensor of an arm that stands and touches nothing; refused in motion, in contact and above soft_force."""

    url: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="URL")]
    """Such as http://127.0.0.1:5000."""


def tare(arguments: TareForce) -> int:
    """Print the measurements before and after."""
    with closing(RemoteRobot(arguments.url, owner="robo-rl robot tare")) as robot:
        robot.connect()
        found = robot.tare()
    print(f"before   force {list(found.force)} N, torque {list(found.torque)} N m; now zero, {found.left} N left")
    print(f"noise    {found.noise} N (standard deviation), drift {found.drift} N/s")
    print(f"payload  the force along z is the weight of {found.payload} kg; if the robot knows its payload it is an offset")
    print(f"total    {list(found.total)} N since the server started; it holds in this orientation of the hand")
    return 0
