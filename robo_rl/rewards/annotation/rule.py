"""A language model's double that answers by a rule, as slowly and as wrongly as wanted: `llm: rule`.

It stands in for a model in tests, benchmarks and trials; what it says follows from the caption alone and is nobody's opinion.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.annotation.questions import DESCRIPTION, FIRST, SECOND
from robo_rl.rewards.identity import settings_hash
from robo_rl.rewards.judging import Answer
from robo_rl.rewards.language.conversation import Heard, Request

PROGRESS = (
    r"You pick up an? \w+ key",
    r"You (unlock and )?open an? \w+ (door|box)",
    r"You walk into",
    "Ahead: a goal",
    "You reach a goal",
)


@dataclass(frozen=True)
class Rule:
    """Which captions are good, and how the double errs."""

    progress: tuple[str, ...] = PROGRESS
    """Regular expressions; a caption in which one is found helps, and a later one is better. The default is for MiniGrid's
    keys, doors and goals."""
    latency_s: float = 0.0
    """Of one call, however many captions it asks about."""
    errors: float = 0.0
    """Share of captions (or pairs) that get the opposite label, always the same ones."""
    garbage: float = 0.0
    """Share that gets an answer without the form, always the same ones."""
    seed: int = 0
    """Of which ones these are."""

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


class RuleSource:
    """Answers questions about captions by a rule; implements `robo_rl.rewards.language.conversation.Source`."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._patterns = [re.compile(pattern) for pattern in rule.progress]

    @property
    def identity(self) -> tuple[str, str]:
        """Name, which says that no model answered, and hash of the settings."""
        return "rule (no model)", settings_hash(self._rule)

    def answer(self, requests: Sequence[Request], heard: Heard) -> None:
        """Tells one answer to each, after the latency."""
        if self._rule.latency_s:
            time.sleep(self._rule.latency_s)
        for request in requests:
            asked = next(message.text for message in request.prompt.messages if message.role == "user")
            heard(request, Answer("ok", raw=self._words(asked), model="made by rule"), "pack", 0.0)

    def report(self) -> str:
        """Returns what a reader of results must know of it."""
        return "labels made by rule, not by a model"

    def _words(self, asked: str) -> str:
        chance = random.Random(f"{self._rule.seed} {asked}")
        errs, is_garbage = chance.random() < self._rule.errors, chance.random() < self._rule.garbage
        if is_garbage:
            return "Well, that depends."
        return json.dumps(self._compared(asked, errs) if FIRST in asked else self._labelled(asked, errs))

    def _labelled(self, words: str, errs: bool) -> Mapping[str, Any]:
        rank = self._rank(words.partition(DESCRIPTION)[2])
        return {"reason": f"by rule: rank {rank}", "helps": (rank > 0) != errs}

    def _compared(self, words: str, errs: bool) -> Mapping[str, Any]:
        first, _, second = words.partition(FIRST)[2].partition(f"\n{SECOND}")
        ranks = self._rank(first), self._rank(second)
        difference = (ranks[1] - ranks[0]) * (-1 if errs else 1)
        better = "neither" if difference == 0 else "second" if difference > 0 else "first"
        return {"reason": f"by rule: ranks {ranks[0]} and {ranks[1]}", "better": better}

    def _rank(self, caption: str) -> int:
        """Returns the number of the last expression that is found, 0 for none."""
        return max((rank for rank, pattern in enumerate(self._patterns, 1) if pattern.search(caption)), default=0)
