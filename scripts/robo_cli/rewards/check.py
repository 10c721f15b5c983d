"""robo-rl reward check: test a reward program before training; robo-rl reward show prints one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.free_settings import EnvironmentArguments
from robo_app.recipes.recipe import require_at_least
from robo_app.recipes.reward_file import SHIPPED, program_file
from robo_app.training.program_validation import clips_of, fresh_episodes, recorded_episodes, stacked
from robo_datasets.dataset import Dataset
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidProgram, InvalidSetting
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.runner import require_frames
from robo_rl.rewards.programs.validation import validate
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.spec.environment import specification


@dataclass(frozen=True)
class Check:
    """Check a reward program: its grammar, and its values on rows if given. Exit status 1 if it fails."""

    program: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PROGRAM")]
    """A .py file, or a program that comes with the package, such as arm_push."""
    environment: str = ""
    """Try it on fresh episodes: of a scripted policy if there is one, and of a random one, by turns."""
    arguments: EnvironmentArguments = field(default_factory=dict)
    """Keyword argument of the environment, such as --environment.arguments.action_repeat 3"""
    dataset: Path | None = None
    """Try it on recorded episodes instead."""
    rows: int = 2000
    """Steps that it is tried on, whole episodes."""
    seed: int = 0
    """Seed of new episodes, and of all random test inputs."""

    def __post_init__(self) -> None:
        require_at_least(self, {"rows": 2, "seed": 0})
        if self.environment and self.dataset is not None:
            raise InvalidSetting("Rows come from an environment or from a dataset.", got="both", allowed="one of the two")
        if self.arguments and not self.environment:
            raise InvalidSetting("--environment.arguments.KEY needs an --environment.", got="no --environment", fix="name one")


def check_program(arguments: Check) -> int:
    """Print the results of the checks; return 1 if one failed."""
    path = program_file(arguments.program)
    try:
        program = RewardProgram.read(path)
        print(f"ok      grammar: terms {', '.join(program.terms) or 'none'}; reads {', '.join(program.columns)}")
        if arguments.environment or arguments.dataset is not None:
            return _tried(path, program, arguments)
    except InvalidProgram as error:
        print(f"failure {error.status}: {error}")
        return 1
    print("it was not run: name an --environment or a --dataset to try it on")
    return 0


def show_program(name: str) -> int:
    """Print a program, its inputs and outputs, and its origin."""
    path = program_file(name)
    program = RewardProgram.read(path)
    unknown = "written by hand, comes with robo-rl" if path.parent == SHIPPED else "nothing is said about it"
    print(f"{program.source}\n")
    print(f"hash     {program.hash[:16]}\nterms    {', '.join(program.terms) or 'none'}\nreads    {', '.join(program.columns)}")
    print(f"from     {json.dumps(dict(program.provenance)) if program.provenance else unknown}")
    return 0


def _tried(path: Path, program: RewardProgram, arguments: Check) -> int:
    environment = dataset = None
    if arguments.dataset is None:
        environment = make_environment(arguments.environment, **arguments.arguments)
        spec = specification(environment)
    else:
        dataset = Dataset(arguments.dataset)
        spec = dataset.spec
    view = EnvAbstraction.of(spec, images=True)
    RewardProgram.read(path, view.columns)  # unknown names are reported before any simulation
    require_frames(program, view, path, spec.name)
    rows, seed = arguments.rows, arguments.seed
    chosen = fresh_episodes(environment, rows, seed) if dataset is None else recorded_episodes(dataset, rows, seed)
    verdict = validate(program, stacked(view.only(program.columns), chosen), clips=clips_of(chosen), seed=seed)
    print(verdict)
    steps = sum(len(episode) for episode in chosen)
    print(f"{'passed' if verdict.passed else 'FAILED'} on {steps} steps of {len(chosen)} episodes of {spec.name}")
    return 0 if verdict.passed else 1
