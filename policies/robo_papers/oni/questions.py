"""Questions to a language model about captions, labels from its answers, and a rule that answers instead of a model.

An answer without the form is missing; it is never a label. The rule (`llm: rule`), with a set latency and error rate, replaces
a model in tests, benchmarks and trials; its answers follow from the caption alone.
"""

from __future__ import annotations

import json
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

import numpy as np
from typing_extensions import override

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.question import Answer, Form, Question, prompt
from robo_rl.rewards.identity import settings_hash

Query = tuple[str, ...]
"""One caption to be labelled, or two to be compared."""
TEMPERATURE = 0.1
"""Sampling temperature, as for the paper's prompts."""
SYSTEM = (
    "You judge what an agent does in a small world. Each description is of one step: what changed, what the agent carries, "
    "faces and sees. Be honest: say only what follows from the description."
)
DESCRIPTION = "Description: "
FIRST, SECOND = "First description: ", "Second description: "


class Helps(Form):
    """Form of the answer to the question whether a step helps."""

    reason: str
    helps: bool


class Better(Form):
    """Form of the answer to the question which of two steps is better."""

    reason: str
    better: Literal["first", "second", "neither"]


@dataclass(frozen=True)
class Questions(ABC):
    """Base class of questions about captions to a language model; called by the annotator's thread alone."""

    model: ModelClient
    goal: str
    """The task in words; empty if the captions name it."""

    def answers(self, queries: Sequence[Query]) -> list[tuple[float | None, str]]:
        """Return label and status of each query, None for a missing label; raises the model's errors."""
        replies = self.model.ask([self.prompt(query) for query in queries])
        return [self._label(query, reply) for query, reply in zip(queries, replies, strict=True)]

    @abstractmethod
    def prompt(self, query: Query) -> Question:
        """Make the prompt that asks a model about a caption, or about two."""

    @abstractmethod
    def value(self, query: Query, reply: Answer) -> float:
        """Return the label that an answer of the right form stands for."""

    def _label(self, query: Query, reply: Answer) -> tuple[float | None, str]:
        return (self.value(query, reply), "ok") if reply.status == "ok" else (None, reply.status)

    @property
    def _aim(self) -> str:
        return f"The agent is to {self.goal}." if self.goal else "What the agent is to do is said before each description."


@dataclass(frozen=True)
class LabelQuestions(Questions):
    """Questions about one caption: 1 if the step helps, else 0."""

    @override
    def prompt(self, query: Query) -> Question:
        (caption,) = query
        words = (
            f"{self._aim} Explain in a sentence what the description says. Then say whether this step brings the agent nearer "
            f"to what it is to do: true if it clearly does, false if it changes nothing, leads away or cannot be told.\n\n"
            f"{DESCRIPTION}{caption}"
        )
        return _prompt(words, "annotate", Helps)

    @override
    def value(self, query: Query, reply: Answer) -> float:
        return float(reply.content["helps"])


@dataclass(frozen=True)
class PairQuestions(Questions):
    """Questions about two captions: 0 if the first step is better, 1 if the second is, 0.5 if neither.

    The order shown follows from a hash of both, because models prefer a place.
    """

    @override
    def prompt(self, query: Query) -> Question:
        first, second = query[::-1] if _is_turned(query) else query
        words = (
            f"{self._aim} Explain in a sentence what each description says and compare them. Then say which step leaves the "
            f"agent nearer to what it is to do, or neither.\n\n{FIRST}{first}\n{SECOND}{second}"
        )
        return _prompt(words, "compare", Better)

    def value(self, query: Query, reply: Answer) -> float:
        """Return the preference for the second caption of the query, in either order shown."""
        shown = {"first": 0.0, "neither": 0.5, "second": 1.0}[reply.content["better"]]
        return 1.0 - shown if _is_turned(query) else shown


def _prompt(words: str, purpose: str, form: type[Form]) -> Question:
    return prompt(words, purpose=purpose, system=SYSTEM, form=form, temperature=TEMPERATURE)


def _is_turned(query: Query) -> bool:
    return bool(crc32("\n".join(query).encode()) & 1)


PROGRESS = (
    r"You pick up an? \w+ key",
    r"You (unlock and )?open an? \w+ (door|box)",
    r"You walk into",
    "Ahead: a goal",
    "You reach a goal",
)


@dataclass(frozen=True)
class AnnotationRule:
    """Settings of the rule that replaces a model (`llm: rule`): which captions are good, latency and error rate."""

    progress: tuple[str, ...] = PROGRESS
    """Regular expressions; a caption in which one is found helps, and a later one is better. The default is for MiniGrid's
    keys, doors and goals."""
    latency_s: float = 0.0
    """[s] of one call, for any number of captions."""
    errors: float = 0.0
    """Share of captions (or pairs) that get the opposite label, always the same ones."""
    garbage: float = 0.0
    """Share that gets an answer without the form, always the same ones."""
    seed: int = 0
    """Seed that chooses the captions with wrong or useless answers."""

    def __post_init__(self) -> None:
        shares = {name: (0 <= getattr(self, name) <= 1, "0 to 1") for name in ("errors", "garbage")}
        require_allowed(self, shares | {"latency_s": (0 <= self.latency_s < np.inf, "0 or more")})
        for pattern in self.progress:
            try:
                re.compile(pattern)
            except re.error as error:
                raise InvalidSetting(
                    f"{pattern!r} is not a regular expression.", got=error, allowed="one of Python's"
                ) from None


class RuleModel:
    """Model that answers questions about captions by a rule; implements `robo_rl.rewards.chat.models.ChatModel`."""

    def __init__(self, rule: AnnotationRule) -> None:
        self._rule = rule
        self._patterns = [re.compile(pattern) for pattern in rule.progress]

    @property
    def identity(self) -> tuple[str, str]:
        """Name, which states that no model answered, and hash of the settings."""
        return "rule (no model)", settings_hash(self._rule)

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield (number of the question, answer) for each question, after the latency."""
        if self._rule.latency_s:
            time.sleep(self._rule.latency_s)
        for number, question in enumerate(questions):
            asked = question.turns[0][1] if question.turns else question.words
            yield number, Answer("ok", text=self._words(asked), model="made by rule", origin="pack")

    def report(self) -> str:
        """Return a line on the source for readers of results."""
        return "labels made by rule, not by a model"

    def _words(self, asked: str) -> str:
        chance = random.Random(f"{self._rule.seed} {asked}")
        errs, is_garbage = chance.random() < self._rule.errors, chance.random() < self._rule.garbage
        if is_garbage:
            return "Well, that depends."
        return json.dumps(self._compared(asked, errs) if FIRST in asked else self._labelled(asked, errs))

    def _labelled(self, words: str, errs: bool) -> Mapping[str, Any]:
        rank = self.rank(words.partition(DESCRIPTION)[2])
        return {"reason": f"by rule: rank {rank}", "helps": (rank > 0) != errs}

    def _compared(self, words: str, errs: bool) -> Mapping[str, Any]:
        first, _, second = words.partition(FIRST)[2].partition(f"\n{SECOND}")
        ranks = self.rank(first), self.rank(second)
        difference = (ranks[1] - ranks[0]) * (-1 if errs else 1)
        better = "neither" if difference == 0 else "second" if difference > 0 else "first"
        return {"reason": f"by rule: ranks {ranks[0]} and {ranks[1]}", "better": better}

    def rank(self, caption: str) -> int:
        """Return the number of the last regular expression that matches the caption, 0 for none."""
        return max((rank for rank, pattern in enumerate(self._patterns, 1) if pattern.search(caption)), default=0)
