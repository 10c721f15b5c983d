"""robo-rl reward write: reward program by a language model, repaired until it runs, improved by a person's feedback."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robo_app.arguments.free_settings import option_words
from robo_app.recipes.recipe import read_recipe
from robo_app.rewards.program_writing import Asking, writing
from robo_app.training.program_validation import batch_sizes
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.writing.prompts import Feedback
from robo_rl.rewards.writing.record import CALLS, begin, keep_candidate, keep_program
from robo_rl.rewards.writing.writer import Text2RewardConfig, write
from robo_rl.runs.run import write_text

FEEDBACK = "feedback.md"


@dataclass(frozen=True)
class WriteReward:
    """Have a language model write a reward program; with --feedback, the next one after a person saw the policy."""

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE|ENVIRONMENT")]
    """Recipe, for its environment and arguments, or name of an environment."""
    out: Path
    """Folder of the program and all that led to it; the same command asks nothing twice."""
    feedback: str = ""
    """Feedback on the policy of the folder's newest program: requests the next one."""
    asking: Annotated[Asking, tyro.conf.arg(name="")] = field(default_factory=Asking)
    config: Annotated[Text2RewardConfig, tyro.conf.arg(name="")] = field(default_factory=Text2RewardConfig)


def write_reward(arguments: WriteReward) -> int:
    """Print path and history of the program; return 1 if none is usable."""
    name, settings, sizes = task_named(arguments.task)
    asking, out = arguments.asking, arguments.out
    order = {"method": "text2reward", "environment": name, "arguments": settings, "sentence": asking.sentence}
    asking.require_one(name)
    rounds = rounds_so_far(out, arguments.feedback)
    begin(out, order | asking.order | {"temperature": arguments.config.temperature})
    with writing(name, settings, asking, out / CALLS, sizes) as context:
        found = write(context.writer, context.task, arguments.config, examples=context.examples, rounds=rounds)
    place = out / "rounds" / str(found.round)
    keep_candidate(found, place)
    mended = f", mended after {found.repairs} error(s)" if found.repairs else ""
    if found.program is None:
        print(f"round {found.round}: no usable program after {found.repairs} repairs ({found.status})\n{found.reason}")
        return 1
    if rounds:
        write_text(place / FEEDBACK, rounds[-1].words)
    facts = {"environment": name, "arguments": settings, "sentence": context.task.sentence, "round": found.round}
    is_newest = not (out / "rounds" / str(found.round + 1) / "program.py").exists()
    path = out / "program.py" if is_newest else place / "program.py"
    for each in {place / "program.py", path}:
        keep_program(found, each, **facts, repairs=found.repairs)
    print(f"round {found.round}{mended}: {path}   terms {', '.join(found.program.terms)}")
    if not is_newest:
        print(f"later rounds are there: {out / 'program.py'} stays the newest program")
    words = ["robo-rl", "reward", "check", str(path), "--environment", name, *option_words("environment.arguments", settings)]
    print(f"try it:   {shlex.join(words)}")
    print(f"train:    robo-rl train RECIPE --reward.name program:{path}")
    return 0


def task_named(task: str) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    """Return name and arguments of an environment, or of a recipe's, with its learner's batch size."""
    if "/" in task and not task.endswith((".yaml", ".yml")):
        return task, {}, ()
    recipe = read_recipe(task)
    environment = recipe.environment
    if not environment.name:
        raise InvalidSetting(f"The recipe {task} names no environment.", fix="name an environment, such as robo/ArmPush-v0")
    return environment.name, dict(environment.arguments), batch_sizes(recipe.learner)


def rounds_so_far(out: Path, feedback: str) -> list[Feedback]:
    """Return each program of the folder with its feedback, up to the requested one.

    Without feedback that is the first; the same feedback gives the newest program again.
    """
    places = [out / "rounds" / str(number) for number in range(1, 1 + sum(1 for _ in (out / "rounds").glob("*/program.py")))]
    if not feedback:
        return []
    if not places:
        raise InvalidSetting(f"{out} holds no program that feedback could be about.", fix="leave --feedback out first")
    programs = [RewardProgram.read(place / "program.py").source for place in places]
    words = [(place / FEEDBACK).read_text() for place in places[1:]]
    words += [] if words[-1:] == [feedback] else [feedback]
    return [Feedback(program, said) for program, said in zip(programs, words, strict=False)]
