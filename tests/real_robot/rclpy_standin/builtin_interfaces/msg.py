"""As rosidl generates messages: fields check their types, and sequences of numbers become arrays."""

from array import array


class Message:
    """Message with a default of each field; a field takes values of the type of its default alone."""

    FIELDS = {}  # noqa: RUF012

    def __init__(self, **values):
        for name, make in self.FIELDS.items():
            setattr(self, name, values.pop(name) if name in values else make())
        assert not values, f"Invalid arguments passed to constructor: {values}"

    def __setattr__(self, name, value):
        default = self.FIELDS[name]()  # KeyError: no such field, as __slots__ would say
        if isinstance(default, array):
            kind = float if default.typecode == "d" else int
            assert isinstance(value, array) or all(isinstance(each, kind) for each in value), f"{name}: {value!r}"
            value = array(default.typecode, value)
        elif isinstance(default, list):
            value = list(value)
        else:
            assert isinstance(value, type(default)), f"The '{name}' field must be of type '{type(default).__name__}'"
        object.__setattr__(self, name, value)


class Time(Message):
    FIELDS = {"sec": int, "nanosec": int}  # noqa: RUF012


class Duration(Message):
    FIELDS = {"sec": int, "nanosec": int}  # noqa: RUF012

    def __setattr__(self, name, value):
        assert name != "nanosec" or 0 <= value < 10**9
        super().__setattr__(name, value)
