"""What a language model is asked about captions, and how its answers become labels.

An answer that does not have the form is missing; it is never a label.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from robo_rl.rewards.judging import Form
from robo_rl.rewards.language.conversation import Prompt, Reply, prompt
from robo_rl.rewards.language.model import LanguageModel

Query = tuple[str, ...]
"""One caption to be labelled, or two to be compared."""
TEMPERATURE = 0.1
"""As in the paper's prompts."""
SYSTEM = (
    "You judge what an agent does in a small world. Each description is of one step: what changed, what the agent carries, "
    "faces and sees. Be honest: say only what follows from the description."
)
DESCRIPTION = "Description: "
FIRST, SECOND = "First description: ", "Second description: "


class Helps(Form):
    """Whether a step helps."""

    reason: str
    helps: bool


class Better(Form):
    """Which of two steps is better."""

    reason: str
    better: Literal["first", "second", "neither"]


@dataclass(frozen=True)
class Questions(ABC):
    """Asks a model about captions; called by the annotator's thread alone."""

    model: LanguageModel
    goal: str
    """What the agent is to do; empty where the captions name the task."""

    def answers(self, queries: Sequence[Query]) -> list[tuple[float | None, str]]:
        """Returns label and status of each query, None where there is no label; raises what the model raises."""
        replies = self.model.ask([self.prompt(query) for query in queries])
        return [self._label(query, reply) for query, reply in zip(queries, replies, strict=True)]

    @abstractmethod
    def prompt(self, query: Query) -> Prompt:
        """Returns what the model is asked about a query."""

    @abstractmethod
    def value(self, query: Query, reply: Reply) -> float:
        """Returns the label that an answer of the right form means."""

    def _label(self, query: Query, reply: Reply) -> tuple[float | None, str]:
        return (self.value(query, reply), "ok") if reply.status == "ok" else (None, reply.status)

    @property
    def _aim(self) -> str:
        return f"The agent is to {self.goal}." if self.goal else "What the agent is to do is said before each description."


@dataclass(frozen=True)
class LabelQuestions(Questions):
    """Asks of one caption whether the step helps: 1 or 0."""

    def prompt(self, query: Query) -> Prompt:
        """Returns the question about one caption."""
        (caption,) = query
        words = (
            f"{self._aim} Explain in a sentence what the description says. Then say whether this step brings the agent nearer "
            f"to what it is to do: true if it clearly does, false if it changes nothing, leads away or cannot be told.\n\n"
            f"{DESCRIPTION}{caption}"
        )
        return _prompt(words, "annotate", Helps)

    def value(self, query: Query, reply: Reply) -> float:
        """Returns 1 for a step that helps."""
        return float(reply.content["helps"])


@dataclass(frozen=True)
class PairQuestions(Questions):
    """Asks of two captions which step is better: 0 the first, 1 the second, 0.5 neither.

    Which one is shown first follows from a hash of both, because models prefer a place.
    """

    def prompt(self, query: Query) -> Prompt:
        """Returns the question about two captions."""
        first, second = query[::-1] if _is_turned(query) else query
        words = (
            f"{self._aim} Explain in a sentence what each description says and compare them. Then say which step leaves the "
            f"agent nearer to what it is to do, or neither.\n\n{FIRST}{first}\n{SECOND}{second}"
        )
        return _prompt(words, "compare", Better)

    def value(self, query: Query, reply: Reply) -> float:
        """Returns how much better the second caption of the query is, whichever was shown first."""
        shown = {"first": 0.0, "neither": 0.5, "second": 1.0}[reply.content["better"]]
        return 1.0 - shown if _is_turned(query) else shown


def _prompt(words: str, purpose: str, form: type[Form]) -> Prompt:
    return prompt(words, purpose=purpose, system=SYSTEM, form=form, temperature=TEMPERATURE)


def _is_turned(query: Query) -> bool:
    return bool(crc32("\n".join(query).encode()) & 1)
