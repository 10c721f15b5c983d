"""Questions to a chat model, and its answers: words and pictures in, one JSON object or free words out.

Numbers are never searched in prose. Any other reply than the one that was asked for counts as missing, not as zero.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pydantic

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.identity import hash_of

FINGERPRINT = ", system_fingerprint "
"""Between a model's name and the fingerprint of its system, which changes with its weights or its configuration."""
Picture = npt.NDArray[np.uint8]
"""(H, W, 3) RGB"""
Status = Literal["ok", "garbage", "cut", "refused", "unreachable", "too many requests", "not accepted", "out of replies"]
Role = Literal["system", "user", "assistant"]
Turn = tuple[Literal["user", "assistant"], str]
"""Role and text."""
Origin = Literal["server", "cache", "log", "pack"]
"""Origin of an answer; only those of a server are paid for."""


class Form(pydantic.BaseModel):
    """Form of an answer: one JSON object with all these fields and no others, numbers finite, nothing converted."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    text: str


@dataclass(frozen=True)
class Question:
    """A conversation that waits for the assistant, and the form of the answer."""

    parts: Sequence[str | Picture]
    """Words and pictures of the user's last turn, in the order in which they are shown."""
    form: type[Form] | None = None
    """None for free words, which are then returned under "text"."""
    system: str = ""
    """System prompt."""
    turns: Sequence[Turn] = ()
    """Earlier turns, beginning with "user" and ending with "assistant"; the parts follow them."""
    temperature: float | None = None
    """Temperature of sampling; None for the model's own. At 0 there is only one answer, the likeliest."""
    sample: int | None = None
    """Number of the answer among several to the same words, from 0; None for a single one."""
    purpose: str = field(default="judge", compare=False)
    """Purpose, such as "write" or "difference": a log counts by it, and a pack answers by it."""
    round: int = field(default=0, compare=False)
    """Number of other questions of this purpose before this one in the run."""

    def __post_init__(self) -> None:
        if not self.purpose or not 0 <= (self.temperature or 0) <= 2:
            raise InvalidSetting(
                "A question needs a purpose and a temperature.",
                got=f"{self.purpose!r}, {self.temperature}",
                allowed="some words, and 0 to 2",
            )

    @classmethod
    def of(cls, messages: Iterable[Message], form: type[Form] | None = None, **facts: Any) -> Question:
        """Return the question of messages: one system message or none, then user and assistant in turn, the user last."""
        said = [*messages]
        spoken = said[1:] if said and said[0].role == "system" else said
        turns: Any = [(each.role, each.text) for each in spoken[:-1]]
        if [each.role for each in spoken] != ["user", *["assistant", "user"] * (len(spoken) // 2)]:
            raise InvalidSetting(
                "These messages are not a conversation that waits for an answer.",
                got=", ".join(each.role for each in said) or "no messages",
                allowed="system (once, or not at all), then user, assistant, user, ..., the last one user",
            )
        return cls((spoken[-1].text,), form, said[0].text if len(said) > len(spoken) else "", turns, **facts)

    @property
    def words(self) -> str:
        """The words of the user's last turn."""
        return "\n\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def messages(self) -> Sequence[Message]:
        """All turns, without the pictures."""
        system = [Message("system", self.system)] if self.system else []
        return [*system, *(Message(role, text) for role, text in self.turns), Message("user", self.words)]

    def then(self, answer: str, words: str, **changes: Any) -> Question:
        """Return the conversation that goes on with the assistant's answer and the user's next words."""
        turns: Sequence[Turn] = [*self.turns, ("user", self.words), ("assistant", answer)]
        return replace(self, parts=(words,), turns=turns, **changes)

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of an answer; empty for free words."""
        return {} if self.form is None else _schema_of(self.form)

    @cached_property
    def hash(self) -> str:
        """Hash of conversation, form, temperature and number of the sample; the purpose does not count."""
        return self._hash(self.sample)

    @cached_property
    def request(self) -> str:
        """Hash of the question without the number of the sample."""
        return self._hash(None)

    def _hash(self, sample: int | None) -> str:
        words = json.dumps([self.system, self.schema], sort_keys=True).encode()
        facts = [[list(turn) for turn in self.turns], self.temperature, sample]
        conversation = [b"conversation", json.dumps(facts).encode()] if facts != [[], None, None] else []
        return hash_of(words, *(piece for part in self.parts for piece in _pieces(part)), *conversation)


def prompt(user: str, *, purpose: str, system: str = "", form: type[Form] | None = None, temperature: float = 1.0) -> Question:
    """Return the question of one user message after an optional system message."""
    return Question((user,), form, system, temperature=temperature, purpose=purpose)


@dataclass(frozen=True)
class Answer:
    """Answer of a model. A missing one has a status and no content; it is not zero."""

    status: Status
    """Anything but "ok" is a missing answer."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """Valid by the form, for free words {"text": text}; empty unless the status is "ok". A model leaves it empty: `read`
    fills it from the words."""
    text: str = ""
    """The model's own words; without an answer, the problem."""
    model: str = ""
    """Name of the model that answered, as the server reports it, and after FINGERPRINT its fingerprint if it reports one."""
    prompt_tokens: int = 0
    """Tokens of the question, pictures included; 0 if the server does not count."""
    completion_tokens: int = 0
    """Tokens of the answer; 0 if the server does not count."""
    cost: float = field(default=0.0, compare=False)
    """Cost of this answer when it was first given, in the currency of the prices."""
    request: str = field(default="", compare=False)
    """Hash of the question without its sample; with `sample` the key of its record in a log."""
    sample: int = field(default=0, compare=False)
    """Its number among the answers to this question."""
    attempts: int = field(default=0, compare=False)
    """Requests that it took; 0 if nothing was sent."""
    seconds: float = field(default=0.0, compare=False)
    """[s] until it was there, waits included."""
    origin: Origin = field(default="server", compare=False)
    """Origin in this run."""


def form_in_words(question: Question) -> str:
    """Return the instruction on the form of the answer; empty for free words."""
    schema = json.dumps(question.schema, separators=(",", ":"))
    return f"Answer with one JSON object of this schema and with nothing else:\n{schema}" if question.form else ""


def choices_of(question: Question) -> Sequence[str]:
    """Return all possible answers if there is one field with a few values; else none."""
    properties = question.schema.get("properties", {})
    if len(properties) != 1:
        return ()
    ((name, facts),) = properties.items()
    values = facts.get("enum", [])
    if facts.get("type") == "integer" and {"minimum", "maximum"} <= facts.keys():
        values = range(facts["minimum"], facts["maximum"] + 1)
    return [json.dumps({name: value}) for value in values]


@cache
def _schema_of(form: type[Form]) -> Mapping[str, Any]:
    """Return a form's schema; cached, because it takes most of the time of a question with a kept answer."""
    return form.model_json_schema()


def _pieces(part: str | Picture) -> list[bytes]:
    if isinstance(part, str):
        return [b"words", part.encode()]
    return [f"picture {part.shape}".encode(), np.ascontiguousarray(part).tobytes()]


SHOWN = 2000
"""Characters of a wrong answer that the model sees again beside pictures."""
SHOWN_IN_TURN = 8000
"""Characters of a wrong answer that the model sees again as its own turn."""
REPAIR = " repair"
"""Suffix of the purpose of a repair."""
FENCE = "```"
"""Around the whole answer, as many models write JSON."""
THOUGHT = "</think>"
"""End of the thoughts that some models put before the answer; servers may leave out the opening tag."""
REFUSAL = re.compile(
    r"\s*(?:i['’]?m sorry|i am sorry|sorry,|i can(?:['’]t|not)|i(?:['’]m| am) (?:unable|not able)|as an ai\b|i won['’]t)",
    re.IGNORECASE,
)
"""Beginnings of answers that decline, in English."""


def read(question: Question, answer: Answer) -> Answer:
    """Return the answer without thoughts, and with its content, or with the status "refused" or "garbage".

    Others than "ok" keep their status. Free words that decline and show no code are a refusal.
    """
    answer = replace(answer, text=without_thoughts(answer.text))
    if answer.status != "ok":
        return answer
    if question.form is None:
        if not answer.text.strip():
            return replace(answer, status="garbage")
        if REFUSAL.match(answer.text) and FENCE not in answer.text:
            return replace(answer, status="refused")
        return replace(answer, content={"text": answer.text})
    try:
        return replace(answer, content=contents(question.form, answer.text))
    except ValueError:
        return replace(answer, status="refused" if REFUSAL.match(answer.text) else "garbage")


def without_thoughts(words: str) -> str:
    """Return the words after a model's thoughts. Plain string code, as below: an answer is foreign text of any kind."""
    _, end, answer = words.partition(THOUGHT)
    return answer.lstrip() if end else words


def without_fence(words: str) -> str:
    """Return the words between the fences around all of them: ```json, ```JSON or ```, with or without line breaks."""
    inner = words.strip()
    if len(inner) < 2 * len(FENCE) or not (inner.startswith(FENCE) and inner.endswith(FENCE)):
        return words
    inner = inner.strip("`")
    return inner[4:] if inner[:4].lower() == "json" else inner


def contents(form: type[Form], words: str) -> Mapping[str, Any]:
    """Return the fields of an answer; raise ValueError with the problem."""
    words = without_fence(words)
    try:
        json.loads(words, object_pairs_hook=_unique)  # pydantic would take the last of two fields of one name
        return form.model_validate_json(words).model_dump()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}") from None


def restated(question: Question, answer: Answer, problem: str) -> Question:
    """Return the question, pictures included, with the model's wrong answer and the request for a valid one behind it."""
    words = f"You answered before:\n{answer.text[:SHOWN]}\nThis cannot be used: {problem}."
    return replace(question, parts=[*question.parts, f"{words} Answer again, with the JSON object alone."])


def corrected(question: Question, answer: Answer, problem: str) -> Question:
    """Return the conversation that goes on with the wrong answer and the request for a valid one."""
    words = f"This cannot be used: {problem}. Answer again, with the JSON object alone."
    return question.then(answer.text[:SHOWN_IN_TURN], words, purpose=question.purpose + REPAIR)


def broken_by(form: type[Form], words: str) -> str:
    """Return the problem of an answer; empty for a valid one."""
    try:
        contents(form, words)
    except ValueError as error:
        return str(error)
    return ""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is there twice")
    return found


def data_url(picture: Picture, longest_side: int = 0) -> str:
    """Return a picture as a data URL of PNG, which loses nothing; (H, W, 3) RGB, resized only if `longest_side` is set."""
    import cv2  # late: commands that only list or explain judges stay fast

    height, width = picture.shape[:2]
    if longest_side and longest_side != max(height, width):
        scale = longest_side / max(height, width)
        size = max(1, round(width * scale)), max(1, round(height * scale))
        kind = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        picture = np.asarray(cv2.resize(picture, size, interpolation=kind), np.uint8)
    _, png = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
