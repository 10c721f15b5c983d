"""Common parts of the commands that write or search reward programs: task, language model, examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from robo_app.arguments.free_settings import ModelSettings, as_words
from robo_app.training.program_validation import spec_and_trial
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, RoboRLError
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.opening import language_model, require_task
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.rewards.writing.prompts import Example, RewardTask, means, nearest
from robo_rl.rewards.writing.writer import Writer
from robo_rl.spec.environment import specification

KNOWN = {"arm_reach": "robo/ArmReach-v0", "arm_push": "robo/ArmPush-v0", "arm_pick": "robo/ArmPick-v0"}
"""Program that comes with the package and may be shown as an example -> its environment."""


@dataclass(frozen=True)
class Asking:
    """Language model that writes programs, and its settings."""

    llm: str = ""
    """A server ("endpoint", or a YAML file with judge and settings), or "pack:NAME" for replies made by hand; empty only with
    `replay`."""
    llm_settings: ModelSettings = field(default_factory=dict)
    """Setting of the model, such as --llm.settings.model qwen3"""
    replay: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Log of an earlier run (calls.jsonl) with all answers: no server, no key."""
    sentence: str = ""
    """The task in one sentence; empty for the instruction of the environment."""
    examples: int = 0
    """Programs for other tasks that are shown, the nearest by their sentences; 0 for none (zero-shot)."""

    def require_one(self, environment: str) -> None:
        """Raise InvalidSetting unless exactly one of `llm` and `replay` is set, and for a pack of another environment.

        Raises UnknownName for an unknown pack.
        """
        if bool(self.llm) == (self.replay is not None):
            raise InvalidSetting(
                "Who answers?",
                got=f"--llm {self.llm!r}, --replay {self.replay}",
                allowed="one of the two",
                fix="--llm endpoint --llm.settings.model NAME --llm.settings.base_url URL; --llm pack:NAME; "
                "or --replay RUN/calls.jsonl",
            )
        require_task(self.llm, environment)

    def model(self, log: Path) -> ModelClient:
        """Return the client of the language model; calls are logged in `log`."""
        return language_model(self.llm, self.llm_settings, log=log, replay=self.replay)

    @property
    def order(self) -> dict[str, Any]:
        """Settings that are stored with the results, so that the same folder is not continued with others."""
        return {"llm": self.llm, "llm_settings": as_words(self.llm_settings), "examples": self.examples}


class WritingContext(NamedTuple):
    """Everything that is needed to write a program for a task: writer, task, and examples for the prompt."""

    writer: Writer
    task: RewardTask
    examples: Sequence[Example]


@contextmanager
def writing(
    name: str, arguments: Mapping[str, Any], asking: Asking, log: Path, sizes: Sequence[int] = ()
) -> Iterator[WritingContext]:
    """Yield the writer of programs for an environment, and print the number and cost of its calls at the end.

    Args:
        name: Name of the environment, in which steps for the validation of programs are recorded.
        arguments: Arguments of the environment.
        asking: Language model and its settings.
        log: Log of all calls.
        sizes: Batch sizes of the learner, with which programs are tried.

    Raises:
        InvalidSetting: There is no sentence about the task.
    """
    with asking.model(log) as model:
        model.watch = partial(print, flush=True)
        spec, attempt = spec_and_trial(name, arguments, sizes)
        sentence = asking.sentence or spec.instruction
        if not sentence:
            raise InvalidSetting(f"{name} says nothing about its task.", fix="--sentence 'what the robot shall do'")
        view = EnvAbstraction.of(spec)
        task = RewardTask(sentence, view.text, means(), spec.max_steps)
        try:
            yield WritingContext(
                Writer(model, view.columns, attempt, view.moved), task, nearest(sentence, _known(name), asking.examples)
            )
        finally:
            print(model.report())


def _known(name: str) -> list[Example]:
    """Return the example programs for other environments whose simulators are installed."""
    folder = Path(str(files("robo_app") / "rewards" / "programs"))
    found = []
    for stem, environment in KNOWN.items():
        path = folder / f"{stem}.py"
        if environment == name or not path.exists():
            continue
        try:
            made = make_environment(environment)
        except RoboRLError:
            continue
        found.append(Example(specification(made).instruction or stem, path.read_text()))
        made.close()
    return found
