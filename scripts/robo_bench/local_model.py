"""Ask the language model in this process where right answers are known, and count them; studies of papers ask it, too.

    python -m robo_bench.local_model                    (minutes on one core)
    python -m robo_bench.local_model --model FILE.gguf

Every choice is made by likelihood, so that all answers have their form. Beside the right answers stands what the best answer
would get that is always the same.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.models import ChatModel, chat_model
from robo_rl.rewards.chat.question import Question
from robo_rl.rewards.judges.heads import SYSTEM, worded
from robo_rl.rewards.judges.rater import CHOOSE, Choice

INSTRUCTION = "push the cube onto the mark"


class Path(NamedTuple):
    """Result of one kind of question to the local model: counts of its answers, and time."""

    name: str
    asked: int
    formed: int
    """Number of answers that have the required form."""
    right: int
    constant: int
    """Number of right answers that a rater would have by always giving one answer, the best one."""
    said: str
    """Each different answer, with how often it was given."""
    seconds: float

    def row(self) -> str:
        """Return this result as one row of a Markdown table."""
        return (
            f"| {self.name} | {self.formed} of {self.asked} | {self.right} of {self.asked} | {self.constant} | {self.said} "
            f"| {self.seconds / max(1, self.asked):.1f} |"
        )


def most(values: Iterable[object]) -> int:
    """Return the number of occurrences of the most frequent value."""
    return max(Counter(values).values())


def choices(model: ChatModel, name: str, cases: Sequence[tuple[Question, str]], field: str) -> Path:
    """Return how often the choice is the right one."""
    started = time.monotonic()
    answers = ModelClient(model).ask([asked for asked, _ in cases])
    said = [str(answer.content.get(field, "")) for answer in answers]
    right = sum(mine == wanted for mine, (_, wanted) in zip(said, cases, strict=True))
    counts = ", ".join(f"{said.count(each)} x {each}" for each in sorted({*said}))
    formed = sum(answer.status == "ok" for answer in answers)
    same = most(wanted for _, wanted in cases)
    return Path(name, len(cases), formed, right, same, counts, time.monotonic() - started)


def pairs(count: int) -> list[tuple[Question, str]]:
    """Return questions with their right answers, as the rater `judge` asks them in its second step.

    Two pictures are described in words: each gives the distance of the cube from the mark. The question is in which picture
    more of
    the task is done.

    count: number of questions; half of them have the answer "image 1".
    """
    draw, found = random.Random(0), list[tuple[Question, str]]()
    for _ in range(count // 2):
        near, far = draw.randint(1, 5), draw.randint(15, 40)
        for one, other, right in ((near, far, "image 1"), (far, near, "image 2")):
            seen = f"In image 1 the cube is {one} cm away from the mark. In image 2 the cube is {other} cm away from the mark."
            found.append((Question((worded(CHOOSE, INSTRUCTION, analysis=seen),), Choice, SYSTEM), right))
    return found


def asked_for(module: str, text: str | None) -> tuple[ChatModel, int]:
    """Read a command line, print the head of the table, and return the model and the questions of each path."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(text or "").splitlines()[0])
    parser.add_argument("--model", default="", help="a GGUF file; empty for SmolLM2-135M-Instruct")
    parser.add_argument("--cases", type=int, default=20, help="questions of each path")
    arguments = parser.parse_args()
    model = chat_model("local", {"model": arguments.model, "text_tokens": 12})
    print(f"| {model.identity[0]} | of the right form | right | always the same | said | s a question |")
    print("|---|---|---|---|---|---|", flush=True)
    return model, arguments.cases


if __name__ == "__main__":
    model, count = asked_for("robo_bench.local_model", __doc__)
    print(choices(model, "rater `judge`, second question", pairs(count), "better").row())
