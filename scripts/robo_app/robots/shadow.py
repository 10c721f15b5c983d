"""Shadow run of a trained policy on a robot: another source commands; the policy's actions are only judged and recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import gymnasium

from robo_app.recipes.recipe import EnvironmentSettings, require_at_least
from robo_app.training.assembly import recipe_of
from robo_app.training.run_evaluation import elsewhere, load_policy
from robo_app.training.supervision import open_operator
from robo_datasets.dataset import Dataset
from robo_datasets.recorder import record_episode
from robo_real.console.human import PersonCommands
from robo_real.console.operator_env import SHADOWING
from robo_real.environment import RobotEnv
from robo_real.shadow import ScriptedCommands, Source, ZeroCommands
from robo_real.shadow_report import PERSON, ShadowReport, shadow_report
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, RoboRLError, UnknownName
from robo_rl.runs.run import Run, write_text
from robo_rl.spec.environment import specification
from robo_rl.types import DISCARDED

FOLDER = "shadow"
"""Folder of a run that holds a dataset and a report for each shadow run."""


@dataclass(frozen=True)
class ShadowSettings:
    """Settings of a shadow run."""

    commands: str
    """Source of the executed commands: "zero", "scripted", or "person" at the console."""
    episodes: int
    seed: int
    """Reset seed of the first episode; each later episode has the next higher number."""
    port: int = 8644
    """Port of the console."""

    def __post_init__(self) -> None:
        if self.commands not in get_args(Source):
            raise UnknownName("source of commands of a shadow run", self.commands, get_args(Source))
        require_at_least(self, {"episodes": 1, "seed": 0})


def shadow_run(run: Run, robot: EnvironmentSettings, how: ShadowSettings) -> tuple[ShadowReport, Path]:
    """Play episodes in which the guard judges the actions of a run's policy, while another source commands the robot.

    Args:
        run: Run of the policy.
        robot: Environment of the robot.
        how: Settings of the shadow run.

    Returns:
        The report, and the folder in which it and the dataset of the episodes are.

    Raises:
        InvalidSetting: The environment is no robot.
        SpecMismatch: The policy was trained for another environment.
        RobotError: The robot stopped; a report on the episodes before is written first, if there are any.
    """
    policy = load_policy(run)
    with _commanded(robot, how) as environment:
        spec = specification(environment)
        policy.environment_spec.require_interface(
            spec, what=f"The policy was made for another environment than this {spec.name}"
        )
        folder = run.path / FOLDER
        path = folder / f"{len([*folder.glob('*/')]) + 1:03}-{how.commands}"
        dataset = Dataset.create(path, spec, {"run": run.path.name, "environment": robot.name, FOLDER: how.commands})
        stopped: RoboRLError | None = None
        with dataset.writer() as writer:
            try:
                for number in range(how.episodes):
                    record_episode(
                        environment, policy, writer, seed=how.seed + number, source=run.path.name, deterministic=True
                    )
            except (KeyboardInterrupt, RoboRLError) as error:
                if not len(dataset):
                    raise
                stopped = error if isinstance(error, RoboRLError) else None
    played = (replace(episode, observations={}) for episode in dataset)  # pictures of many episodes would fill the memory
    report = shadow_report([episode for episode in played if episode.stop_reason != DISCARDED], spec.action)
    write_text(path / "report.json", json.dumps(report.to_json(), indent=2))
    if stopped is not None:
        print(
            f"The shadow run ended early, after {len(dataset)} of {how.episodes} episodes\n  kept:    {path}", file=sys.stderr
        )
        raise stopped
    return report, path


@contextmanager
def _commanded(robot: EnvironmentSettings, how: ShadowSettings) -> Iterator[gymnasium.Env[Any, Any]]:
    """Open the environment of a robot in which actions are only judged; the arm holds still afterwards."""
    with closing(make_environment(robot.name, **robot.arguments)) as environment:
        bare = environment.unwrapped
        if not isinstance(bare, RobotEnv) or (how.commands == PERSON and environment is not bare):
            raise InvalidSetting(
                "Only a robot has a shadow run, and a person commands it in the frame of its base.",
                got=robot.name,
                allowed="an environment robot:http://HOST:PORT, with zero or scripted commands if relative_frame is set",
                fix='--environment "robot:URL"',
            )
        if how.commands != PERSON:
            bare.commands = ZeroCommands(bare.environment_spec.action) if how.commands == "zero" else _scripted(bare)
            yield environment
            return
        with open_operator(robot.name, port=how.port) as operator:
            shown, _ = operator.training_env(environment, doing=SHADOWING)
            bare.commands = PersonCommands(shown.human, operator.hold_action)
            yield shown


def _scripted(bare: RobotEnv) -> ScriptedCommands:
    bare.scripted_policy(0)  # raises before anything moves if there is no expert
    return ScriptedCommands(bare.scripted_policy)


def shadow_run_elsewhere(
    trained: Run, environment: str, arguments: Mapping[str, Any], settings: ShadowSettings
) -> tuple[ShadowReport, Path]:
    """Run `shadow_run` on the robot with the name `environment`, made with the arguments of the training and `arguments`."""
    return shadow_run(trained, elsewhere(recipe_of(trained).environment, environment, "", arguments), settings)
