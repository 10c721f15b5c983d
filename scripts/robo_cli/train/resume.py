"""robo-rl resume: continue an interrupted run from its newest valid checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

import robo_rl
from robo_rl.runs.run import NO_UPDATE

EXAMPLES = """robo-rl resume latest
robo-rl resume runs/20260101-120000-arm-pick-rlpd-0
robo-rl resume latest --steps 30000     (a finished run of 15,000 steps is trained 15,000 steps longer)
robo-rl resume latest --dataset /elsewhere/pick     (the dataset was moved)
robo-rl resume latest --callbacks my_package.logging:Wandb     (named anew: a run does not store them)
robo-rl resume latest --then online --online-steps 5000     (a finished run of a learner from recorded data)"""


@dataclass(frozen=True)
class Resume:
    """Resume an interrupted run; needs only the run. A finished run is left as it is, unless --steps is larger."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    steps: int = 0
    """Train to this step, counted from the run's beginning, also after it was finished; 0 for as many as its recipe says."""
    then: Literal["nothing", "online"] = "nothing"
    """"online": continue a run of a learner from recorded data in the environment, also after its end."""
    online_steps: int = 0
    """Environment steps of that; 0 for as many as the recipe names, or as there were updates."""
    dataset: str = ""
    """New path of the run's dataset if it was moved; it must contain the episodes of the training."""
    ray: str = ""
    """New location of the run's collectors: auto, HOST:PORT, or "here" for processes of this machine."""
    robot: str = ""
    """New address of the run's robot, if it has moved."""
    callbacks: tuple[str, ...] = ()
    """Classes of yours that hear of metrics and evaluations, package.module:Class (docs/training/callbacks.md)."""


def run(arguments: Resume) -> int:
    """Train to the end, and say whether the continuation is exact or warm."""
    trained = robo_rl.resume(
        arguments.run,
        steps=arguments.steps or None,
        online_steps=arguments.online_steps if arguments.then == "online" else None,
        dataset=arguments.dataset,
        ray=arguments.ray,
        robot=arguments.robot,
        runs=arguments.runs,
        progress=True,
        callbacks=arguments.callbacks,
    )
    return int(bool(trained.description.get(NO_UPDATE)))
