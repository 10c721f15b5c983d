"""Commands that have actions, such as `robo-rl data info`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tyro

from robo_cli.main import described
from robo_rl.errors import UnknownName

Actions = Mapping[str, tuple[Any, Callable[[Any], int]]]
"""Name -> class of the options, whose docstring says what the action does, and the function that takes them."""


def run_action(command: str, actions: Actions, examples: str, arguments: list[str]) -> int:
    """Runs the action that the first argument names and returns its exit status; raises UnknownName."""
    if not arguments or arguments[0] in ("-h", "--help"):
        rows = "\n".join(f"  {name:8} {(options.__doc__ or '').strip()}" for name, (options, _) in actions.items())
        print(f"usage: robo-rl {command} ACTION ...\n\n{rows}\n\nexamples:\n{examples}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in actions:
        raise UnknownName(f"action of robo-rl {command}", name, actions)
    options, action = actions[name]
    own = "\n".join(line for line in examples.splitlines() if line.startswith(f"robo-rl {command} {name} "))
    description = described(options.__doc__ or "", own)
    config = (tyro.conf.FlagCreatePairsOff,)
    return action(tyro.cli(options, args=rest, prog=f"robo-rl {command} {name}", description=description, config=config))
