"""Replies made to keep a parser busy: each is read in its first second, whatever its length."""

import time
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest

from robo_papers.gr_rl.reward import retries_in
from robo_papers.text2grad.spans import SpanFeedback
from robo_rl.errors import InvalidProgram
from robo_rl.rewards.chat.question import Answer, Form, Question, read
from robo_rl.rewards.programs.program import RewardProgram


class Verdict(Form):
    done: Literal["yes", "no"]


PARTS = {
    "fence and breaks": ("```json", "\n", ""),
    "fence and spaces": ("``` ", " ", "`"),
    "fences": ("", "```", ""),
    "fences in lines": ("", "```json\n", "x"),
    "breaks": ("", "\n", "x"),
    "spaces before words": ("", " ", "I cann"),
    "thoughts": ("", "<think>", ""),
    "ends of thoughts": ("", "</think", ""),
    "lists": ("", "[", ""),
    "objects": ("", '{"done":', ""),
    "digits": ('{"done": ', "9", "}"),
    "escapes": ('{"done": "', "\\u0061", ""),
    "span and spaces": ("1-1", " ", "x"),
    "span of digits": ("1", "1", "-1x"),
    "retry and spaces": ("retry", " ", "x"),
    "retry and digits": ("retry ", "1", "x"),
    "quotes": ("> ", "> ", "x"),
    "definitions": ("", " def", ""),
}
EPISODE = SimpleNamespace(timestamps=np.arange(4.0))


@pytest.mark.parametrize("size", [3_000, 1 << 20])
@pytest.mark.parametrize("name", PARTS)
def test_hostile_text_is_read_at_once(name, size):
    begin, repeated, end = PARTS[name]
    text = begin + repeated * (size // len(repeated)) + end
    started = time.process_time()
    assert read(Question((), Verdict), Answer("ok", text=text)).status in ("garbage", "refused")
    assert SpanFeedback.read(text) is None and len(retries_in([text], EPISODE)) <= 1
    with pytest.raises(InvalidProgram):
        RewardProgram.parse(text)
    assert time.process_time() - started < 5, "a second at most; the old pattern took 20 s for 3 KB"


@pytest.mark.parametrize(
    ("note", "steps"),
    [("retry at 2.0 s: slipped", [2]), ("Retry 1", [1]), ("retry at 1 : x", [1]), ("retry at 2s", [2]), ("retry at 2x", [])],
)
def test_retries_are_read_as_before(note, steps):
    assert retries_in([note], EPISODE) == steps


@pytest.mark.parametrize(
    "words",
    [
        '```JSON\n{"done": "yes"}\n```',
        '```json {"done": "yes"}```',
        '```{"done": "yes"}```',
        '<think>Is it? {"done": "no"} no.</think>\n{"done": "yes"}',
        'Is it?\n</think>\n\n```json\n{"done": "yes"}\n```',
    ],
)
def test_fences_and_thoughts_around_an_answer_are_none_of_it(words):
    assert read(Question((), Verdict), Answer("ok", text=words)).content == {"done": "yes"}
