"""Environment variables of Ray: its address and its token."""

from __future__ import annotations

import importlib
import importlib.util
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from robo_rl.errors import MissingExtra

AUTO = "auto"
LOOPBACK = ("127.0.0.1", "localhost")
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def require_library() -> None:
    """Raise MissingExtra if Ray is not installed, without importing it."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra("--ray", "ray", "ray")


def ray_library() -> Any:
    """Return the library Ray; raises MissingExtra if it is not installed."""
    require_library()
    import ray

    return ray


@contextmanager
def ray_environment(where: str) -> Iterator[None]:
    """Set Ray's environment variables (address, token) for a cluster within this context, and restore them afterwards."""
    wanted = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token")}
    if _is_on_loopback(where):
        # the switch that has Ray use 127.0.0.1: it replaces that address by the machine's own wherever it reads it
        wanted["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    if where == AUTO:
        wanted["RAY_worker_niceness"] = (
            "0"  # Ray's default of 15 is slower on a loaded machine than the same command without Ray
        )
        if not any(os.environ.get(name) for name in TOKENS):
            wanted["RAY_AUTH_TOKEN"] = _fresh_token()
    usual = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in usual.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def reload_settings(where: str) -> None:
    """Read Ray's environment variables again, in case the library was imported before they were set."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    native: Any = importlib.import_module("ray._raylet")
    constants.ENABLE_RAY_CLUSTER = not _is_on_loopback(where)
    native.Config.initialize("")
    native.AuthenticationTokenLoader.instance().reset_cache()


def _is_on_loopback(where: str) -> bool:
    return where == AUTO or where.rpartition(":")[0] in LOOPBACK


@cache
def _fresh_token() -> str:
    return secrets.token_hex(32)  # once in a process: Ray keeps the first that it reads
