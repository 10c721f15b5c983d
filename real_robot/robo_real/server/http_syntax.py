"""Strict parser of HTTP/1.1 requests of bounded size, with the standard library alone.

It refuses bodies without a length, repeated or folded headers, and JSON that is deep, long or not an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

LARGEST_HEAD = 1 << 14
"""bytes of request line and headers"""
LARGEST_BODY = 1 << 16
"""bytes"""
MOST_VALUES, MOST_LETTERS, DEEPEST = 1000, 1000, 6
"""Limits of a JSON body: number of values, characters of a text, nesting."""
MOST_HEADERS = 64
ONCE = ("host", "content-length", "content-type", "origin", "expect", "connection", "x-robo-token")
"""Headers with an effect; a request that repeats one is refused."""
SAFE = {"Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff"}
"""Headers of every answer: other sites cannot embed the robot's pictures, and browsers do not guess types."""
_LINE = re.compile(rb"([A-Z]{1,10}) (/[\w\-./~]{0,300})(?:\?[!-~]{0,1000})? HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([\t -~\x80-\xff]{0,4000})")


class BadRequest(Exception):
    """Request refused before it reaches the robot's process."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


@dataclass(frozen=True)
class Head:
    """Request line and headers."""

    method: str
    path: str
    headers: Mapping[str, str]
    """lower-case name -> value"""
    length: int
    """bytes of the body"""
    is_kept: bool
    """True if the client keeps the connection"""

    @property
    def is_json(self) -> bool:
        """True if the content type is JSON."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def parse_head(content: bytes) -> Head:
    """Return the parsed head of a request; content: without the final empty line. Raises BadRequest."""
    first, *lines = content.split(b"\r\n")
    found = _LINE.fullmatch(first)
    if found is None:
        raise BadRequest(404 if re.fullmatch(rb"[A-Z]+ /[!-~]* HTTP/1\.[01]", first) else 400, "There is no such address here.")
    if len(lines) > MOST_HEADERS:
        raise BadRequest(431, f"A request has at most {MOST_HEADERS} headers.")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequest(400, "A header is malformed.")
        name, value = header[1].decode().lower(), header[2].decode("latin-1").strip(" \t")
        if name in headers and name in ONCE:
            raise BadRequest(400, f"The header {name} stands there twice.")
        headers[name] = value
    if "transfer-encoding" in headers:
        raise BadRequest(411, "A request says how long it is (Content-Length); it does not come in chunks.")
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,18}", length):
        raise BadRequest(400, "Content-Length is no number.")
    if int(length) > LARGEST_BODY:
        raise BadRequest(413, f"A request has at most {LARGEST_BODY} bytes.")
    is_kept = found[3] == b"1" and headers.get("connection", "").lower() != "close"
    return Head(found[1].decode(), found[2].decode(), headers, int(length), is_kept)


def parse_body(content: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; raises BadRequest if it is malformed or beyond the limits."""
    try:
        found = json.loads(content.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise BadRequest(400, "The body is no JSON, or holds too large a number, or is nested too deeply.") from None
    if not isinstance(found, dict):
        raise BadRequest(400, "The body is no JSON object.")
    _require_bounded(found)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadRequest(400, "A name stands twice in an object of the body.")
    return found


def _require_bounded(found: dict[str, Any]) -> None:
    level: list[Any] = [found]
    values = 0
    for _ in range(DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value, *value.values()]
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and (len(value) > MOST_LETTERS or not value.isprintable()):
                raise BadRequest(400, f"A text has at most {MOST_LETTERS} letters, and no control characters.")
            elif type(value) is int and abs(value) > 1 << 64:
                raise BadRequest(400, "A number is out of range.")
        values += len(below)
        if values > MOST_VALUES:
            raise BadRequest(413, f"A body has at most {MOST_VALUES} values.")
        level = below
    if level:
        raise BadRequest(400, "The body is nested too deeply.")


def response(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return an encoded answer; raises ValueError if a header contains a control character."""
    lines = {**headers, **SAFE, "Content-Length": str(len(body))}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    if not text.replace("\r\n", "").isprintable() or text.count("\n") != len(lines):
        raise ValueError(f"A header has a control character: {text!r}.")
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{text}\r\n".encode("latin-1", "replace") + body


def refusal(error: BadRequest) -> bytes:
    """Return the encoded answer to a refused request; the connection is then closed."""
    body = json.dumps({"error": "BadRequest", "message": error.words}, separators=(",", ":")) + "\n"
    return response(error.status, body.encode(), {"Content-Type": "application/json", "Connection": "close"})
