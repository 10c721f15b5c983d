"""Console of the library rich that shows control characters in texts instead of sending them to the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text
from typing_extensions import override

from robo_rl.errors import printable_lines


class PlainConsole(Console):
    """Console that escapes control characters in every text, cells of tables included."""

    @override
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable_lines(text), **options)
