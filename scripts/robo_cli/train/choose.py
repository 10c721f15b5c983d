"""robo-rl choose: six questions that end in one method and the commands to run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from robo_app.listings.choice import QUESTIONS, Situation, choose
from robo_rl.errors import InvalidSetting

EXAMPLES = """robo-rl choose
robo-rl choose --demonstrations yes --reward sparse     (the others are then no)
robo-rl choose --data-alone yes --reward none --environment my_package.envs:MyEnv"""
Answer = Literal["", "yes", "no"]


@dataclass(frozen=True)
class Choose:
    """Choose a method. Asks on a terminal if no question is answered; an answer that is not given is then no."""

    demonstrations: Answer = ""
    """Demonstrations, or somebody who can record them."""
    reward: Literal["", "dense", "sparse", "none"] = ""
    """dense: for every step; sparse: for success alone; none. By default dense."""
    pictures: Answer = ""
    """The policy sees pictures instead of states."""
    data_alone: Answer = ""
    """Learn from recorded episodes alone."""
    person: Answer = ""
    """A person corrects the policy while it learns."""
    limits: Answer = ""
    """Costs must stay below limits."""
    environment: str = "ENVIRONMENT"
    """Environment in the commands that are printed."""


def run(arguments: Choose) -> int:
    """Print the method, the reason, its evidence, the commands and the page."""
    given = {name: str(getattr(arguments, name)) for name in QUESTIONS}
    if not any(given.values()):
        if not sys.stdin.isatty():
            raise InvalidSetting("No question is answered, and nobody can be asked here.", fix="robo-rl choose --reward dense")
        given = {name: _asked(*QUESTIONS[name]) for name in QUESTIONS}
    usual = {name: "dense" if name == "reward" else "no" for name in QUESTIONS}
    answers = {name: value or usual[name] for name, value in given.items()}
    choice = choose(Situation(**answers), arguments.environment)  # type: ignore[arg-type]  # tyro and _asked check them
    lines = "\n".join(f"  {line}" for line in choice.commands)
    known = f"{choice.evidence}\n" + ("" if choice.evidence.rank == 0 else "No method is proven for this situation.\n")
    print(f"{choice.learner}\n{choice.because}\n{known}\n{lines}\n\nmeasured in {choice.page}; others: robo-rl learners")
    return 0


def _asked(question: str, answers: tuple[str, ...]) -> str:
    """Return an answer that was typed; the first letters are enough."""
    while True:
        typed = input(f"{question} [{'/'.join(answers)}] ").strip().lower()
        found = [answer for answer in answers if typed and answer.startswith(typed)]
        if len(found) == 1:
            return found[0]
