from builtin_interfaces.msg import Message


class _Command(Message):
    FIELDS = {"position": float, "max_effort": float}  # noqa: RUF012


class GripperCommand:
    class Goal(Message):
        FIELDS = {"command": _Command}  # noqa: RUF012
