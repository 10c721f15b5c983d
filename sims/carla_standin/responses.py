"""Forms of answers to remote calls, as CARLA's client decodes them: with a value, without one, or with an error."""

from __future__ import annotations

from collections.abc import Callable

from carla_standin.errors import StandInError

Answer = list[object]


def value(result: object) -> Answer:
    """Return an answer that carries the result of a call."""
    return [[1, result]]


def no_value(message: str) -> Answer:
    """Return an answer that tells the client that a call which returns a value has failed."""
    return [[0, [message]]]


def done(_: object = None) -> Answer:
    """Return an answer that tells the client that a call without a result has succeeded."""
    return [[False]]


def not_done(message: str) -> Answer:
    """Return an answer that tells the client that a call without a result has failed."""
    return [[True, [message]]]


class Call:
    """Remote call: a function whose result or refusal is wrapped as an answer to the client."""

    def __init__(
        self, function: Callable[..., object], wrap: Callable[[object], object], refuse: Callable[[str], object]
    ) -> None:
        self.function, self.wrap, self.refuse = function, wrap, refuse

    def __call__(self, *arguments: object) -> object:
        """Call the function, and return its result, or its refusal, as an answer."""
        try:
            return self.wrap(self.function(*arguments))
        except StandInError as error:
            return self.refuse(str(error))


def valued(**functions: Callable[..., object]) -> dict[str, Call]:
    """Return name -> call, for functions whose results clients get."""
    return {name: Call(function, value, no_value) for name, function in functions.items()}


def void(**functions: Callable[..., object]) -> dict[str, Call]:
    """Return name -> call, for functions without a result."""
    return {name: Call(function, done, not_done) for name, function in functions.items()}


def bare(**functions: Callable[..., object]) -> dict[str, Call]:
    """Return calls whose functions return the answer in its final form; only errors are wrapped."""
    return {name: Call(function, lambda result: result, no_value) for name, function in functions.items()}
