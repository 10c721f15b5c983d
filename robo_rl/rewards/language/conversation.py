"""Conversations with a language model, and the protocol of a source of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Protocol, runtime_checkable

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.judges.judge import Answer, Form, Question, Status

Role = Literal["system", "user", "assistant"]
Origin = Literal["server", "cache", "log", "pack"]
"""Origin of a reply; only replies of a server are paid for."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    """Role of the speaker."""
    text: str
    """Words of the turn."""


@dataclass(frozen=True)
class Prompt:
    """A conversation that waits for the assistant: one system message or none, then user and assistant in turn."""

    messages: Sequence[Message]
    """In their order; the last one is the user's."""
    purpose: str
    """Purpose, such as "write" or "difference": the log counts by it, and a pack answers by it."""
    form: type[Form] | None = None
    """Of an answer that is one JSON object; None for free words, such as a program in prose."""
    temperature: float = 1.0
    """Of sampling; 0 for the likeliest answer, of which there is only one."""

    def __post_init__(self) -> None:
        roles = [message.role for message in self.messages]
        spoken = roles[1:] if roles[:1] == ["system"] else roles
        in_turn = all(one != other for one, other in pairwise(spoken)) and "system" not in spoken
        if not spoken or not in_turn or spoken[0] != "user" or spoken[-1] != "user":
            raise InvalidSetting(
                f"The messages of the prompt {self.purpose!r} are not a conversation that waits for an answer.",
                got=", ".join(roles) or "no messages",
                allowed="system (once, or not at all), then user, assistant, user, ..., the last one user",
            )
        if not self.purpose or not 0 <= self.temperature <= 2:
            raise InvalidSetting(
                "A prompt needs a purpose and a temperature.",
                got=f"{self.purpose!r}, {self.temperature}",
                allowed="some words, and 0 to 2",
            )

    def then(self, answer: str, words: str, **changes: Any) -> Prompt:
        """Return the conversation that goes on with the assistant's answer and the user's next words."""
        said = [*self.messages, Message("assistant", answer), Message("user", words)]
        return replace(self, messages=said, **changes)

    def question(self, sample: int | None) -> Question:
        """Return the question for one of several answers; sample None: for all of them."""
        system = self.messages[0].text if self.messages[0].role == "system" else ""
        spoken = self.messages[1:] if self.messages[0].role == "system" else self.messages
        turns = [(message.role, message.text) for message in spoken[:-1] if message.role != "system"]
        return Question((spoken[-1].text,), self.form, system, turns, self.temperature, sample)

    @cached_property
    def hash(self) -> str:
        """Hash of words, form and temperature; the purpose does not count."""
        return self.question(None).hash


def prompt(user: str, *, purpose: str, system: str = "", form: type[Form] | None = None, temperature: float = 1.0) -> Prompt:
    """Return the prompt of one user message after an optional system message."""
    messages = [Message("system", system)] if system else []
    return Prompt([*messages, Message("user", user)], purpose, form, temperature)


@dataclass(frozen=True)
class Reply:
    """One answer to a prompt. A missing answer has a status and no content; it is not zero."""

    sample: int
    """Its number among the answers to this prompt."""
    status: Status
    """Anything but "ok" is a missing answer."""
    text: str = ""
    """The model's own words; without an answer, the problem."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """Fields by the prompt's form; for free words {"text": text}. Empty unless the status is "ok"."""
    model: str = ""
    """Name of the model that answered, as it reports it; "made by hand" or "made by rule" for a pack."""
    request: str = ""
    """Hash of the prompt; with `sample` the key of its record in the log."""
    prompt_tokens: int = 0
    """As counted by the server; 0 if it does not count."""
    completion_tokens: int = 0
    """As counted by the server; 0 if it does not count."""
    cost: float = 0.0
    """Of this reply when it was first given, in the currency of the prices."""
    origin: Origin = field(default="server", compare=False)
    """Origin in this run."""


REPAIR = " repair"
"""Suffix of the purpose of a repair prompt."""


@dataclass(frozen=True)
class Request:
    """One of several answers to a prompt."""

    prompt: Prompt
    """The prompt."""
    sample: int
    """Its number, from 0."""
    round: int
    """Number of other prompts of this purpose before this one in the run."""


Heard = Callable[[Request, Answer, Origin, float], None]
"""Takes an answer with its cost as soon as it is there, and returns when it is logged."""


class ReplySource(Protocol):
    """Answers requests."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and a hash of all that its answers follow from."""

    def answer(self, requests: Sequence[Request], heard: Heard) -> None:
        """Pass on each answer as it comes in, in any order; raise JudgeError if there can be none."""

    def report(self) -> str:
        """Return a line on the source for readers of results."""


@runtime_checkable
class Limited(Protocol):
    """A source that is not asked on after too many useless replies."""

    def require_use(self, useless: Sequence[tuple[str, str]]) -> None:
        """Raise JudgeUnavailable if there are too many in a row; useless: their statuses and words."""
