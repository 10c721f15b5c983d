"""robo-rl reward latent: have a language model write the factors from which `lare` learns the rewards of steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.free_settings import EnvironmentArguments, ModelSettings
from robo_app.recipes.recipe import require_at_least
from robo_papers.lare.latent_code import Attempt, LatentCode, LatentCodeConfig
from robo_papers.lare.latent_steps import columns_of_steps
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.chat.opening import language_model, require_task
from robo_rl.rewards.programs.runner import end_workers
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.spec.environment import EnvironmentSpec, specification

EXAMPLES = "robo-rl reward latent gymnasium/Reacher-v5 --llm pack:lare-reacher --out rewards/reacher.py"


@dataclass(frozen=True)
class Latent:
    """Have a language model write factors of a latent reward (LaRe), try them on recorded steps, and keep the program."""

    environment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENVIRONMENT")]
    """Environment (`robo-rl envs`); its instruction and the description of its columns go into the prompt."""
    out: Path
    """File of the program, .py; its origin (.json) and all calls (.calls.jsonl) are written next to it."""
    llm: str = ""
    """A judge such as `endpoint`, a YAML file that names one with its settings, or `pack:NAME_OR_FILE`."""
    llm_settings: ModelSettings = field(default_factory=dict)
    """Setting of the judge, such as --llm.settings.model qwen3"""
    replay: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Log of an earlier command with answers to all calls."""
    arguments: EnvironmentArguments = field(default_factory=dict)
    """Keyword argument of the environment."""
    task: str = ""
    """The task in words; empty for the environment's own instruction."""
    steps: int = 2000
    """Recorded steps that programs are tried on, half of them of the scripted expert if there is one."""
    settings: LatentCodeConfig = field(default_factory=LatentCodeConfig)

    def __post_init__(self) -> None:
        require_at_least(self, {"steps": 2})
        if self.out.suffix != ".py":
            raise InvalidSetting("The program needs a file.", got=self.out, allowed="a path that ends in .py")
        if not self.llm and self.replay is None:
            raise InvalidSetting(
                "No language model is named.",
                fix="--llm endpoint, --llm pack:lare-reacher, or --replay LOG of an earlier command",
            )


def run(arguments: Latent) -> int:
    """Query the model, test, save, and print the result."""
    log = arguments.out.with_suffix(".calls.jsonl")
    if arguments.out.exists() and not log.exists():
        raise InvalidSetting(f"{arguments.out} is there already, and not from this command.", fix="name a new file")
    if arguments.replay is None:
        require_task(arguments.llm, arguments.environment)
    environment = make_environment(arguments.environment, **arguments.arguments)
    spec = specification(environment)
    task, view = _task(arguments, spec), EnvAbstraction.of(spec)
    with language_model(arguments.llm, arguments.llm_settings, log=log, replay=arguments.replay) as model:
        model.watch = partial(print, flush=True)
        steps = columns_of_steps(environment, spec, view, arguments.steps)
        environment.close()
        try:
            report = _shown if arguments.settings.rounds else lambda attempt: None  # 0 rounds try nothing
            program = LatentCode(model, view, steps, arguments.settings).write(task, report)
        finally:
            print(model.report())
            end_workers()
    path = program.save(arguments.out)
    tried = f"tried on {arguments.steps} steps" if arguments.settings.rounds else "not tried"
    print(f"{path}: {len(program.terms)} factors, {tried}: {', '.join(program.terms)}")
    print(f"learn with it: a recipe with reward: {{name: lare, settings: {{path: {path}}}}}")
    return 0


def _task(arguments: Latent, spec: EnvironmentSpec) -> str:
    task = arguments.task or spec.instruction
    if not task:
        raise InvalidSetting(f"{spec.name} does not say what its task is.", fix="say it: --task WORDS")
    return task


def _shown(attempt: Attempt) -> None:
    factors = ", ".join(attempt.program.terms) if attempt.program else "no program"
    print(f"tried: {factors}" if not attempt.findings else f"tried: {factors}\n{attempt.findings}")
