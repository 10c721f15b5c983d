"""robo-rl drive: a run's policy as the driver of other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_cli.actions import Actions, run_action

EXAMPLES = """robo-rl drive agent latest --out agent.py
python leaderboard/leaderboard/leaderboard_evaluator.py --track MAP --agent agent.py --routes routes.xml"""


@dataclass(frozen=True)
class Agent:
    """Write the agent file that the CARLA leaderboard's evaluator loads: it drives with the policy of a run."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"."""
    out: Path = Path("agent.py")
    """File to write."""
    step: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Step of the policy to use, if the run has kept that policy; by default the newest."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""


def write(arguments: Agent) -> int:
    """Write the file and print the command that evaluates it."""
    import robo_rl
    from robo_app.robots.leaderboard_agent import write_agent

    write_agent(robo_rl.open_run(arguments.run, runs=arguments.runs), arguments.out, arguments.step)
    print(f"{arguments.out}: leaderboard_evaluator.py --track MAP --agent {arguments.out} --routes ROUTES.xml")
    return 0


def main(arguments: list[str]) -> int:
    """Run one of the actions and return its exit status."""
    return run_action("drive", ACTIONS, EXAMPLES, arguments)


ACTIONS: Actions = {"agent": (Agent, write)}
