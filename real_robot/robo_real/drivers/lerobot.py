"""Driver of any LeRobot robot with position servos, such as the SO-101 or Koch arm, in LeRobot's own environment.

LeRobot's robots report and take the positions of their motors, in units of their own. A YAML file maps the motors to the joints
of a model of the arm. Pose and Jacobian of the hand follow from the model, so that the guard treats this arm as any other:

    robot: {type: so101_follower, port: /dev/ttyACM0, id: left}    # LeRobot's own config
    model: so101.xml                                              # MJCF or URDF, beside this file
    hand: tool                                                    # site or body, z pointing out of the hand; or a frame
    joints:                                                       # of the model, in order
      shoulder_pan: {feature: shoulder_pan.pos}
      ...
    gripper: {feature: gripper.pos, closed: 2, open: 95, width: 0.07}
    cameras: {front: [480, 640]}                                  # of the robot's config: height and width

These robots measure no force, so no limit of force stops them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robo_real.bridged.arm import BridgedArm
from robo_real.bridged.arm_mapping import ArmMapping
from robo_real.bridged.lerobot_process import LeRobotFile, lerobot_process
from robo_real.clock import Clock, MonotonicClock
from robo_rl.errors import InvalidSetting
from robo_rl.settings import settings_as
from robo_rl.system.plain_files import read_yaml


@dataclass(frozen=True)
class LeRobotOptions:
    """Options of the driver `lerobot`: the file of the robot, and the interpreter in which it runs."""

    config: Path | None = None
    """required: YAML file that maps the robot to a model of the arm"""
    python: str = "python"
    """Python interpreter of the environment in which lerobot is installed"""


@dataclass(frozen=True, kw_only=True)
class LeRobotConfig(LeRobotFile):
    """Content of the YAML file of `LeRobotOptions.config`."""

    robot: Mapping[str, Any]
    """LeRobot's own config of the robot, with its key `type`."""
    cameras: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """name of a camera in LeRobot's config -> height and width [pixel] of its pictures"""


class LeRobotArm(BridgedArm):
    """Driver of an arm that LeRobot's class `Robot` drives, in a process of its own."""

    name = "robot/LeRobot"
    options = LeRobotOptions

    def __init__(self, options: LeRobotOptions | None = None, clock: Clock | None = None) -> None:
        """Read the YAML file; `connect` starts the process.

        Raises:
            InvalidSetting: The file is missing or contradicts itself.
            UnknownName: A setting, joint or hand of the file is unknown.
        """
        options = options or LeRobotOptions()
        if options.config is None:
            raise InvalidSetting(
                "The driver lerobot needs a file that maps the robot to a model of the arm.",
                allowed="a YAML file",
                fix="--driver.settings.config FILE; docs/robots/lerobot.md has one to start from",
            )
        config: LeRobotConfig = settings_as(LeRobotConfig, read_yaml(options.config), source=str(options.config))
        process = lerobot_process(options.python, "robot", config.robot, config, options.config.parent)
        super().__init__(self.name, clock or MonotonicClock(), ArmMapping(config, options.config), process, config.cameras)
