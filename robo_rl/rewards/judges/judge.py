"""Models that look at pictures and answer in words, such as GPT or Qwen-VL: entry points `robo_rl.judges`.

A question has the form of its answer: one JSON object or free words; numbers are never searched in prose. Any other
reply counts as missing, not as zero. A judge only carries questions and replies: `robo_rl.rewards.judges.cached_judge`
keeps answers, reads them strictly and counts their cost.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pydantic

from robo_rl.entry_points import load
from robo_rl.errors import require_allowed
from robo_rl.rewards.identity import hash_of
from robo_rl.settings import settings_as

FINGERPRINT = ", system_fingerprint "
"""Between a model's name and the fingerprint of its system, which changes with its weights or its configuration."""
Picture = npt.NDArray[np.uint8]
"""(H, W, 3) RGB"""
Status = Literal["ok", "garbage", "cut", "refused", "unreachable", "too many requests", "not accepted", "out of replies"]
Turn = tuple[Literal["user", "assistant"], str]
"""Role and text."""


class Form(pydantic.BaseModel):
    """Form of an answer: one JSON object with all these fields and no others, numbers finite, nothing converted."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


@dataclass(frozen=True)
class Question:
    """Words and pictures in the order in which they are shown, and the form of an answer."""

    parts: Sequence[str | Picture]
    form: type[Form] | None = None
    """None for free words, which are then returned under "text"."""
    system: str = ""
    """System prompt."""
    turns: Sequence[Turn] = ()
    """Earlier turns, beginning with "user" and ending with "assistant"; the parts follow them."""
    temperature: float | None = None
    """Of sampling; None for the judge's own."""
    sample: int | None = None
    """Number of the answer among several to the same words, from 0; None for a single one."""

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of an answer; empty for free words."""
        return {} if self.form is None else _schema_of(self.form)

    @cached_property
    def hash(self) -> str:
        """Hash of the question."""
        words = json.dumps([self.system, self.schema], sort_keys=True).encode()
        return hash_of(words, *(piece for part in self.parts for piece in _pieces(part)), *self._conversation)

    @property
    def _conversation(self) -> list[bytes]:
        """Parts of the hash for turns and samples; empty without them, so that older hashes stay valid."""
        facts = [[list(turn) for turn in self.turns], self.temperature, self.sample]
        return [b"conversation", json.dumps(facts).encode()] if facts != [[], None, None] else []


@dataclass(frozen=True)
class Answer:
    """Answer of a judge."""

    status: Status
    """Anything but "ok" is a missing answer."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """Valid by the form; empty unless the status is "ok". A judge leaves it empty: `read` fills it from the words."""
    raw: str = ""
    """The words of the answer; without an answer, the problem."""
    model: str = ""
    """Name of the model that answered, as the server reports it, and after FINGERPRINT its fingerprint if it reports one."""
    prompt_tokens: int = 0
    """Of the question, pictures included."""
    completion_tokens: int = 0
    """Of the answer."""
    attempts: int = field(default=0, compare=False)
    """Requests that it took; 0 if nothing was sent."""
    seconds: float = field(default=0.0, compare=False)
    """[s] until it was there, waits included."""


@dataclass(frozen=True)
class Terms:
    """Budget and cache of answers, the same for every judge."""

    cache: str = ""
    """Folder of the answers; empty for $ROBO_RL_CACHE/answers, or ~/.cache/robo_rl/answers if that is not set."""
    prompt_price: float = 0.0
    """Of a million tokens of questions, in any currency; see the price list of the model."""
    completion_price: float = 0.0
    """Of a million tokens of answers."""
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

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of tokens."""
        return (prompt_tokens * self.prompt_price + completion_tokens * self.completion_price) / 1e6


class Judge(Protocol):
    """Answers questions. Its settings are its fields; nothing is loaded or opened before the first question."""

    @property
    def terms(self) -> Terms:
        """Its budget and cache."""

    @property
    def identity(self) -> tuple[str, str]:
        """Its name and a hash of all that its answers follow from; not of its terms."""

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield each question's number with its answer as it comes in, in any order.

        Draws a question only when it sends it, so that the caller can stop. Raises JudgeUnavailable only if no later
        question can be answered either.
        """


def judge(name: str, settings: Mapping[str, Any]) -> Judge:
    """Return a judge by its name; raise UnknownName, and InvalidSetting naming the setting."""
    found: Judge = settings_as(load("judges", name), settings, source=f"the judge {name}")
    return found


def form_in_words(question: Question) -> str:
    """Return the instruction on the form of the answer; empty for free words."""
    schema = json.dumps(question.schema, separators=(",", ":"))
    return f"Answer with one JSON object of this schema and with nothing else:\n{schema}" if question.form else ""


@cache
def _schema_of(form: type[Form]) -> Mapping[str, Any]:
    """Return a form's schema; cached, because it takes most of the time of a question with a kept answer."""
    return form.model_json_schema()


def _pieces(part: str | Picture) -> list[bytes]:
    if isinstance(part, str):
        return [b"words", part.encode()]
    return [f"picture {part.shape}".encode(), np.ascontiguousarray(part).tobytes()]


SHOWN = 2000
"""Characters of a wrong answer that the model sees again."""
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

    Others than "ok" keep their status.
    """
    answer = replace(answer, raw=without_thoughts(answer.raw))
    if answer.status != "ok":
        return answer
    if question.form is None:
        is_said = bool(answer.raw.strip())
        return replace(answer, content={"text": answer.raw}) if is_said else replace(answer, status="garbage")
    try:
        return replace(answer, content=contents(question.form, answer.raw))
    except ValueError:
        return replace(answer, status="refused" if REFUSAL.match(answer.raw) else "garbage")


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


def repaired(question: Question, answer: Answer) -> Question:
    """Return the question that shows the model its wrong answer and requests a valid one."""
    assert question.form is not None, "free words are never wrong"
    if problem := broken_by(question.form, answer.raw):
        words = f"You answered before:\n{answer.raw[:SHOWN]}\nThis cannot be used: {problem}."
        return replace(question, parts=[*question.parts, f"{words} Answer again, with the JSON object alone."])
    return question


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
