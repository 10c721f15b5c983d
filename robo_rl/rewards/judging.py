"""Models that look at pictures and answer in words, such as GPT or Qwen-VL: entry points `robo_rl.judges`.

A question says what an answer must look like; whatever else comes back is no answer. Missing is not zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.discovery import load
from robo_rl.settings import settings_as

Picture = npt.NDArray[np.uint8]
"""(H, W, 3) RGB"""
Status = Literal["ok", "garbage", "cut", "refused", "unreachable", "too many requests"]


@dataclass(frozen=True)
class Question:
    """Words and pictures in the order in which they are shown, and the JSON schema of an answer."""

    parts: Sequence[str | Picture]
    schema: Mapping[str, Any]
    """Of the answer, a JSON object; {} for free text, which is then returned under "text"."""
    system: str = ""
    """What the model is told to be."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: Status
    """Anything but "ok" is a missing answer."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """Valid by the schema; empty unless the status is "ok"."""
    raw: str = ""
    """The words themselves, as far as there were any."""
    model: str = ""
    """What answered, as it calls itself."""
    tokens: int = 0
    """Of question and answer."""
    seconds: float = 0.0


class Judge(Protocol):
    """Answers questions. Its settings are its fields; nothing is loaded or opened before the first question."""

    @property
    def identity(self) -> tuple[str, str]:
        """Its name and a hash of all that its answers follow from."""
        ...

    def ask(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Returns one answer for each question, in their order; raises only where no later question can be answered either."""
        ...


def judge(name: str, settings: Mapping[str, Any]) -> Judge:
    """Returns a judge by its name; raises UnknownName, and InvalidSetting naming the setting."""
    found: Judge = settings_as(load("judges", name), settings, source=f"the judge {name}")
    return found
