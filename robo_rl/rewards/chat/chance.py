"""A judge that answers at random, to test a pipeline or an audit before a real model is paid for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robo_rl.errors import require_allowed
from robo_rl.rewards.chat.models import Terms
from robo_rl.rewards.chat.question import Answer, Question
from robo_rl.rewards.identity import hash_of


@dataclass(frozen=True)
class Chance:
    """Judge (model that answers questions) that answers at random, in the form that the question requires.

    The same question and seed always get the same answer.
    """

    missing: float = 0.0
    """Share of the questions that the judge refuses, 0 to 1."""
    seed: int = 0
    """Seed of the answers."""
    terms: Terms = field(default_factory=Terms)
    """Budget and cache; one character of an answer counts as one token."""

    def __post_init__(self) -> None:
        require_allowed(self, {"missing": (0 <= self.missing <= 1, "0 to 1"), "seed": (self.seed >= 0, "0 or more")})

    @property
    def identity(self) -> tuple[str, str]:
        """Name of the judge, and a hash of `missing` and `seed`."""
        return "chance", hash_of(f"{self.missing} {self.seed}".encode())

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield (number of the question, random answer), in the order of the questions."""
        for number, question in enumerate(questions):
            chance = np.random.default_rng([self.seed, int(question.hash, 16)])
            if chance.random() < self.missing:
                yield number, Answer("refused", text="I cannot tell.", model="chance")
                continue
            schema = question.schema
            words = json.dumps(_guess(schema, schema, chance)) if schema else f"A guess, {question.hash}."
            yield number, Answer("ok", text=words, model="chance", completion_tokens=len(words))


def _guess(schema: Mapping[str, Any], whole: Mapping[str, Any], chance: np.random.Generator) -> Any:
    """Return a random value that a JSON schema allows; whole: outermost schema, with the definitions in "$defs"."""
    if "$ref" in schema:
        return _guess(whole["$defs"][schema["$ref"].rsplit("/", 1)[-1]], whole, chance)
    choices = [True, False] if schema.get("type") == "boolean" else schema.get("enum", [])
    if choices:
        return choices[chance.integers(len(choices))]
    if schema["type"] == "object":
        return {name: _guess(part, whole, chance) for name, part in schema["properties"].items()}
    if schema["type"] == "array":
        return [_guess(schema["items"], whole, chance) for _ in range(max(1, schema.get("minItems", 1)))]
    if schema["type"] in ("number", "integer"):
        return int(chance.integers(int(schema.get("minimum", 0)), int(schema.get("maximum", 9)) + 1))
    return "a guess"
