"""robo-rl world: fit a world to recorded episodes, and check how far to believe it."""

from __future__ import annotations

from robo_cli.actions import Actions, Fit, run_action

EXAMPLES = """robo-rl world fit data/push --out worlds/push
robo-rl world check worlds/push --dataset data/held-out --policies scripted random --out checks/push
robo-rl train arm-push-sac --environment world:worlds/push"""
ACTIONS: Actions = {
    "fit": Fit("robo_cli.train.world_fit", "FitWorld", "fit"),
    "check": Fit("robo_cli.train.world_check", "CheckWorld", "check"),
}


def main(arguments: list[str]) -> int:
    """Run one of the actions and return its exit status."""
    return run_action("world", ACTIONS, EXAMPLES, arguments)
