"""Which address of the page's server gives what.

GET   /                                         the page
      /api/dataset                              the dataset and its list of episodes
      /api/episodes/ID                          one episode without its numbers
      /api/episodes/ID/signals?key=KEY          numbers, float32
      /api/episodes/ID/cameras/NAME/INDEX       one picture, PNG
POST  /api/episodes/ID/notes  {"text": ...}     adds a note

Nothing in an address becomes the name of a file: identities, cameras and signals are looked up among those that exist.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from robo_datasets.viewer.reading import Reader
from robo_rl.errors import DatasetBusy, DatasetNotFound, InvalidSetting, RoboRLError, UnknownName

STATIC = {
    "/": (__package__, "page.html", "text/html"),
    "/style.css": ("robo_rl", "report/style.css", "text/css"),
    "/page.css": (__package__, "page.css", "text/css"),
    "/page.js": (__package__, "page.js", "text/javascript"),
}
EPISODE = re.compile(r"/api/episodes/(?P<identity>[0-9a-f]{32})(?P<rest>/.*)?")
PICTURE = re.compile(r"/cameras/(?P<camera>[a-z0-9_]{1,100})/(?P<index>[0-9]{1,9})")
STATUS: Mapping[type[RoboRLError], HTTPStatus] = {
    UnknownName: HTTPStatus.NOT_FOUND,
    DatasetNotFound: HTTPStatus.NOT_FOUND,
    InvalidSetting: HTTPStatus.BAD_REQUEST,
    DatasetBusy: HTTPStatus.CONFLICT,
}


class Answer(NamedTuple):
    """What goes back to the browser."""

    body: bytes
    content_type: str = "application/json"
    status: HTTPStatus = HTTPStatus.OK
    keep: int = 0
    """[s] that the browser may keep it"""

    @classmethod
    def of(cls, value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
        """Returns JSON."""
        return cls(json.dumps(_plain(value), allow_nan=False).encode(), status=status)

    @classmethod
    def refusal(cls, status: HTTPStatus, text: str) -> Answer:
        """Returns an error as the page shows it."""
        return cls.of({"error": text}, status)

    @classmethod
    def to(cls, error: RoboRLError) -> Answer:
        """Returns the answer to a request that raised an error."""
        return cls.refusal(STATUS.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR), str(error))


def get(path: str, reader: Reader, token: str) -> Answer:
    """Returns what lies at an address; the page itself is given the token that writing asks for."""
    address = urlsplit(path)
    if address.path in STATIC:
        package, name, content_type = STATIC[address.path]
        text = files(package).joinpath(name).read_text("utf-8").replace("@TOKEN@", token)
        return Answer(text.encode(), f"{content_type}; charset=utf-8")
    if address.path == "/api/dataset":
        return Answer.of(reader.overview())
    match = EPISODE.fullmatch(address.path)
    return _episode(reader, match["identity"], match["rest"], address.query) if match else _missing()


def post(path: str, body: bytes, reader: Reader) -> Answer:
    """Adds a note and returns all notes of its episode."""
    match = EPISODE.fullmatch(path)
    if match is None or match["rest"] != "/notes":
        return _missing()
    try:
        text = json.loads(body)["text"]
    except (ValueError, TypeError, KeyError, RecursionError):
        text = None
    if not isinstance(text, str):
        return Answer.refusal(HTTPStatus.BAD_REQUEST, 'A note is JSON: {"text": "..."}.')
    return Answer.of({"notes": reader.add_note(match["identity"], text)})


def _episode(reader: Reader, identity: str, rest: str | None, query: str) -> Answer:
    if rest is None:
        return Answer.of(reader.describe(identity))
    if rest == "/signals":
        key = parse_qs(query).get("key", [""])[0]
        return Answer(reader.signal(identity, key), "application/octet-stream")
    if picture := PICTURE.fullmatch(rest):
        return Answer(reader.picture(identity, picture["camera"], int(picture["index"])), "image/png", keep=3600)
    return _missing()


def _missing() -> Answer:
    return Answer.refusal(HTTPStatus.NOT_FOUND, "There is no such address here.")


def _plain(value: Any) -> Any:
    """Returns JSON values; what is not finite, which JSON cannot hold, becomes "NaN", "Infinity" or "-Infinity"."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
