"""Stand-in for lerobot.robots 0.4.4: base classes and factory, with the same names and signatures."""

import abc
from dataclasses import dataclass

import draccus
from lerobot.utils.import_utils import make_device_from_device_class

__path__ = []  # of a package without devices of its own


@dataclass(kw_only=True)
class RobotConfig(draccus.ChoiceRegistry, abc.ABC):
    id: str | None = None
    calibration_dir: str | None = None

    @property
    def type(self):
        return self.get_choice_name(self.__class__)


class Robot(abc.ABC):
    def __init__(self, config):
        self.robot_type, self.id = self.name, config.id

    @property
    @abc.abstractmethod
    def observation_features(self): ...

    @property
    @abc.abstractmethod
    def action_features(self): ...

    @property
    @abc.abstractmethod
    def is_connected(self): ...

    @abc.abstractmethod
    def connect(self, calibrate=True): ...

    @property
    @abc.abstractmethod
    def is_calibrated(self): ...

    @abc.abstractmethod
    def calibrate(self): ...

    @abc.abstractmethod
    def configure(self): ...

    @abc.abstractmethod
    def get_observation(self): ...

    @abc.abstractmethod
    def send_action(self, action): ...

    @abc.abstractmethod
    def disconnect(self): ...


def make_robot_from_config(config):
    return make_device_from_device_class(config)
