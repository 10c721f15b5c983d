from array import array

from builtin_interfaces.msg import Duration, Message
from std_msgs.msg import Header


class JointTrajectoryPoint(Message):
    FIELDS = {  # noqa: RUF012
        "positions": lambda: array("d"),
        "velocities": lambda: array("d"),
        "accelerations": lambda: array("d"),
        "effort": lambda: array("d"),
        "time_from_start": Duration,
    }


class JointTrajectory(Message):
    FIELDS = {"header": Header, "joint_names": list, "points": list}  # noqa: RUF012
