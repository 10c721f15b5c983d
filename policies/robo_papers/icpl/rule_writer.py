"""Reward programs made by a rule in place of a language model, to test and compare searches without one.

A rule is a program with open weights. They are drawn at random, or, if the prompt contains a good program, near that one's
weights. Nothing else of the prompt is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.rewards.chat.question import Answer, Question
from robo_rl.rewards.identity import hash_of
from robo_rl.settings import settings_as
from robo_rl.system.plain_files import read_yaml

BUILDS_ON = ("improve", "prefer")
"""Purposes of prompts whose last but one message contains the good program."""
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class ProgramRule:
    """A reward program with open weights, each in a line of its own such as `near = {near}`."""

    about: str
    """What the programs are for, with a note that a rule made them."""
    task: str
    """Environment whose columns the program reads."""
    program: str
    """Source code, with each weight's name in braces in place of its value."""
    weights: Mapping[str, tuple[float, float]]
    """Name of each weight -> smallest and largest value."""

    def __post_init__(self) -> None:
        for name, (low, high) in self.weights.items():
            if low >= high or f"{name} = {{{name}}}" not in self.program:
                raise InvalidSetting(
                    f"The rule does not fit its program at the weight {name!r}.",
                    got=f"from {low} to {high}",
                    allowed=f"a least value below the greatest, and a line `{name} = {{{name}}}` in the program",
                )

    def filled(self, weights: Mapping[str, float]) -> str:
        """Return the source code of the program with these values in place of the weights' names."""
        source = self.program
        for name, value in weights.items():
            source = source.replace(f"{{{name}}}", f"{value:.4g}")
        return source

    def read(self, source: str) -> dict[str, float]:
        """Return the values of the weights in a program that `filled` made."""
        found = {name: re.search(rf"^[ \t]*{name} = ({NUMBER})[ \t]*(?:#.*)?$", source, re.MULTILINE) for name in self.weights}
        return {name: float(match[1]) for name, match in found.items() if match is not None}


@dataclass(frozen=True)
class RuleWriter:
    """Answers prompts for reward programs by a rule, in place of a language model."""

    rule: ProgramRule
    seed: int = 0
    """Seed of all random draws."""
    step: float = 0.2
    """Standard deviation of a weight around that of the good program, as a share of its range. It holds for samples 0, 4, 8,
    ...; the three samples after each get a half, a quarter and an eighth of it, so that each round searches far and near."""

    def __post_init__(self) -> None:
        require_allowed(self, {"seed": (self.seed >= 0, "0 or more"), "step": (0 < self.step <= 1, "above 0, to 1")})

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Name, and a hash of the rule and the settings."""
        return "rule (made by rule)", hash_of(json.dumps(asdict(self), sort_keys=True).encode())

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield for each question a program, or the changes between two programs."""
        for number, question in enumerate(questions):
            text = self._difference(question) if question.purpose == "difference" else self._program(question)
            yield number, Answer("ok", {}, text, "made by rule", origin="pack")

    def report(self) -> str:
        """Return a line for readers of results that says that a rule answered."""
        return "replies made by rule, not by a model"

    def _program(self, question: Question) -> str:
        weights = self._weights(question)
        return f"By rule.\n\n```python\n{self.rule.filled(weights).strip()}\n```"

    def _weights(self, question: Question) -> dict[str, float]:
        sample = question.sample or 0
        chance = np.random.default_rng([self.seed, sample, *bytes.fromhex(question.request[:16])])
        good = self.rule.read(question.turns[-1][1]) if question.purpose in BUILDS_ON else {}
        found = {}
        for name, (low, high) in self.rule.weights.items():
            drawn = chance.uniform(low, high)
            step = self.step / 2 ** (sample % 4)
            near = good.get(name, drawn) + step * (high - low) * chance.standard_normal()
            found[name] = float(np.clip(near if name in good else drawn, low, high))
        return found

    def _difference(self, question: Question) -> str:
        before, _, after = question.words.partition("The second:")
        old, new = self.rule.read(before), self.rule.read(after)
        changes = [f"{name} went from {old[name]:g} to {new[name]:g}" for name in old if old[name] != new.get(name, old[name])]
        return f"{'; '.join(changes) or 'Nothing'}."


def rule_files() -> dict[str, Path]:
    """Return name -> file of the rules in this package."""
    folder = Path(__file__).parent / "rules"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def read_rule(name: str) -> ProgramRule:
    """Return a rule of this package by name, or one from a YAML file; raises UnknownName or InvalidSetting."""
    is_path = name.endswith((".yaml", ".yml"))
    if not is_path and name not in rule_files():
        raise UnknownName("rule", name, rule_files(), fix="or name a file: rule:FILE.yaml")
    path = Path(name) if is_path else rule_files()[name]
    rule: ProgramRule = settings_as(ProgramRule, read_yaml(path), source=str(path))
    return rule
