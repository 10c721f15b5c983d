"""robo-rl resume: go on with a run that was interrupted, from its newest sound checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import tyro

from robo_cli.assembly import demonstrations_of, recipe_of, spec_of, training_of
from robo_cli.beginning import take_over, wait_for_robot
from robo_cli.collecting import collected_training, dismissed, settings_of
from robo_cli.completion import at_its_place, with_online_phase
from robo_cli.conclude import conclude
from robo_cli.display import display
from robo_cli.extension import extended, is_finished
from robo_cli.interruption import resumable
from robo_cli.learner_process import ended, is_prepared, resumed
from robo_cli.loops import learns_apart
from robo_cli.online_reward import require_same_reward, reward_of
from robo_cli.person import operator_of
from robo_cli.recipe import to_yaml
from robo_cli.refine import robot_at
from robo_cli.threads import use_threads
from robo_cli.train import train_on
from robo_rl.checkpoints import Checkpoint
from robo_rl.collecting.asynchronous import AsynchronousTraining
from robo_rl.protocols import Training
from robo_rl.runs import Run, find_run, write_text

EXAMPLES = """robo-rl resume latest
robo-rl resume runs/20260101-120000-arm-pick-rlpd-0
robo-rl resume latest --steps 30000     (a finished run of 15,000 steps is trained 15,000 steps longer)
robo-rl resume latest --dataset /elsewhere/pick     (the dataset was moved)
robo-rl resume latest --then online --online-steps 5000     (a finished run of a learner from recorded data)"""


@dataclass(frozen=True)
class Resume:
    """Go on with an interrupted run; needs nothing but the run. A finished run is left as it is, unless --steps says more."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    steps: int = 0
    """Train to this step, counted from the run's beginning, also after it was finished; 0 for as many as its recipe says."""
    then: Literal["nothing", "online"] = "nothing"
    """"online": a run of a learner from recorded data goes on in the environment, also after it was finished."""
    online_steps: int = 0
    """Environment steps of that; 0 for as many as the recipe names, or as there were updates."""
    dataset: str = ""
    """Where the dataset of the run lies now, if it was moved; it must hold the episodes that the run learnt from."""
    ray: str = ""
    """Where the run's collectors are from now on: auto, HOST:PORT, or "here" for processes of this machine."""
    robot: str = ""
    """Where the robot of the run is served now, if at another address."""


def run(arguments: Resume) -> int:
    """Restores the newest checkpoint and trains to the end; says whether the continuation is exact or warm.

    A run that was interrupted before its first checkpoint begins again, which is exact by itself.
    """
    found = find_run(arguments.run, arguments.runs)
    with resumable(found.path), found as interrupted:
        recipe = recipe_of(interrupted)
        if arguments.robot:
            recipe = replace(recipe, environment=replace(recipe.environment, name=robot_at(arguments.robot)))
            write_text(interrupted.path / "recipe.yaml", to_yaml(recipe))
        if arguments.then == "online":
            recipe = with_online_phase(recipe, arguments.online_steps)
            write_text(interrupted.path / "recipe.yaml", to_yaml(recipe))
        interrupted.spec.require(spec_of(recipe), what=f"The environment has changed since the run {interrupted.path.name}")
        checkpoint = interrupted.load() if interrupted.has_checkpoint else Checkpoint(0, {})
        if arguments.steps:
            recipe = extended(interrupted, recipe, arguments.steps, checkpoint.step)
        if is_finished(interrupted, recipe, checkpoint.step):
            print(f"The run {interrupted.path.name} is finished: {checkpoint.step} steps, and evaluated. Nothing was changed.")
            print(f"Train it longer: robo-rl resume {interrupted.path} --steps {2 * recipe.steps}")
            print(f"More seeds: robo-rl evaluate {interrupted.path} --episodes 200")
            return 0
        reward = reward_of(recipe)
        require_same_reward(interrupted, reward)
        use_threads(recipe.threads)
        recipe = at_its_place(interrupted, recipe, arguments.dataset)
        with operator_of(recipe) as operator:
            training: Training
            collecting = settings_of(interrupted, arguments.ray)
            if collecting is not None:
                training = collected_training(interrupted, recipe, collecting, demonstrations_of(recipe, reward)[0])
            elif learns_apart(recipe) and (is_prepared(interrupted) or not checkpoint.parts):
                training = resumed(interrupted, recipe, reward, operator)
            else:
                training = training_of(recipe, demonstrations_of(recipe, reward)[0], reward, operator)
                if not checkpoint.parts:
                    take_over(recipe, training)
            with display(recipe.name, recipe.total_steps) as shown, ended(training, shown.say), dismissed(training, shown.say):
                if isinstance(training, AsynchronousTraining):
                    training.go_on(checkpoint.parts or None)
                elif checkpoint.parts:
                    training.load_state_dict(checkpoint.parts)
                wait_for_robot(training)
                interrupted.rewind(training.step)
                kind = training.resumed or ("exact" if getattr(training, "replays", True) else "warm")
                _note(interrupted, training.step, kind)
                shown.say(f"run {interrupted.path}: resumed at step {training.step}, {kind}")
                record = train_on(interrupted, recipe, training, shown, checkpoint.parts.get("record"), operator)
            return conclude(interrupted, recipe, training.policy, record, operator)


def _note(run: Run, step: int, kind: str) -> None:
    """Adds an event to the resumes in run.json, for the report."""
    event = {"time": datetime.now().astimezone().isoformat(timespec="seconds"), "step": step, "kind": kind}
    run.describe(resumes=[*run.description["resumes"], event])
