"""Which address of the page gives what: one question at a time goes out, and its answer comes back.

GET   /              the page
      /api/question  the question at hand, or {"number": null} where there is none yet
POST  /api/answers   {"number": 3, "answer": 0 | 0.5 | 1 | "skip"}, once for each question
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from typing_extensions import override

from robo_datasets.viewer.answers import Answer
from robo_datasets.viewer.server import LocalServer
from robo_rl.rewards.raters import Answer as Choice

STATIC = {
    "/": (__package__, "page.html", "text/html"),
    "/style.css": ("robo_rl", "report/style.css", "text/css"),
    "/page.css": (__package__, "page.css", "text/css"),
    "/page.js": (__package__, "page.js", "text/javascript"),
}
CHOICES: Mapping[object, Choice] = {0: 0.0, 0.5: 0.5, 1: 1.0, "skip": "skip"}


class ComparisonServer(LocalServer):
    """Puts one question after the other to whoever looks at the page."""

    def __init__(self, port: int) -> None:
        """Binds to a port, 0 for any free one; raises InvalidSetting where it cannot be had."""
        self._changed = threading.Condition()
        self._question: Mapping[str, Any] = {"number": None}
        self._session, self._asked = secrets.token_hex(4), 0
        self._choice: Choice | None = None
        super().__init__(port)

    def put(self, question: Mapping[str, Any]) -> Choice:
        """Shows a question until it is answered, and returns the answer."""
        with self._changed:
            self._asked, self._choice = self._asked + 1, None
            self._question = {"number": self._asked, **question}
            while self._choice is None:
                self._changed.wait()
            self._question = {"number": None}
            return self._choice

    @override
    def get(self, path: str) -> Answer:
        """Returns the page, which is given the token that answering asks for, or the question at hand."""
        if path in STATIC:
            package, name, content_type = STATIC[path]
            text = files(package).joinpath(name).read_text("utf-8").replace("@TOKEN@", self.token)
            return Answer(text.encode(), f"{content_type}; charset=utf-8")
        if path == "/api/question":
            with self._changed:
                return Answer.of({"session": self._session, **self._question})
        return Answer.refusal(HTTPStatus.NOT_FOUND, "There is no such address here.")

    @override
    def post(self, path: str, body: bytes) -> Answer:
        """Takes an answer, once, to the question at hand and to no other."""
        if path != "/api/answers":
            return Answer.refusal(HTTPStatus.NOT_FOUND, "There is no such address here.")
        try:
            found = json.loads(body)
            number, choice = found["number"], CHOICES[found["answer"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            return Answer.refusal(HTTPStatus.BAD_REQUEST, 'An answer is JSON: {"number": 3, "answer": 0, 0.5, 1 or "skip"}.')
        with self._changed:
            if number != self._question["number"] or number is None or self._choice is not None:
                return Answer.refusal(HTTPStatus.CONFLICT, "This question is answered already, or was never put.")
            self._choice = choice
            self._changed.notify_all()
        return Answer.of({"taken": number})
