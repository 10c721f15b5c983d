from array import array

from builtin_interfaces.msg import Message
from std_msgs.msg import Header


class JointState(Message):
    FIELDS = {  # noqa: RUF012
        "header": Header,
        "name": list,
        "position": lambda: array("d"),
        "velocity": lambda: array("d"),
        "effort": lambda: array("d"),
    }


class Image(Message):
    FIELDS = {  # noqa: RUF012
        "header": Header,
        "height": int,
        "width": int,
        "encoding": str,
        "is_bigendian": int,
        "step": int,
        "data": lambda: array("B"),
    }
