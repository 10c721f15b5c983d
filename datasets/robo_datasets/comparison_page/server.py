"""Routes of the comparison page, which shows one question at a time.

GET   /              the page
      /api/question  the present question, its number and the total number, or {"number": null} if there is none yet
POST  /api/answers   {"number": 3, "answer": 0 | 0.5 | 1 | "skip"}, once per question: 0 the first is better, 1 the second
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from robo_rl.rewards.preferences.raters import Preference
from robo_rl.system.pages.server import PageServer, read, write

CHOICES: Mapping[object, Preference] = {0: 0.0, 0.5: 0.5, 1: 1.0, "skip": "skip"}


class ComparisonPage:
    """Server of the page on which a person answers one question after the other."""

    def __init__(self, port: int) -> None:
        """Serve the page; port: 0 for any free one. Raises InvalidSetting if the port cannot be had."""
        self._changed = threading.Condition()
        self._question: Mapping[str, Any] = {"number": None}
        self._session, self._count = secrets.token_hex(4), 0
        self.total = 0
        """total number of questions; 0 if it is not known"""
        self._choice: Preference | None = None
        routes = [read("/api/question", self._shown), write("/api/answers", self._answered)]
        self.server = PageServer("robo_datasets.comparison_page", "Which is better?", routes, port=port)

    def put(self, question: Mapping[str, Any]) -> Preference:
        """Show a question on the page, wait for the person, and return the answer."""
        with self._changed:
            self._count, self._choice = self._count + 1, None
            self._question = {"number": self._count, "total": self.total, **question}
            while self._choice is None:
                self._changed.wait()
            self._question = {"number": None}
            return self._choice

    def _shown(self, request: Request) -> object:
        with self._changed:
            return {"session": self._session, **self._question}

    def _answered(self, request: Request, found: Any) -> object:
        """Take the first answer to the current question; refuse all others."""
        try:
            number, choice = found["number"], CHOICES[found["answer"]]
        except (TypeError, KeyError):
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, 'An answer is JSON: {"number": 3, "answer": 0, 0.5, 1 or "skip"}.'
            ) from None
        with self._changed:
            if number != self._question["number"] or number is None or self._choice is not None:
                raise HTTPException(HTTPStatus.CONFLICT, "This question is answered already, or does not exist.")
            self._choice = choice
            self._changed.notify_all()
        return {"taken": number}
