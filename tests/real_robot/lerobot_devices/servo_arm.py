"""A LeRobot robot and a leader arm with servos made of arithmetic; both run on LeRobot itself and on its stand-in.

What the servos were sent, and when, is written to `journal`, a file: the truth at the motors, whatever becomes of the process.
"""

import json
import math
import os
import time
from dataclasses import dataclass, field

import numpy as np
from lerobot.robots import Robot, RobotConfig
from lerobot.teleoperators import Teleoperator, TeleoperatorConfig

MOTORS = ("pan", "lift", "elbow", "flex", "roll")
HOME = {"pan": 0.0, "lift": -35.0, "elbow": 75.0, "flex": 50.0, "roll": 0.0, "gripper": 60.0}
LAG = 0.04


@RobotConfig.register_subclass("servo_arm")
@dataclass
class ServoArmConfig(RobotConfig):
    journal: str = ""
    fault: str = ""
    after: float = math.inf
    camera: bool = False
    calibrated: bool = True
    home: dict[str, float] = field(default_factory=dict)


class ServoArm(Robot):
    config_class = ServoArmConfig
    name = "servo_arm"

    def __init__(self, config):
        super().__init__(config)
        self.config, self._is_connected = config, False
        self._place = HOME | config.home
        self._goal = dict(self._place)
        self._at = time.monotonic()

    @property
    def observation_features(self):
        pictures = {"front": (48, 64, 3)} if self.config.camera else {}
        return {f"{motor}.pos": float for motor in (*MOTORS, "gripper")} | pictures

    @property
    def action_features(self):
        return {f"{motor}.pos": float for motor in (*MOTORS, "gripper")}

    @property
    def is_connected(self):
        return self._is_connected

    @property
    def is_calibrated(self):
        return self.config.calibrated

    def calibrate(self):
        raise AssertionError("a process without a terminal must not calibrate")

    def configure(self):
        pass

    def connect(self, calibrate=True):
        if self.config.fault == "connect":
            raise ConnectionError("no motor answers on /dev/ttyACM0")
        if calibrate:
            self.calibrate()
        self._is_connected, self._began = True, time.monotonic()
        self._write("connected")

    def disconnect(self):
        self._write("disconnected")
        self._is_connected = False

    def get_observation(self):
        is_broken = time.monotonic() - self._began > self.config.after
        if is_broken:
            self._break()
        self._follow()
        found = {f"{motor}.pos": place for motor, place in self._place.items()}
        if is_broken and self.config.fault == "nan":
            found["lift.pos"] = math.nan
        if self.config.camera:
            found["front"] = np.full((48, 64, 3), [200, int(time.monotonic() * 100) % 256, 7], np.uint8)
        return found

    def send_action(self, action):
        assert set(action) <= set(self.action_features)
        self._follow()
        self._goal |= {name.removesuffix(".pos"): float(value) for name, value in action.items()}
        self._write("sent", **self._goal)
        return action

    def _follow(self):
        now = time.monotonic()
        share = 1 - math.exp(-(now - self._at) / LAG)
        self._at = now
        self._place = {motor: place + share * (self._goal[motor] - place) for motor, place in self._place.items()}

    def _break(self):
        if self.config.fault == "hang":
            time.sleep(60)
        if self.config.fault == "die":
            os._exit(3)
        if self.config.fault == "bus":
            raise ConnectionError("Failed to sync read 'Present_Position' on ids=[1, 2, 3]")

    def _write(self, event, **facts):
        if self.config.journal:
            with open(self.config.journal, "a") as file:
                file.write(json.dumps({"event": event, "at": time.monotonic(), **facts}) + "\n")


def forward_by(way):
    """Returns the motors of a level hand, moved forward by [m] from its folded place."""
    angle = math.degrees(math.acos(min(0.7 + 2 * max(way, 0.0), 1.0)))
    return {"lift": -angle, "elbow": 2 * angle, "flex": -angle}


@TeleoperatorConfig.register_subclass("leader_arm")
@dataclass
class LeaderArmConfig(TeleoperatorConfig):
    places: dict[str, float] = field(default_factory=dict)
    places_file: str = ""
    slide: list[float] = field(default_factory=list)
    as_vector: bool = False


class LeaderArm(Teleoperator):
    config_class = LeaderArmConfig
    name = "leader_arm"
    is_connected = is_calibrated = False

    def __init__(self, config):
        super().__init__(config)
        self.config = config
        self.felt = {}

    @property
    def action_features(self):
        names = {f"{motor}.pos": float for motor in (*MOTORS, "gripper")}
        if self.config.as_vector:
            return {"dtype": "float32", "shape": (len(names),), "names": {name: i for i, name in enumerate(names)}}
        return names

    @property
    def feedback_features(self):
        return {"force": float}

    def connect(self, calibrate=True):
        self.get_action()
        self.is_connected = self.is_calibrated = True

    def calibrate(self): ...

    def configure(self): ...

    def get_action(self):
        places = HOME | {"gripper": 100.0} | self.config.places | self.felt
        places |= {"slide": self.config.slide} if self.config.slide else {}
        if self.config.places_file:
            with open(self.config.places_file) as file:
                places |= json.load(file)
        if "unplugged" in places:
            raise ConnectionError("Failed to sync read 'Present_Position'")
        if "slide" in places:
            began, speed, start = places["slide"]
            places |= forward_by(start + speed * (time.monotonic() - began))
        return {f"{motor}.pos": places[motor] for motor in (*MOTORS, "gripper")}

    def send_feedback(self, feedback):
        self.felt = {"gripper": feedback["force"]}

    def disconnect(self):
        self.is_connected = False
