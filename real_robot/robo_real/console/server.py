"""The console's server: one port, the page over HTTP and everything else over one websocket.

Reachable from this machine alone unless another address is named. Without the token nobody sees or commands anything.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from robo_real.console.session import Console, Session
from robo_rl.pages.server import ADDRESS, PageServer, read

SOCKET = "/socket"


def console_server(console: Console, *, address: str = ADDRESS, port: int = 0) -> PageServer:
    """Serve a console; port: 0 for any free one. Raises InvalidSetting if the port cannot be had."""

    async def serve(socket: WebSocket) -> None:
        await Session(socket, console).serve(server.token)

    routes = [WebSocketRoute(SOCKET, serve), read(SOCKET, _refuse)]
    server = PageServer(
        "robo_real.console",
        "Operator's console",
        routes,
        address=address,
        port=port,
        scripts=("page.js", "controls.js"),
        shows_token=False,
    )
    return server


def _refuse(request: Request) -> object:
    raise HTTPException(HTTPStatus.UPGRADE_REQUIRED, "This address takes websockets alone.")
