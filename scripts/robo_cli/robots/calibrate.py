"""robo-rl robot board and calibrate: a printable ChArUco board, and the pose of a camera from pictures of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from robo_real.calibration import Charuco, calibrate
from robo_real.calibration_page import write_board_page
from robo_real.calibration_result import quality, result_file
from robo_real.calibration_views import ViewCollector, read_views
from robo_real.http_client import RobotClient
from robo_rl.runs.run import write_text


@dataclass(frozen=True)
class Board:
    """Write a ChArUco board in true scale; print it at 100 % on flat, stiff paper and measure its ruler."""

    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """New file.pdf or file.png."""
    board: Charuco = field(default_factory=Charuco)


@dataclass(frozen=True)
class Calibrate:
    """Find a camera's pose in the hand or at the base from pictures of a ChArUco board; exit status 1 if it is not sound."""

    views: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    """Folder of pictures and poses; with --robot, where they are added."""
    robot: str = ""
    """Address of `robo-rl robot serve`: take views while you drive the hand, at its console or by hand. Moves nothing."""
    camera: str = "camera_wrist"
    """Camera of that robot."""
    count: int = 15
    """Views to take; Ctrl-C ends before."""
    mounting: Literal["hand", "fixed"] = "hand"
    """hand if the camera moves with the hand and the board lies still; fixed if the hand holds the board."""
    board: Charuco = field(default_factory=Charuco)
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("camera.yaml")
    """Result; a file of that name is replaced."""


def draw_board(arguments: Board) -> int:
    """Write the board."""
    write_board_page(arguments.board, arguments.out)
    print(f"written  {arguments.out}: print at 100 %, measure the ruler, and give what a square measures as --board.square")
    return 0


def calibrate_camera(arguments: Calibrate) -> int:
    """Take views if a robot is named, then print the checks and write the result."""
    if arguments.robot:
        _collect(arguments)
    views = read_views(arguments.views)
    names = [view.name for view in views]
    result = calibrate(
        [view.picture for view in views], [view.hand for view in views], arguments.board, mounting=arguments.mounting
    )
    findings = [*quality(result, names)]
    for finding in findings:
        print(f"{'ok     ' if finding.is_fine else 'PROBLEM'}  {finding.text}")
    facts = {"name": arguments.camera, "robot": arguments.robot, "folder": str(arguments.views)}
    text = result_file(result, arguments.board, names, views[0].picture.shape[1::-1], facts)
    write_text(arguments.out, text)
    place = ", ".join(f"{value:.4f}" for value in result.camera[:3, 3])
    where = "the hand" if arguments.mounting == "hand" else "the base"
    print(f"camera   at {place} m in the frame of {where}\nwritten  {arguments.out}")
    return int(not all(finding.is_fine for finding in findings))


def _collect(arguments: Calibrate) -> None:
    with closing(RobotClient(arguments.robot)) as client:
        collector = ViewCollector(client, arguments.camera, arguments.board, arguments.views)
        print("Move the hand so that the board is seen, let it stand for a second, and tilt it for the next view.", flush=True)
        collector.collect(arguments.count, lambda text: print(text, flush=True))
