"""Chat models, which answer questions about words and pictures: entry points `robo_rl.judges`; and the terms of asking them.

A model only carries questions and replies: `robo_rl.rewards.chat.client` keeps answers, reads them strictly, logs them and
counts their cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from robo_rl.entry_points import load
from robo_rl.errors import require_allowed
from robo_rl.rewards.chat.question import Answer, Question
from robo_rl.settings import settings_as


@dataclass(frozen=True)
class Terms:
    """Budget and cache of answers, the same for every judge."""

    cache: str = ""
    """Folder of the answers; empty for $ROBO_RL_CACHE/answers, or ~/.cache/robo_rl/answers if that is not set."""
    prompt_price: float = 0.0
    """Price of a million tokens of questions, in any currency; see the price list of the model."""
    completion_price: float = 0.0
    """Price of a million tokens of answers."""
    most_tokens: int = 0
    """Total number of tokens after which no question is sent; 0 for no limit."""
    most_cost: float = 0.0
    """Total cost after which no question is sent; 0 for no limit."""
    unanswered: int = 5
    """Questions in a row without any answer after which labelling stops; the same command resumes it."""
    useless: int = 20
    """Answers in a row of no use (cut, garbage, refused) after which no more are asked for; they are kept."""
    mixed_models: bool = False
    """Go on if another model answers than before, by its own name."""

    def __post_init__(self) -> None:
        prices = {"prompt_price": self.prompt_price, "completion_price": self.completion_price}
        allowed = {name: (0 <= price < np.inf, "0 or more") for name, price in prices.items()}
        has_price = self.most_cost == 0 or any(prices.values())
        allowed |= {"most_cost": (0 <= self.most_cost < np.inf and has_price, "0 or more, and above 0 only with prices")}
        require_allowed(
            self,
            allowed
            | {"most_tokens": (self.most_tokens >= 0, "0 or more")}
            | {name: (getattr(self, name) >= 1, "1 or more") for name in ("unanswered", "useless")},
        )

    @property
    def is_limited(self) -> bool:
        """True if there is a budget."""
        return self.most_tokens > 0 or self.most_cost > 0

    @property
    def limits(self) -> str:
        """The limits in words."""
        limits = {"tokens": self.most_tokens, "cost": self.most_cost}
        return ", ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit)

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of tokens."""
        return (prompt_tokens * self.prompt_price + completion_tokens * self.completion_price) / 1e6


class ChatModel(Protocol):
    """Answers questions. Its settings are its fields; nothing is loaded or opened before the first question."""

    @property
    def identity(self) -> tuple[str, str]:
        """Its name and a hash of all that its answers follow from; not of its terms."""

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield each question's number with its answer as it comes in, in any order.

        Draws a question only when it sends it, so that the caller can stop. Raises JudgeError only if no later question can
        be answered either.
        """


@runtime_checkable
class Paid(ChatModel, Protocol):
    """A model whose answers are kept, and may cost something."""

    @property
    def terms(self) -> Terms:
        """Its budget and store."""


@runtime_checkable
class Reporting(Protocol):
    """A model with words of its own for readers of results."""

    def report(self) -> str:
        """Return a line on where its answers come from."""


def chat_model(name: str, settings: Mapping[str, Any]) -> Paid:
    """Return a chat model by its name; raise UnknownName, and InvalidSetting naming the setting."""
    found: Paid = settings_as(load("judges", name), settings, source=f"the judge {name}")
    return found
