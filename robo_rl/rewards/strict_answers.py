"""Read a model's words: one JSON object of the form that was asked for, or nothing. Nobody searches numbers in prose."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pydantic

from robo_rl.rewards.judging import Answer, Form, Question

SHOWN = 2000
"""Characters of a wrong answer that the model sees again."""
FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
"""Around the whole answer, as many models write JSON."""
REFUSAL = re.compile(
    r"\s*(?:i['’]?m sorry|i am sorry|sorry,|i can(?:['’]t|not)|i(?:['’]m| am) (?:unable|not able)|as an ai\b|i won['’]t)",
    re.IGNORECASE,
)
"""How answers begin that decline, in English."""


def read(question: Question, answer: Answer) -> Answer:
    """Returns the answer with its content, or with the status "refused" or "garbage"; others than "ok" as they are."""
    if answer.status != "ok":
        return answer
    if question.form is None:
        is_said = bool(answer.raw.strip())
        return replace(answer, content={"text": answer.raw}) if is_said else replace(answer, status="garbage")
    try:
        return replace(answer, content=contents(question.form, answer.raw))
    except ValueError:
        return replace(answer, status="refused" if REFUSAL.match(answer.raw) else "garbage")


def contents(form: type[Form], words: str) -> Mapping[str, Any]:
    """Returns the fields of an answer; raises ValueError, which says what is wrong with it."""
    fenced = FENCE.fullmatch(words)
    words = fenced[1] if fenced else words
    try:
        json.loads(words, object_pairs_hook=_unique)  # pydantic would take the last of two fields of one name
        return form.model_validate_json(words).model_dump()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}") from None


def repaired(question: Question, answer: Answer) -> Question:
    """Returns the question that shows the model its wrong answer and asks for a right one."""
    assert question.form is not None, "free words are never wrong"
    if problem := broken_by(question.form, answer.raw):
        words = f"You answered before:\n{answer.raw[:SHOWN]}\nThis cannot be used: {problem}."
        return replace(question, parts=[*question.parts, f"{words} Answer again, with the JSON object alone."])
    return question


def broken_by(form: type[Form], words: str) -> str:
    """Returns what is wrong with an answer; empty for a right one."""
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
