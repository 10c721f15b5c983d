"""The reference of Python shows what `import robo_rl` offers, or links the page that does."""

from __future__ import annotations

import re
from pathlib import Path

import robo_rl

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"


def test_reference_has_each_public_name_once() -> None:
    text = PAGE.read_text()
    shown, linked = re.findall(r"^::: (\S+)$", text, re.MULTILINE), re.findall(r"`(\w+)`: \[", text)
    offered = {name: getattr(robo_rl, name) for name in robo_rl.__all__}
    here = [f"{each.__module__}.{each.__qualname__}" for name, each in offered.items() if name not in linked]
    assert sorted(shown) == sorted(here) and set(linked) < set(offered)
