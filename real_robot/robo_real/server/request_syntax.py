"""Checks of a request to a robot's server, in addition to the syntax of HTTP.

Bodies without a length, repeated headers, and JSON that is deeply nested, long or not an object are refused.
"""

from __future__ import annotations

import json
import re
from typing import Any

import h11

from robo_rl.system.pages.protocol import BadRequest

LARGEST_HEAD = 1 << 14
"""[byte] largest request line with headers"""
LARGEST_BODY = 1 << 16
"""[byte] largest body"""
MOST_VALUES, MOST_LETTERS, DEEPEST = 1000, 1000, 6
"""Limits of a JSON body: number of values, characters of a text, depth of nesting"""
MOST_HEADERS = 64
"""largest number of headers"""
ONCE = ("host", "content-length", "content-type", "origin", "expect", "connection", "x-robo-token")
"""headers with an effect; a request that repeats one of them is refused"""
_PATH = re.compile(r"/[\w\-./~]{0,300}", re.ASCII)


def checked_headers(request: h11.Request) -> dict[str, str]:
    """Return lower-case name -> value of a request's headers; raises BadRequest if headers or request line are not allowed."""
    path = path_of(request)
    if not path.startswith("/") or request.http_version not in (b"1.0", b"1.1"):
        raise BadRequest(400, "A request names an address of this server, in HTTP/1.1.")
    if not _PATH.fullmatch(path):
        raise BadRequest(404, "There is no such address here.")
    names = [name.decode() for name, _ in request.headers]
    if len(names) > MOST_HEADERS:
        raise BadRequest(431, f"A request has at most {MOST_HEADERS} headers.")
    for name in ONCE:
        if names.count(name) > 1:
            raise BadRequest(400, f"The header {name} stands there twice.")
    headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
    if "transfer-encoding" in headers:
        raise BadRequest(411, "A request says how long it is (Content-Length); it does not come in chunks.")
    if int(headers.get("content-length", "0")) > LARGEST_BODY:
        raise BadRequest(413, f"A request has at most {LARGEST_BODY} bytes.")
    return headers


def path_of(request: h11.Request) -> str:
    """Return the path of a request, without its query."""
    return request.target.partition(b"?")[0].decode()


def is_json(content_type: str) -> bool:
    """Return whether a content type, such as "application/json; charset=utf-8", means JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


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
