"""Driver of any arm behind topics of ROS 2: joint states in, joint positions out, in the interpreter that has rclpy.

    setup: /opt/ros/jazzy/setup.bash                    # sourced first, and that of a workspace of yours
    states: /joint_states                               # sensor_msgs/JointState, in any order of its joints
    commands: {topic: /arm_controller/joint_trajectory, type: JointTrajectory}      # or Float64MultiArray
    model: arm.xml                                      # MJCF or URDF, beside this file
    hand: tool0                                         # site or body, its z axis pointing out of the hand
    joints: [shoulder_pan_joint, ...]                   # of the model, if ROS names them alike
    gripper: {feature: finger_joint, closed: 0.0, open: 0.04, width: 0.08}
    gripper_commands: {action: /gripper_controller/gripper_cmd, max_effort: 20}     # control_msgs/GripperCommand
    cameras: {front: {topic: /camera/image_raw, size: [480, 640]}}                  # sensor_msgs/Image

Joint states carry no force of the hand: no limit of force stops such an arm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from robo_real.bridged.arm import BridgedArm
from robo_real.bridged.arm_mapping import ArmFile, ArmMapping
from robo_real.bridged.device_process import DeviceProcess
from robo_real.clock import Clock, MonotonicClock
from robo_rl.errors import InvalidSetting
from robo_rl.settings import settings_as
from robo_rl.system.plain_files import read_yaml

DEVICE = Path(__file__).parent.parent / "bridged" / "ros2_device.py"
SOURCED = 'for file in "${@:2:$1}"; do source "$file" || exit 3; done; shift $(($1 + 1)); exec "$@"'
"""Shell command: sources as many files as the first argument says, and runs the rest."""
LEAST = 0.01
"""Change of the gripper that is sent, as a share of its travel."""


@dataclass(frozen=True)
class ROS2Options:
    """Options of the driver `ros2`: the file of the arm, and the interpreter in which it runs."""

    config: Path | None = None
    """YAML file of the arm's topics; needed"""
    python: str = "python3"
    """Interpreter that has rclpy"""


@dataclass(frozen=True)
class CommandTopic:
    """Topic to which joint positions are published, and the type of its messages."""

    topic: str
    type: Literal["JointTrajectory", "Float64MultiArray"] = "JointTrajectory"
    """message type: JointTrajectory names the joints, Float64MultiArray has their positions in the order of `joints`"""


@dataclass(frozen=True)
class GripperCommands:
    """Action or topic of ROS 2 that moves the gripper; exactly one of them."""

    action: str | None = None
    """Name of the ROS action of type control_msgs/GripperCommand that moves the gripper; None if a topic does."""
    max_effort: float = 0.0
    """Largest effort of the gripper's action, in the gripper's own unit."""
    topic: str | None = None
    """Name of the ROS topic that moves the gripper; None if an action does."""
    type: Literal["JointTrajectory", "Float64MultiArray"] = "Float64MultiArray"

    def __post_init__(self) -> None:
        if (self.action is None) == (self.topic is None):
            raise InvalidSetting("gripper_commands names an action or a topic.", got=(self.action, self.topic), allowed="one")


@dataclass(frozen=True)
class CameraTopic:
    """Topic of a camera's pictures (sensor_msgs/Image), and their size."""

    topic: str
    size: tuple[int, int]
    """height and width [pixel] of the camera's pictures"""


@dataclass(frozen=True, kw_only=True)
class ROS2Config(ArmFile):
    """Content of the YAML file of an arm: the arm, the topics of its states and commands, its gripper and cameras."""

    commands: CommandTopic
    states: str = "/joint_states"
    """ROS topic on which the joint states arrive, messages of type sensor_msgs/JointState."""
    gripper_commands: Mapping[str, Any] | None = None
    """Settings of GripperCommands; None if the gripper is the last joint of `commands`."""
    cameras: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of a camera -> settings of its CameraTopic."""
    setup: tuple[str, ...] | str = ()
    """shell scripts that are sourced first, relative to the file"""
    ahead: float = 0.04
    """[s] in which the arm is to reach a trajectory's point after it was sent; by default that of two set points"""


class ROS2Arm(BridgedArm):
    """Driver of an arm behind topics of ROS 2."""

    name = "robot/ROS2"
    options = ROS2Options

    def __init__(self, options: ROS2Options | None = None, clock: Clock | None = None) -> None:
        """Create the driver; raises InvalidSetting or UnknownName if its config is missing or contradicts itself."""
        options = options or ROS2Options()
        if options.config is None:
            raise InvalidSetting(
                "The driver ros2 needs a file of the arm's topics.",
                allowed="a YAML file",
                fix="--driver.settings.config FILE; docs/robots/ros.md has one to start from",
            )
        config: ROS2Config = settings_as(ROS2Config, read_yaml(options.config), source=str(options.config))
        if not 0 < config.ahead <= 1:
            raise InvalidSetting("ahead is out of range.", got=config.ahead, allowed="above 0, at most 1 [s]")
        if config.gripper is None and config.gripper_commands is not None:
            raise InvalidSetting("gripper_commands is given, and no gripper.", fix="add gripper: {feature: JOINT, ...}")
        mapping = ArmMapping(config, options.config, scale=1.0)
        source, given = str(options.config), config.cameras
        cameras = {name: settings_as(CameraTopic, each, source=source, group=f"cameras.{name}") for name, each in given.items()}
        process = _process(options, config, mapping, cameras)
        sizes = {name: camera.size for name, camera in cameras.items()}
        super().__init__(self.name, clock or MonotonicClock(), mapping, process, sizes)


def _process(
    options: ROS2Options, config: ROS2Config, mapping: ArmMapping, cameras: Mapping[str, CameraTopic]
) -> DeviceProcess:
    assert options.config is not None
    gripper, grips = mapping.gripper, dict[str, Any]()
    if config.gripper_commands is not None:
        given = settings_as(GripperCommands, config.gripper_commands, source=str(options.config), group="gripper_commands")
        by_topic = {"topic": given.topic, "type": given.type}
        grips = by_topic if given.action is None else {"action": given.action, "max_effort": given.max_effort}
    about = {
        "states": config.states,
        "joints": [motor.feature for motor in mapping.motors],
        "gripper": gripper.feature if gripper else None,
        "commands": {"topic": config.commands.topic, "type": config.commands.type},
        "gripper_commands": grips or None,
        "cameras": {name: camera.topic for name, camera in cameras.items()},
        "ahead": config.ahead,
        "least": LEAST * abs(gripper.open - gripper.closed) if gripper else 0.0,
        "rate": config.rate,
    }
    given_setups = (config.setup,) if isinstance(config.setup, str) else config.setup
    setups = [str((options.config.parent / path).absolute()) for path in given_setups]
    command = ["bash", "-c", SOURCED, "bridge", str(len(setups)), *setups, options.python] if setups else [options.python]
    fix = f"does the robot's driver run, does setup name its workspace, and can {options.python} import rclpy?"
    return DeviceProcess(command, DEVICE, about, name="The ROS 2 arm", fix=fix)
