"""Console of rich on which nothing foreign steers the terminal: control characters in texts are shown as such."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text
from typing_extensions import override

from robo_rl.errors import printable_lines


class PlainConsole(Console):
    """Console that escapes every text, also those in the cells of tables."""

    @override
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable_lines(text), **options)
