"""Reading of JSON and YAML files that may be damaged, with one error that names the file."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import yaml

from robo_rl.errors import InvalidSetting, RunError, fix_of

MOST_BYTES = 1 << 28
"""Largest size of a file that is read as a whole."""


def read_json(path: Path, fix: str = "take it from a copy, or train again") -> Any:
    """Return the content of a JSON file; raises RunError if it is damaged, FileNotFoundError if it does not exist."""
    try:
        return json.loads(content_of(path))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged.", got=_short(error), allowed="JSON, as it was written", fix=fix) from None


def read_object(path: Path, fix: str = "take it from a copy, or train again") -> dict[str, Any]:
    """Return the content of a JSON file that holds an object; raises the errors of `read_json`."""
    found = read_json(path, fix)
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged.", got=type(found).__name__, allowed="a JSON object", fix=fix)
    return found


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file; raises InvalidSetting if it cannot be read."""
    return parse_yaml(text_of(path, "a YAML file"), str(path))


def parse_yaml(text: str | bytes, source: str) -> Any:
    """Return the value of a YAML text; raises InvalidSetting, which names `source`, if it is none or nested too deeply."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidSetting(f"{source} is not YAML.", got=_short(error), allowed="plain YAML") from None


def text_of(path: Path, allowed: str) -> str:
    """Return the text of a file that a user named; raises InvalidSetting if it cannot be read.

    allowed: description of valid files, for the message.
    """
    try:
        return content_of(path).decode()
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be read.", got=error, allowed=allowed, fix=fix_of(error)) from None
    except ValueError as error:
        raise InvalidSetting(f"{path} cannot be read.", got=_short(error), allowed=allowed) from None


def require_plain(path: Path) -> None:
    """Raise OSError if a path leads to a pipe, device or folder: a stranger may have put it there, and reading may block."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "It is not a plain file", str(path))


def content_of(path: Path) -> bytes:
    """Return the content of a file; raises ValueError unless it is a plain file of at most MOST_BYTES bytes."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a plain file")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has {path.stat().st_size} bytes, more than {MOST_BYTES}")
    return path.read_bytes()


def _short(error: Exception) -> str:
    words = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
    return words[:300]
