"""Interfaces of chat models, which answer questions in words and pictures (entry points `robo_rl.judges`), and their terms.

A model only transports questions and replies: `robo_rl.rewards.chat.client` stores answers, reads them strictly, logs them and
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
    """Settings of budget, prices and store of answers, the same for every judge."""

    cache: str = ""
    """Folder of the stored answers; empty for $ROBO_RL_CACHE/answers, or ~/.cache/robo_rl/answers if that variable is not
    set."""
    prompt_price: float = 0.0
    """Price of a million tokens of questions, in any currency."""
    completion_price: float = 0.0
    """Price of a million tokens of answers, in the same currency."""
    most_tokens: int = 0
    """Total number of tokens after which no question is sent; 0 for no limit."""
    most_cost: float = 0.0
    """Total cost after which no question is sent; 0 for no limit."""
    unanswered: int = 5
    """Questions in a row without an answer after which labelling stops, 1 or more; the same command continues it."""
    useless: int = 20
    """Unusable answers in a row (cut, garbage, refused) after which no further question is sent, 1 or more; the answers are
    stored."""
    mixed_models: bool = False
    """True to continue if another model answers than before, by its own name."""

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
        """True if tokens or cost are limited."""
        return self.most_tokens > 0 or self.most_cost > 0

    @property
    def limits(self) -> str:
        """The limits of tokens and cost in words."""
        limits = {"tokens": self.most_tokens, "cost": self.most_cost}
        return ", ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit)

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of these numbers of tokens."""
        return (prompt_tokens * self.prompt_price + completion_tokens * self.completion_price) / 1e6


class ChatModel(Protocol):
    """Interface of a model that answers questions in words, such as a language model behind a server.

    The fields of the class are its settings; nothing is loaded or opened before the first question.
    """

    @property
    def identity(self) -> tuple[str, str]:
        """Name of the model, and a hash of everything that the answers depend on; budget and prices do not count."""

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield (number of the question, answer) as the answers arrive, in any order.

        A question is drawn from `questions` only when it is sent, so that the caller can stop. Raises JudgeError only if no
        later question can be answered either.
        """


@runtime_checkable
class Paid(ChatModel, Protocol):
    """Interface of a chat model whose answers are stored, and may cost something."""

    @property
    def terms(self) -> Terms:
        """Budget and store of answers."""


@runtime_checkable
class Reporting(Protocol):
    """Interface of a chat model that adds a line on its answers to reports."""

    def report(self) -> str:
        """Return a line for reports that says where the answers come from."""


def chat_model(name: str, settings: Mapping[str, Any]) -> Paid:
    """Return a chat model by its name; raises UnknownName, or InvalidSetting with the wrong setting."""
    found: Paid = settings_as(load("judges", name), settings, source=f"the judge {name}")
    return found
