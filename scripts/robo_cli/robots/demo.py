"""robo-rl demo: a whole thing at work, from a fresh clone, in one command."""

from __future__ import annotations

from robo_app.robots.hil_demo import Hil, hil
from robo_cli.actions import run_action

EXAMPLES = """robo-rl demo hil                       (open the page that it names; you begin, take over and label)
robo-rl demo hil --human simulated     (no person needed)
robo-rl demo hil --task peg
robo-rl demo hil --human simulated --steps 200 --episodes 2     (a short look)"""


def main(arguments: list[str]) -> int:
    """Run a demonstration."""
    return run_action("demo", {"hil": (Hil, hil)}, EXAMPLES, arguments)
