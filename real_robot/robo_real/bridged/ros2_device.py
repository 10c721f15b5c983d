"""Arm behind topics of ROS 2, for the bridge; runs in the interpreter that has rclpy, so it imports nothing of ours."""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

WAIT = 10.0
"""Longest wait [s] at the start: for a first message of every topic, and for a node that subscribes to the commands."""
FRESH = 0.5
"""[s] largest age of the joint positions that are sent when the other side ends"""
CHANNELS = {"rgb8": 3, "bgr8": 3, "8UC3": 3, "rgba8": 4, "bgra8": 4, "8UC4": 4, "mono8": 1, "8UC1": 1}
"""encoding of a picture -> bytes of a pixel"""
TRAJECTORY, ARRAY = "JointTrajectory", "Float64MultiArray"


def open_device(about: Mapping[str, Any]) -> ROS2Device:
    """Return a connected arm.

    Args:
        about: `states`, topic of sensor_msgs/JointState; `joints` that are read and commanded; `gripper`, its joint or None;
            `commands`, topic and type; `gripper_commands`, topic and type, or action and max_effort, or None for the same;
            `cameras`, name -> topic; `ahead` [s] of a trajectory's point; `least`, change of the gripper that is sent.
    """
    device = ROS2Device(about)
    try:
        device.wait()
    except BaseException:
        device.close()
        raise
    return device


class ROS2Device:
    """Node that keeps the newest message of each topic and publishes commands."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._about = about
        self._rclpy = importlib.import_module("rclpy")
        self._rclpy.init()
        self._node = self._rclpy.create_node("robo_rl_bridge")
        self._stamped: dict[str, tuple[float, float]] = {}  # joint -> time [s] and position
        self._pictures: dict[str, tuple[float, Any]] = {}  # camera -> time [s] and message
        self._sent: dict[str, float] = {}  # camera -> time of its newest picture that was read
        self._read_at = -math.inf
        self._ignored = 0
        self._gripped: float | None = None
        self._failure = ""
        self._subscribe()
        self._publish = self._publisher(about["commands"])
        given = about["gripper_commands"]
        self._grip = None if given is None else self._action(given) if "action" in given else self._publisher(given)
        executors = importlib.import_module("rclpy.executors")
        self._executor = executors.SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the first messages; raises RuntimeError that names what is missing."""
        end = time.monotonic() + WAIT
        while (missing := self._missing()) and time.monotonic() < end and not self._failure:
            time.sleep(0.02)
        if self._failure or missing:
            raise RuntimeError(self._failure or missing)

    def features(self) -> Mapping[str, Any]:
        """Return the joints, the shapes of the cameras' pictures, and the joints that are commanded."""
        shapes = {name: list(_picture(message).shape) for name, (_, message) in self._pictures.items()}
        joints = self._wanted()
        return {"values": {**dict.fromkeys(joints, ()), **shapes}, "commands": joints}

    def read(self) -> tuple[float, dict[str, float], dict[str, tuple[float, Any]]] | None:
        """Return joint positions with the time of the oldest of them, and new pictures; None if nothing is new.

        Raises RuntimeError if the node has ended.
        """
        if self._failure:
            raise RuntimeError(self._failure)
        stamped = dict(self._stamped)
        stamp = min(stamped[joint][0] for joint in self._wanted())
        new = {name: found for name, found in self._pictures.items() if found[0] != self._sent.get(name)}
        if stamp <= self._read_at and not new:
            return None
        self._read_at = stamp
        self._sent |= {name: taken for name, (taken, _) in new.items()}
        values = {joint: stamped[joint][1] for joint in self._wanted()}
        return stamp, values, {name: (taken, _picture(message)) for name, (taken, message) in new.items()}

    def drive(self, command: Mapping[str, float]) -> None:
        """Publish joint positions; raises ValueError for a number that is not finite."""
        if not all(map(math.isfinite, command.values())):
            raise ValueError(f"a command is not finite: {dict(command)}")
        gripper = self._about["gripper"]
        joints = self._wanted() if self._grip is None else self._about["joints"]
        self._publish(joints, [float(command[joint]) for joint in joints])
        if self._grip is None or gripper is None:
            return
        opened = float(command[gripper])
        if self._gripped is None or abs(opened - self._gripped) >= self._about["least"]:
            self._gripped = opened
            self._grip([gripper], [opened])

    def rest(self) -> None:
        """Publish the joints' measured positions as targets, so that the arm stays; do nothing if a measurement is too old."""
        now = time.monotonic()
        places = {joint: place for joint, (stamp, place) in self._stamped.items() if now - stamp < FRESH}
        joints = self._wanted() if self._grip is None else self._about["joints"]
        if all(joint in places and math.isfinite(places[joint]) for joint in joints):
            self._publish(joints, [places[joint] for joint in joints])

    def close(self) -> None:
        """End the node."""
        with contextlib.suppress(Exception):  # rclpy raises its own errors if it was shut down already
            self._executor.shutdown(timeout_sec=1.0)
        with contextlib.suppress(Exception):
            self._node.destroy_node()
        with contextlib.suppress(Exception):
            self._rclpy.shutdown()

    def _wanted(self) -> list[str]:
        gripper = self._about["gripper"]
        return [*self._about["joints"], *([] if gripper is None else [gripper])]

    def _spin(self) -> None:
        try:
            self._executor.spin()
            self._failure = self._failure or "the node of ROS 2 was shut down"
        except Exception as error:
            self._failure = f"the node of ROS 2 ended: {type(error).__name__}: {error}"

    def _subscribe(self) -> None:
        messages = importlib.import_module("sensor_msgs.msg")
        newest = importlib.import_module("rclpy.qos").qos_profile_sensor_data  # best effort: hears reliable ones, too
        self._node.create_subscription(messages.JointState, self._about["states"], self._on_state, newest)
        for name, topic in self._about["cameras"].items():
            self._node.create_subscription(messages.Image, topic, self._listener(name), newest)

    def _listener(self, name: str) -> Any:
        def keep(message: Any) -> None:
            self._pictures[name] = (time.monotonic(), message)

        return keep

    def _on_state(self, message: Any) -> None:
        """Take the joints by their names, in whatever order and number they come."""
        if len(message.name) != len(message.position):
            self._ignored += 1
            return
        now = time.monotonic()
        for joint, place in zip(message.name, message.position, strict=True):
            self._stamped[joint] = (now, float(place))

    def _missing(self) -> str:
        """Return what has not come yet, in words; empty if all has."""
        states, seen = self._about["states"], sorted(self._stamped)
        if absent := [joint for joint in self._wanted() if joint not in self._stamped]:
            if not seen:
                ignored = f", {self._ignored} with fewer positions than names" if self._ignored else ""
                return f"no joint position on {states}{ignored}: does the robot's driver run, in the same ROS_DOMAIN_ID?"
            return f"{states} has no joint {absent[0]!r}; it has {', '.join(seen)}"
        if absent := [topic for name, topic in self._about["cameras"].items() if name not in self._pictures]:
            return f"no picture on {absent[0]}"
        if self._commands.get_subscription_count() == 0:
            return f"nobody listens to {self._about['commands']['topic']}: is the controller active?"
        return ""

    def _publisher(self, given: Mapping[str, Any]) -> Any:
        """Return a function that publishes positions of joints."""
        kind = given["type"]
        module = importlib.import_module("trajectory_msgs.msg" if kind == TRAJECTORY else "std_msgs.msg")
        publisher = self._node.create_publisher(getattr(module, kind), given["topic"], 1)
        if given is self._about["commands"]:
            self._commands = publisher

        def publish(joints: list[str], positions: list[float]) -> None:
            message = getattr(module, kind)()
            if kind == ARRAY:
                message.data = positions
            else:
                message.joint_names = joints
                point = module.JointTrajectoryPoint()
                point.positions = positions
                time_from_start = point.time_from_start
                time_from_start.sec, time_from_start.nanosec = divmod(round(self._about["ahead"] * 1e9), 1_000_000_000)
                message.points = [point]
            publisher.publish(message)

        return publish

    def _action(self, given: Mapping[str, Any]) -> Any:
        """Return a function that sends positions to an action server of control_msgs/GripperCommand."""
        kind = importlib.import_module("control_msgs.action").GripperCommand
        client = importlib.import_module("rclpy.action").ActionClient(self._node, kind, given["action"])

        def send(_: list[str], positions: list[float]) -> None:
            goal = kind.Goal()
            goal.command.position = positions[0]
            goal.command.max_effort = float(given["max_effort"])
            if client.server_is_ready():  # a goal to nobody would wait for ever
                client.send_goal_async(goal)
            else:
                self._gripped = None  # once more with the next command

        return send


def _picture(message: Any) -> Any:
    """Return a picture (H, W, 3) uint8 RGB; raises ValueError for another encoding or a wrong size."""
    channels = CHANNELS.get(message.encoding)
    if channels is None:
        raise ValueError(f"a picture in {message.encoding!r}; known: {', '.join(CHANNELS)}")
    data = np.frombuffer(bytes(message.data), np.uint8)
    height, width, step = message.height, message.width, message.step
    if step < width * channels or len(data) != step * height:
        raise ValueError(f"a picture of {len(data)} bytes declares {height} rows of {step}")
    pixels = data.reshape(height, step)[:, : width * channels].reshape(height, width, channels)
    if channels == 1:
        return np.repeat(pixels, 3, axis=2)
    is_reversed = message.encoding.startswith(("bgr", "8UC"))
    return np.ascontiguousarray(pixels[..., 2::-1] if is_reversed else pixels[..., :3])
