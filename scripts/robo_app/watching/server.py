"""The server of the page.

GET   /                 the page
      /api/view         its parts, HTML
"""

from __future__ import annotations

from starlette.responses import Response

from robo_app.watching.view import View
from robo_rl.system.pages.server import PageServer, read

PERIOD = 1.0
"""[s] for which a view is kept: several open pages cost no more than one, and no page costs nothing."""


def watch_server(view: View, port: int) -> PageServer:
    """Serve the page; port: 0 for any free one. Raises InvalidSetting if the port cannot be had."""
    routes = [read("/api/view", lambda _: Response(view.html(PERIOD), media_type="text/html"))]
    return PageServer("robo_app.watching", "Trainings", routes, port=port)
