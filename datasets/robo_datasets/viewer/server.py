"""The page of one dataset.

GET   /                                         the page
      /api/dataset                              the dataset and its list of episodes
      /api/episodes/ID                          facts about one episode, without its numbers
      /api/episodes/ID/signals?key=KEY          numbers of one signal, float32
      /api/episodes/ID/cameras/NAME/INDEX       one picture, PNG
POST  /api/episodes/ID/notes  {"text": ...}     adds a remark on the episode

Nothing in an address becomes the name of a file: identities, cameras and signals are looked up among those that exist.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from robo_datasets.dataset import Dataset
from robo_datasets.viewer.reading import Reader
from robo_rl.system.pages.server import PageServer, read, write

EPISODE = "/api/episodes/{identity}"
KEEP = {"Cache-Control": "private, max-age=3600"}
"""Headers of a picture, which a browser may keep, because it never changes"""


def viewer_server(dataset: Dataset, port: int) -> PageServer:
    """Serve the page of a dataset, and return the server.

    port: port of the page; 0 for any free one. Raises InvalidSetting if the port is in use.
    """
    reader = Reader(dataset)

    def signal(request: Request) -> Response:
        content = reader.signal(request.path_params["identity"], request.query_params.get("key", ""))
        return Response(content, media_type="application/octet-stream")

    def picture(request: Request) -> Response:
        identity, camera, index = (request.path_params[name] for name in ("identity", "camera", "index"))
        if not re.fullmatch("[0-9]{1,9}", index):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(reader.picture(identity, camera, int(index)), media_type="image/png", headers=KEEP)

    def note(request: Request, found: Any) -> object:
        text = found.get("text") if isinstance(found, dict) else None
        if not isinstance(text, str):
            raise HTTPException(HTTPStatus.BAD_REQUEST, 'A note is JSON: {"text": "..."}.')
        return {"notes": reader.add_note(request.path_params["identity"], text)}

    routes = [
        read("/api/dataset", lambda _: reader.overview()),
        read(EPISODE, lambda request: reader.describe(request.path_params["identity"])),
        read(f"{EPISODE}/signals", signal),
        read(f"{EPISODE}/cameras/{{camera}}/{{index}}", picture),
        write(f"{EPISODE}/notes", note),
    ]
    return PageServer("robo_datasets.viewer", "Recorded dataset", routes, port=port)
