"""Read JSON and YAML files that may be damaged: one error that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from robo_rl.errors import InvalidSetting, RunError, fix_of

MOST_BYTES = 1 << 28
"""Of a file that is read whole."""


def read_json(path: Path, fix: str = "take it from a copy, or train again") -> Any:
    """Returns the content of a JSON file; raises RunError, and FileNotFoundError if there is none."""
    try:
        return json.loads(content_of(path))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged.", got=_short(error), allowed="JSON, as it was written", fix=fix) from None


def read_object(path: Path, fix: str = "take it from a copy, or train again") -> dict[str, Any]:
    """Returns the content of a JSON file that holds an object; raises as `read_json` does."""
    found = read_json(path, fix)
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged.", got=type(found).__name__, allowed="a JSON object", fix=fix)
    return found


def read_yaml(path: Path) -> Any:
    """Returns the content of a YAML file; raises InvalidSetting if it cannot be read."""
    try:
        return yaml.safe_load(content_of(path))
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be read.", got=error, allowed="a YAML file", fix=fix_of(error)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidSetting(f"{path} is not YAML.", got=_short(error), allowed="plain YAML") from None


def content_of(path: Path) -> bytes:
    """Returns the content of a file; raises ValueError unless it is a plain file of a sane size."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a plain file")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has {path.stat().st_size} bytes, more than {MOST_BYTES}")
    return path.read_bytes()


def _short(error: Exception) -> str:
    words = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
    return words[:300]
