"""Questions to a chat model and its answers: words and pictures in, one JSON object or free words out.

Numbers are never searched in prose. A reply without the requested form counts as missing, not as zero.
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
"""Separates a model's name from the fingerprint of its system, which changes with its weights or configuration."""
Picture = npt.NDArray[np.uint8]
"""Picture (H, W, 3) uint8 RGB."""
Status = Literal["ok", "garbage", "cut", "refused", "unreachable", "too many requests", "not accepted", "out of replies"]
Role = Literal["system", "user", "assistant"]
Turn = tuple[Literal["user", "assistant"], str]
"""Role and text of one message."""
Origin = Literal["server", "cache", "log", "pack"]
"""Origin of an answer; only answers from a server are paid for."""


class Form(pydantic.BaseModel):
    """Base class of the forms of answers: one JSON object with exactly the fields of the subclass.

    Numbers must be finite, and nothing is converted.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


@dataclass(frozen=True)
class Message:
    """One message of a conversation with a language model: role and text."""

    role: Role
    text: str


@dataclass(frozen=True)
class Question:
    """Question to a language model: a conversation that waits for the assistant's answer, and the form of that answer."""

    parts: Sequence[str | Picture]
    """Words and pictures of the user's last message, in the order in which they are shown."""
    form: type[Form] | None = None
    """Form of the answer; None for free words, which are then returned as {"text": words}."""
    system: str = ""
    """System prompt; empty for none."""
    turns: Sequence[Turn] = ()
    """Earlier messages of the conversation, starting with "user" and ending with "assistant"; `parts` follow them."""
    temperature: float | None = None
    """Temperature of sampling, 0 to 2; None for the model's own. At 0 there is only one answer, the likeliest."""
    sample: int | None = None
    """Number of the answer among several samples, from 0; None for a single answer."""
    purpose: str = field(default="judge", compare=False)
    """Purpose, such as "write" or "difference", by which a log counts and a pack answers."""
    round: int = field(default=0, compare=False)
    """Number of other questions of this purpose that came before in the run."""

    def __post_init__(self) -> None:
        if not self.purpose or not 0 <= (self.temperature or 0) <= 2:
            raise InvalidSetting(
                "A question needs a purpose and a temperature.",
                got=f"{self.purpose!r}, {self.temperature}",
                allowed="some words, and 0 to 2",
            )

    @classmethod
    def of(cls, messages: Iterable[Message], form: type[Form] | None = None, **facts: Any) -> Question:
        """Make a question from messages: an optional system message, then user and assistant in turn, the user last.

        facts: further fields of the question. Raises InvalidSetting for another order.
        """
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
        """Words of the user's last message."""
        return "\n\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def messages(self) -> Sequence[Message]:
        """All messages, without pictures."""
        system = [Message("system", self.system)] if self.system else []
        return [*system, *(Message(role, text) for role, text in self.turns), Message("user", self.words)]

    def then(self, answer: str, words: str, **changes: Any) -> Question:
        """Return a question that continues the conversation with the assistant's answer and the user's next words.

        changes: other values of fields.
        """
        turns: Sequence[Turn] = [*self.turns, ("user", self.words), ("assistant", answer)]
        return replace(self, parts=(words,), turns=turns, **changes)

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer; empty for free words."""
        return {} if self.form is None else _schema_of(self.form)

    @cached_property
    def hash(self) -> str:
        """Hash of conversation, form, temperature and number of the sample; the purpose does not count."""
        return self._hash(self.sample)

    @cached_property
    def request(self) -> str:
        """Hash of the question without the number of the sample: equal for all samples of one question."""
        return self._hash(None)

    def _hash(self, sample: int | None) -> str:
        words = json.dumps([self.system, self.schema], sort_keys=True).encode()
        facts = [[list(turn) for turn in self.turns], self.temperature, sample]
        conversation = [b"conversation", json.dumps(facts).encode()] if facts != [[], None, None] else []
        return hash_of(words, *(piece for part in self.parts for piece in _pieces(part)), *conversation)


def prompt(user: str, *, purpose: str, system: str = "", form: type[Form] | None = None, temperature: float = 1.0) -> Question:
    """Return a question with one user message after an optional system message."""
    return Question((user,), form, system, temperature=temperature, purpose=purpose)


@dataclass(frozen=True)
class Answer:
    """Answer of a language model, or the reason why it is missing: then the status is not "ok" and there is no content.

    A missing answer never counts as zero.
    """

    status: Status
    """"ok", or the reason why the answer is missing."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the form, or {"text": text} for free words; empty unless the status is "ok". A model leaves it empty; `read`
    fills it from `text`."""
    text: str = ""
    """Text that the model returned; without an answer, the problem."""
    model: str = ""
    """Name of the model that answered, as the server reports it, with FINGERPRINT and its fingerprint if there is one."""
    prompt_tokens: int = 0
    """Tokens of the question, pictures included; 0 if the server does not count."""
    completion_tokens: int = 0
    """Tokens of the answer; 0 if the server does not count."""
    cost: float = field(default=0.0, compare=False)
    """Cost of the answer when it was first given, in the currency of the prices."""
    request: str = field(default="", compare=False)
    """Hash of the question without its sample; together with `sample` the key of the record in a log."""
    sample: int = field(default=0, compare=False)
    """Number of the answer among several samples."""
    attempts: int = field(default=0, compare=False)
    """Number of requests sent; 0 if nothing was sent."""
    seconds: float = field(default=0.0, compare=False)
    """Time until the answer arrived, waiting included [s]."""
    origin: Origin = field(default="server", compare=False)
    """Origin of the answer in this run."""


def form_in_words(question: Question) -> str:
    """Return the words that tell a model in which form to answer; "" if it may answer in free words."""
    schema = json.dumps(question.schema, separators=(",", ":"))
    return f"Answer with one JSON object of this schema and with nothing else:\n{schema}" if question.form else ""


def choices_of(question: Question) -> Sequence[str]:
    """Return all possible answers as JSON if the form has a single field with few values; else an empty list."""
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
    """Return the schema of a form; cached, since it takes most of the time of a question with a stored answer."""
    return form.model_json_schema()


def _pieces(part: str | Picture) -> list[bytes]:
    if isinstance(part, str):
        return [b"words", part.encode()]
    return [f"picture {part.shape}".encode(), np.ascontiguousarray(part).tobytes()]


SHOWN = 2000
"""Largest number of characters of a wrong answer that are shown to the model again beside pictures."""
SHOWN_IN_TURN = 8000
"""Largest number of characters of a wrong answer that are shown to the model again as its own message."""
REPAIR = " repair"
"""Suffix of the purpose of a question that asks for a correction."""
FENCE = "```"
"""Marks that many models put around JSON."""
THOUGHT = "</think>"
"""End of the reasoning that some models put before the answer; servers may leave out the opening tag."""
REFUSAL = re.compile(
    r"\s*(?:i['’]?m sorry|i am sorry|sorry,|i can(?:['’]t|not)|i(?:['’]m| am) (?:unable|not able)|as an ai\b|i won['’]t)",
    re.IGNORECASE,
)
"""Beginnings of English answers in which a model refuses."""


def read(question: Question, answer: Answer) -> Answer:
    """Interpret a model's answer: remove its reasoning and fill `content`, or set the status "refused" or "garbage".

    A status other than "ok" is kept. Free words count as a refusal if they begin as one and contain no code.
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
    """Return the words that follow a model's reasoning, without the reasoning."""
    _, end, answer = words.partition(THOUGHT)
    return answer.lstrip() if end else words


def without_fence(words: str) -> str:
    """Return the words inside the fences ```json, ```JSON or ``` that enclose the whole text; else the text unchanged."""
    inner = words.strip()
    if len(inner) < 2 * len(FENCE) or not (inner.startswith(FENCE) and inner.endswith(FENCE)):
        return words
    inner = inner.strip("`")
    return inner[4:] if inner[:4].lower() == "json" else inner


def contents(form: type[Form], words: str) -> Mapping[str, Any]:
    """Read the fields of an answer from its JSON; raises ValueError with the problem if the form is not kept."""
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
    """Return the question, with its pictures, followed by the model's wrong answer and the request for a valid one."""
    words = f"You answered before:\n{answer.text[:SHOWN]}\nThis cannot be used: {problem}."
    return replace(question, parts=[*question.parts, f"{words} Answer again, with the JSON object alone."])


def corrected(question: Question, answer: Answer, problem: str) -> Question:
    """Return the conversation with the wrong answer as a message, then one that requests a valid answer."""
    words = f"This cannot be used: {problem}. Answer again, with the JSON object alone."
    return question.then(answer.text[:SHOWN_IN_TURN], words, purpose=question.purpose + REPAIR)


def broken_by(form: type[Form], words: str) -> str:
    """Return what is wrong with an answer's form, in words; "" if the form is kept."""
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
    """Return a picture (H, W, 3) RGB as a data URL of a PNG.

    longest_side: length to which the longer side is resized [pixel]; 0 for no change.
    """
    import cv2  # late: commands that only list or explain judges stay fast

    height, width = picture.shape[:2]
    if longest_side and longest_side != max(height, width):
        scale = longest_side / max(height, width)
        size = max(1, round(width * scale)), max(1, round(height * scale))
        kind = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        picture = np.asarray(cv2.resize(picture, size, interpolation=kind), np.uint8)
    _, png = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
