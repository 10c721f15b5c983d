"""Server of the page of `robo-rl watch`.

GET   /                      the page
      /api/view              its parts, HTML
      /api/films/NUMBER      a film, MP4

Nothing in an address becomes the name of a file: films are looked up by number among those that the page shows.
"""

from __future__ import annotations

import threading
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from robo_app.watching.films import Films
from robo_app.watching.selection import Selection
from robo_app.watching.view import View
from robo_rl.system.pages.server import PageServer, read

PERIOD = 1.0
"""Time for which a view is reused [s], so that several open pages cost no more than one."""
MOST_NUMBERS = 1000
"""Largest number of films that keep their number; an older one gets a new number when it is shown again."""


class WatchServer:
    """Serves the page of selected runs until `close`; a context manager."""

    def __init__(self, selection: Selection, port: int) -> None:
        """Begin to serve; raises InvalidSetting if the port is taken. port: 0 for any free one."""
        self._numbers, self._lock, self._count = dict[Path, int](), threading.Lock(), 0
        self._films = Films()
        view = View(selection, self._films, self._address)
        routes = [
            read("/api/view", lambda _: Response(view.html(PERIOD), media_type="text/html")),
            read("/api/films/{number}", self._film),
        ]
        try:
            self._server = PageServer("robo_app.watching", "Trainings", routes, port=port)
        except BaseException:
            self._films.close()
            raise
        self.url = self._server.url
        self.wait = self._server.wait

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and the drawing of films."""
        self._server.close()
        self._films.close()

    def _address(self, film: Path) -> str:
        with self._lock:
            if film not in self._numbers:
                self._count += 1
                self._numbers[film] = self._count
                if len(self._numbers) > MOST_NUMBERS:
                    del self._numbers[next(iter(self._numbers))]
            return f"/api/films/{self._numbers[film]}"

    def _film(self, request: Request) -> Response:
        with self._lock:
            found = next((path for path, number in self._numbers.items() if str(number) == request.path_params["number"]), None)
        if found is None or not found.is_file():
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return FileResponse(found, media_type="video/mp4")
