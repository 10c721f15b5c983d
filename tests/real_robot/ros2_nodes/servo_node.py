"""Node of an arm with servos made of arithmetic, for tests: joint states out, commands in. It runs on rclpy as it is.

servo_node.py JOURNAL '{"fault": "nan", "after": 1.0}'
"""

import contextlib
import json
import math
import os
import random
import sys
import time

import rclpy
from control_msgs.action import GripperCommand
from rclpy.action import ActionServer
from rclpy.executors import ExternalShutdownException
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

JOINTS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"]
FOLDED = [0.0, -0.6109, 1.309, 0.8727, 0.0]
LAG = 0.04
OTHERS = {"caster_left": 7.0, "caster_right": -7.0}


class Servos:
    def __init__(self, node, journal, fault=None, after=math.inf, camera=False, rate=100.0, array=False):
        self.places = dict(zip(JOINTS, FOLDED, strict=True)) | {"finger": 0.08}
        self.goals, self.at, self.began = dict(self.places), time.monotonic(), time.monotonic()
        self.journal, self.fault, self.after, self.node = journal, fault, after, node
        self.states = node.create_publisher(JointState, "joint_states", 10)
        self.pictures = node.create_publisher(Image, "camera/image_raw", 1)
        if array:
            node.create_subscription(Float64MultiArray, "arm/commands", self.take_array, 10)
        else:
            node.create_subscription(JointTrajectory, "arm/joint_trajectory", self.take, 10)
        ActionServer(node, GripperCommand, "gripper/gripper_cmd", self.grip)
        node.create_timer(1 / rate, self.publish)
        if camera:
            node.create_timer(0.05, self.look)

    @property
    def is_broken(self):
        return time.monotonic() - self.began > self.after

    def take(self, message):
        self.goals |= dict(zip(message.joint_names, message.points[-1].positions, strict=True))
        self.write("sent", **self.goals)

    def take_array(self, message):
        self.goals |= dict(zip(JOINTS, message.data, strict=False))
        self.write("sent", **self.goals)

    def grip(self, goal_handle):
        self.goals["finger"] = goal_handle.request.command.position
        self.write("gripped", finger=self.goals["finger"], effort=goal_handle.request.command.max_effort)
        goal_handle.succeed()

    def publish(self):
        now = time.monotonic()
        share = 1 - math.exp(-(now - self.at) / LAG)
        self.at = now
        self.places = {name: place + share * (self.goals[name] - place) for name, place in self.places.items()}
        fault = self.fault if self.is_broken else None
        if fault == "die":
            os._exit(3)
        if fault == "stale":
            return
        for _ in range(50 if fault == "flood" else 1):
            self.states.publish(self.state(fault))

    def state(self, fault):
        pairs = list((self.places | OTHERS).items())
        random.shuffle(pairs)  # as publishers that merge several nodes order them
        message = JointState(name=[name for name, _ in pairs], position=[place for _, place in pairs])
        message.header.stamp.sec = int(time.time())
        if fault == "nan":
            message.position[message.name.index("shoulder_lift")] = math.nan
        if fault == "fewer":
            message.position = message.position[:-1]
        return message

    def look(self):
        encoding = "rgb16" if self.fault == "encoding" and self.is_broken else "bgr8"
        data = bytes([7, int(time.monotonic() * 100) % 256, 200]) * (48 * 64)
        self.pictures.publish(Image(height=48, width=64, encoding=encoding, step=64 * 3, data=data))

    def write(self, event, **facts):
        with open(self.journal, "a") as file:
            file.write(json.dumps({"event": event, "at": time.monotonic(), **facts}) + "\n")


if __name__ == "__main__":
    rclpy.init()
    servos = rclpy.create_node("servos")
    Servos(servos, sys.argv[1], **json.loads(sys.argv[2]))
    with contextlib.suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(servos)
