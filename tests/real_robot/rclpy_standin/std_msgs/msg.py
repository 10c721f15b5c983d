from array import array

from builtin_interfaces.msg import Message, Time


class Header(Message):
    FIELDS = {"stamp": Time, "frame_id": str}  # noqa: RUF012


class MultiArrayLayout(Message):
    FIELDS = {"dim": list, "data_offset": int}  # noqa: RUF012


class Float64MultiArray(Message):
    FIELDS = {"layout": MultiArrayLayout, "data": lambda: array("d")}  # noqa: RUF012
