"""Refinement of a trained policy on a robot: options of the command, and the recipe that they give."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import tyro

from robo_app.arguments.free_settings import TeleoperatorSettings, option_words
from robo_app.recipes.defaults import completed
from robo_app.recipes.environments import spec_of
from robo_app.recipes.loop_choice import asked_of
from robo_app.recipes.recipe import (
    DemonstrationSettings,
    EnvironmentSettings,
    EvaluationSettings,
    HumanSettings,
    InitialSettings,
    Recipe,
    RewardSettings,
    parse_recipe,
    require_at_least,
)
from robo_app.training.assembly import learner_of, recipe_of
from robo_app.training.initialisation import require_same_reading, with_reads
from robo_app.training.supervision import CONSOLE, robot_at
from robo_real.family import SETTINGS
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.contract import Feature
from robo_rl.runs.run import Run
from robo_rl.settings import plain, updated
from robo_rl.training.compatibility import require_loop

NO_SUPERVISOR = "none"
STARTS = 100
"""Most steps before the first update, in which the policy acts as it is: as many as in HIL-SERL."""


@dataclass(frozen=True)
class Refine:
    """Refine the policy of a run on a robot: the run's learner continues with demonstrations and a person's corrections.

    Episodes are kept step by step in RUN/episodes of the new run; after any crash `robo-rl resume` learns from them again.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest": one of rlpd, hil-serl or sac."""
    robot: str
    """Address of `robo-rl robot serve`; ?action_repeat=3 or max_steps=50 may end it, else they are those of the run."""
    dataset: str = ""
    """Dataset of demonstrations with the robot's spec; that of the run by default if it had one."""
    human: str = NO_SUPERVISOR
    """Source of corrections: console for you, perfect, noisy, delayed, lazy or wrong for a simulated person, none."""
    teleoperator: str = ""
    """Device that you drive with beside the console's page: spacemouse, gamepad."""
    teleoperator_settings: TeleoperatorSettings = field(default_factory=dict)
    """Setting of the device: axes, linear_speed, angular_speed, dead_band, release."""
    steps: int = 2000
    """Steps on the robot."""
    episodes: int = 20
    """Episodes of the evaluation before the first step, and of that at the end."""
    seed: int = 0
    """Seed of resets and samples."""
    checkpoint_every: int = 500
    """Steps between checkpoints; later steps are recovered from the episodes after a crash."""
    port: int = 8644
    """Port of the console's page; 0 takes any free one."""
    browser: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = True
    """Leave the browser alone; without this the page opens in it if there is a display."""
    shadow: str = ""
    """Train nothing and send nothing of the policy: the guard judges it while zero, scripted or person commands the arm."""
    dry_run: bool = False
    """Print the recipe and stop."""
    runs: Annotated[Path, tyro.conf.arg(aliases=["--out"])] = Path("runs")
    """Folder that holds the runs, and the new one."""

    def __post_init__(self) -> None:
        require_at_least(self, {"steps": 1, "episodes": 1, "seed": 0, "checkpoint_every": 0})


def refinement(trained: Run, arguments: Refine) -> Recipe[Any]:
    """Return the recipe that continues a run on a robot.

    Raises SpecMismatch if a unit, a frame, a rate or a limit differs, InvalidSetting if learning is impossible.
    """
    before = recipe_of(trained)
    recipe = _with_learner(before, arguments.human != NO_SUPERVISOR)
    recipe = replace(
        recipe,
        name=f"{before.name.removesuffix('-refine')}-refine",
        environment=EnvironmentSettings(
            robot_at(arguments.robot), _settings(before, arguments.robot), before.environment.wrappers
        ),
        initial=InitialSettings(str(trained.path.absolute())),
        demonstrations=_demonstrations(before, arguments.dataset),
        human=HumanSettings(
            "" if arguments.human == NO_SUPERVISOR else arguments.human,
            port=arguments.port,
            browser=arguments.browser,
            teleoperator=arguments.teleoperator,
            settings=dict(arguments.teleoperator_settings),
        ),
        reward=RewardSettings(),
        evaluation=EvaluationSettings(
            arguments.episodes, before=True, episodes_during=arguments.episodes, videos=0, seed=before.evaluation.seed
        ),
        steps=arguments.steps,
        seed=arguments.seed,
        log_every=100,
        checkpoint_every=arguments.checkpoint_every,
        record_episodes=True,
        summary=f"{trained.path.name} refined on a robot",
    )
    recipe, spec = with_reads(recipe), spec_of(recipe)
    require_same_reading(trained, learner_of(recipe, spec))
    if spec.success_rule is None and arguments.human != CONSOLE:
        raise InvalidSetting(
            f"{spec.name} does not say when its task is done, and no person does: there is nothing to learn from.",
            got=f"--human {arguments.human}",
            allowed="a person who labels episodes",
            fix="--human console",
        )
    return completed(recipe)


def _settings(before: Recipe[Any], address: str) -> dict[str, Any]:
    """Return the arguments of the run's environment that a robot has, too, without those that the address gives."""
    given = dict(parse_qsl(urlsplit(address).query))
    known = before.environment.arguments
    return {name: known[name] for name in SETTINGS if name in known and name not in given}


def _demonstrations(before: Recipe[Any], dataset: str) -> DemonstrationSettings:
    if dataset:
        return DemonstrationSettings(dataset)
    if not before.demonstrations.dataset and before.learner.sampling.offline_fraction:
        words = ["record", before.environment.name, *option_words("environment.arguments", before.arguments)]
        raise InvalidSetting(
            f"Part of each batch of {before.algorithm} comes from demonstrations, and none are named.",
            got="no --dataset",
            fix=f"robo-rl {shlex.join(words)} --episodes 20 --out data/demos, then --dataset data/demos",
        )
    return before.demonstrations


def _with_learner(before: Recipe[Any], is_corrected: bool) -> Recipe[Any]:
    """Return the recipe with a learner that continues the run's learner: RLPD becomes HIL-SERL if a person corrects it.

    Both have the same networks without a separate gripper critic, and HIL-SERL keeps corrections as demonstrations. It learns
    no world beside the policy, so these settings are left out.
    """
    require_loop(before.algorithm, before.learner, asked_of(before) | {Feature.INITIAL_RUN})
    goes_on_as_hil = before.algorithm == "rlpd" and is_corrected
    starts = min(before.learner.replay.learning_starts, STARTS)
    learner = plain(updated(before.learner, replay={"learning_starts": starts}))
    if goes_on_as_hil:
        learner.pop("worlds", None)
    tree = plain(before) | {"algorithm": "hil-serl" if goes_on_as_hil else before.algorithm, "learner": learner}
    return parse_recipe(tree, source=f"the refinement of {before.name}")
