from dataclasses import dataclass
from enum import IntEnum


class ReliabilityPolicy(IntEnum):
    SYSTEM_DEFAULT, RELIABLE, BEST_EFFORT = 0, 1, 2


class HistoryPolicy(IntEnum):
    SYSTEM_DEFAULT, KEEP_LAST, KEEP_ALL = 0, 1, 2


@dataclass
class QoSProfile:
    depth: int = 10
    history: HistoryPolicy = HistoryPolicy.KEEP_LAST
    reliability: ReliabilityPolicy = ReliabilityPolicy.RELIABLE


qos_profile_sensor_data = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
