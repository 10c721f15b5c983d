"""Commands that have actions, such as `robo-rl data info`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import tyro
from typing_extensions import override

from robo_app.arguments.options import described, read_options
from robo_app.listings.purposes import documented
from robo_rl.entry_points import known
from robo_rl.errors import RoboRLError, UnknownName
from robo_rl.system.threads import fitting

BENCH = "robo_bench"
"""Package of the benchmarks, which no wheel contains."""


def command_module(name: str) -> Any:
    """Import the module of a command. Raises RoboRLError if it is a benchmark and this installation is no checkout."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != BENCH:
            raise
        raise RoboRLError(
            "Benchmarks need a checkout of the repository: the installed package does not contain them.",
            got=f"no package {BENCH} beside robo_cli",
            fix="clone the repository, run `scripts/setup --bench` there, and use .venv-bench/bin/robo-rl",
        ) from None


@dataclass(frozen=True)
class Later:
    """Action whose module is imported only when it runs."""

    module: str
    options: str
    """Name of the class of the options."""
    function: str
    """Name of the function in that module which carries out the parsed options."""

    def loaded(self) -> tuple[Any, Callable[[Any], int]]:
        """Return class and function."""
        module = command_module(self.module)
        return getattr(module, self.options), getattr(module, self.function)


class OfPaper(Later):
    """Action that a paper brings: `[commands]`, "reward fit vpl" = "fit:FitVPL", with a function `run` beside the class."""

    @property
    def examples(self) -> str:
        """Lines of the module's EXAMPLES."""
        return str(getattr(import_module(self.module), "EXAMPLES", ""))


class Fit(Later):
    """Command that fits a network; it runs with as few torch threads as a training."""

    @override
    def loaded(self) -> tuple[Any, Callable[[Any], int]]:
        options, function = super().loaded()
        return options, fitting(function)


@dataclass(frozen=True)
class Nested:
    """An action that has actions of its own, such as `robo-rl reward fit`."""

    text: str
    actions: Mapping[str, Later]


Actions = Mapping[str, tuple[Any, Callable[[Any], int]] | Later | Nested]
"""Name -> options class, with the description of the action as docstring, and function of the options."""


def actions_of_papers(command: str) -> dict[str, OfPaper]:
    """Return the actions that papers add to a command, such as "reward fit", by name."""
    found = {name.rpartition(" "): point for name, point in known("commands").items()}
    return {name: OfPaper(point.module, point.attr, "run") for (place, _, name), point in found.items() if place == command}


def run_action(command: str, actions: Actions, examples: str, arguments: list[str]) -> int:
    """Run the action that the first argument names and return its exit status; raises UnknownName."""
    actions = {**actions, **{name: each for name, each in actions_of_papers(command).items() if name not in actions}}
    if not arguments or arguments[0] in ("-h", "--help"):
        rows = "\n".join(f"  {name:8} {_text(action)}" for name, action in actions.items())
        print(f"usage: robo-rl {command} ACTION ...\n\n{rows}\n\nexamples:\n{examples}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in actions:
        raise UnknownName(f"action of robo-rl {command}", name, actions)
    found = actions[name]
    if isinstance(found, Nested):
        return run_action(f"{command} {name}", found.actions, _examples_of(f"{command} {name}", examples), rest)
    options, action = found.loaded() if isinstance(found, Later) else found
    examples = found.examples if isinstance(found, OfPaper) else examples
    description = described(options.__doc__ or "", _examples_of(f"{command} {name}", examples))
    config = (tyro.conf.FlagCreatePairsOff,)
    return action(read_options(options, rest, prog=f"robo-rl {command} {name}", description=description, config=config))


def _examples_of(command: str, examples: str) -> str:
    return "\n".join(line for line in examples.splitlines() if line.startswith(f"robo-rl {command} "))


def _text(action: tuple[Any, Callable[[Any], int]] | Later | Nested) -> str:
    """Return the description of an action, for the list."""
    if isinstance(action, Nested):
        return action.text
    if isinstance(action, Later):
        return (documented(action.module, action.options) or "Needs a checkout of the repository.").partition("\n")[0]
    return (action[0].__doc__ or "").strip()
