"""The part of draccus 0.10 that LeRobot's device configs use: registered choices, decoded from a mapping."""

import dataclasses
from typing import ClassVar


class DecodingError(Exception):
    """A mapping that fits no config."""


class ChoiceRegistry:
    """Base of configs that are chosen by `type`."""

    _choices: ClassVar[dict] = {}

    def __init_subclass__(cls, **arguments):
        super().__init_subclass__(**arguments)
        if ChoiceRegistry in cls.__bases__:
            cls._choices = {}

    @classmethod
    def register_subclass(cls, name):
        return lambda choice: cls._choices.setdefault(name, choice)

    @classmethod
    def get_known_choices(cls):
        return cls._choices

    @classmethod
    def get_choice_name(cls, choice):
        return next(name for name, known in cls._choices.items() if known is choice)


def decode(kind, raw):
    """Return the config of a mapping with `type`."""
    choice = kind.get_known_choices()[raw["type"]]
    values = {name: value for name, value in raw.items() if name != "type"}
    unknown = values.keys() - {item.name for item in dataclasses.fields(choice)}
    if unknown:
        raise DecodingError(f"The fields {', '.join(f'`{name}`' for name in unknown)} are not valid for {choice.__name__}")
    return choice(**values)
