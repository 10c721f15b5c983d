"""A teleoperator that sways, for lerobot-record without a person."""

import math
import time
from dataclasses import dataclass

from lerobot.teleoperators import Teleoperator, TeleoperatorConfig

__path__ = []  # `--teleop.discover_packages_path` takes packages alone


@TeleoperatorConfig.register_subclass("sway")
@dataclass
class SwayConfig(TeleoperatorConfig):
    pass


class Sway(Teleoperator):
    config_class = SwayConfig
    name = "sway"
    is_connected = is_calibrated = False
    feedback_features = {}  # noqa: RUF012

    @property
    def action_features(self):
        return dict.fromkeys(("dx", "dy", "dz", "turn", "gripper_opening"), float)

    def connect(self, calibrate=True):
        self.is_connected = self.is_calibrated = True

    def calibrate(self): ...

    def configure(self): ...

    def get_action(self):
        phase = 2 * time.monotonic()
        return {"dx": 0.3 * math.sin(phase), "dy": 0.3 * math.cos(phase), "dz": 0.0, "turn": 0.0, "gripper_opening": 1.0}

    def send_feedback(self, feedback): ...

    def disconnect(self):
        self.is_connected = False
