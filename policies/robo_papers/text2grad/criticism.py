"""Remarks on spans of time by a language model, which is shown an episode in words: Text2Grad without a person.

The remarks have the form in which a person writes them (`robo_papers.text2grad.spans`), and become rewards in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import pydantic

from robo_papers.text2grad.spans import SpanFeedback
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.question import Form, Question, prompt
from robo_rl.rewards.step_rewards.captions import Captioner, described
from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.types import Episode

SYSTEM = "You criticise what an agent does in a small world, moment by moment. Be honest: say only what the record shows."
MOST = 4
"""Largest number of remarks on an episode."""


class Remark(Form):
    """Form of a part of an answer: a moment or a span of an episode, and whether it was good."""

    first_line: int
    last_line: int
    judgement: Literal["good", "poor"]
    reason: str


class Remarks(Form):
    """Form of an answer: remarks on an episode."""

    remarks: Annotated[list[Remark], pydantic.Field(max_length=MOST)]


def criticised(client: ModelClient, episodes: Sequence[Episode], captioner: Captioner, goal: str) -> list[list[str]]:
    """Return the remarks of a model on each episode, as a person would write them; lines that do not exist are left out.

    Raises the errors of `ModelClient.ask`.
    """
    records = [lines_of(episode, captioner) for episode in episodes]
    answers = client.ask([question(lines, goal) for lines in records])
    return [
        [] if answer.status != "ok" else notes(Remarks.model_validate(answer.content), lines, episode)
        for answer, lines, episode in zip(answers, records, episodes, strict=True)
    ]


def lines_of(episode: Episode, captioner: Captioner) -> list[str]:
    """Return the caption of each step of an episode, as a line of text."""
    if not len(episode):
        return []
    words = described(captioner, Steps.of(episode), {}, says_task=False)
    return [words.captions[number] for number in words.numbers.tolist()]


def question(lines: Sequence[str], goal: str) -> Question:
    """Return the question about an episode, one line for each step; equal lines one after the other are said once."""
    shown, begin = list[str](), 0
    for number, line in enumerate(lines):
        if number + 1 == len(lines) or lines[number + 1] != line:
            span = f"{begin}" if begin == number else f"{begin} to {number}"
            shown.append(f"{span}: {line}")
            begin = number + 1
    words = (
        f"The agent is to {goal or 'do its task'}. Its record, with the number of each line:\n" + "\n".join(shown) + "\n\n"
        f"Name at most {MOST} spans of lines that were good or poor for what it is to do, and say why in a few words."
    )
    return prompt(words, purpose="criticise", system=SYSTEM, form=Remarks, temperature=0.0)


def notes(answer: Remarks, lines: Sequence[str], episode: Episode) -> list[str]:
    """Return remarks such as "2.1-3.0 s poor: turned away"; times are those at which the actions were taken.

    They are written to a nanosecond, because a simulator may take many steps in a millisecond.
    """
    times = episode.timestamps - episode.timestamps[0]
    found = []
    for each in answer.remarks:
        if 0 <= each.first_line <= each.last_line < len(lines):
            first, last = (f"{times[line]:.9f}".rstrip("0").rstrip(".") for line in (each.first_line, each.last_line))
            found.append(f"{first}-{last} s {each.judgement}: {each.reason}")
    assert all(SpanFeedback.read(note) is not None for note in found), "they are read as a person's"
    return found
