"""Stand-in for lerobot.teleoperators 0.4.4: base classes and factory, with the same names and signatures."""

import abc
from dataclasses import dataclass

import draccus
from lerobot.utils.import_utils import make_device_from_device_class

__path__ = []  # of a package without devices of its own


@dataclass(kw_only=True)
class TeleoperatorConfig(draccus.ChoiceRegistry, abc.ABC):
    id: str | None = None
    calibration_dir: str | None = None

    @property
    def type(self):
        return self.get_choice_name(self.__class__)


class Teleoperator(abc.ABC):
    def __init__(self, config):
        self.id = config.id

    @property
    @abc.abstractmethod
    def action_features(self): ...

    @property
    @abc.abstractmethod
    def feedback_features(self): ...

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
    def get_action(self): ...

    @abc.abstractmethod
    def send_feedback(self, feedback): ...

    @abc.abstractmethod
    def disconnect(self): ...


def make_teleoperator_from_config(config):
    return make_device_from_device_class(config)
