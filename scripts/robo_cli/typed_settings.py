"""Settings as they are typed: NAME=VALUE, the value as in YAML; None is no value, as null is."""

from __future__ import annotations

from typing import Any

import yaml

from robo_rl.errors import InvalidSetting


def settings_of(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Returns NAME=VALUE pairs as settings; raises InvalidSetting."""
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise InvalidSetting("A setting has no value.", got=wrong, allowed="NAME=VALUE")
    try:
        return {name: typed_value(value) for name, _, value in (pair.partition("=") for pair in pairs)}
    except yaml.YAMLError as error:
        raise InvalidSetting(
            "A setting has no readable value.",
            got=f"{pairs}: {error}",
            allowed="NAME=VALUE, the value as in YAML",
        ) from None


def typed_value(text: str) -> Any:
    """Returns a value as it was typed; raises yaml.YAMLError. None is a word in YAML, and never what is meant."""
    return None if text.strip() == "None" else yaml.safe_load(text)
