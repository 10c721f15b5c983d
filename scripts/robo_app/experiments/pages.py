"""Tables and curves on pages, made from archives, and the tables of results that have no archive.

    <!--archive:oni-->
    | task | method | ...          between the two lines: the table of docs/benchmarks/oni.json
    <!--/archive-->

An image named curves-NAME.png is drawn from the archive NAME.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from robo_app.display.learning_curves import draw
from robo_app.experiments.archived import curves_of, page_of
from robo_app.experiments.levels import archive_named

MARKED = re.compile(r"(<!--archive:([\w-]+)-->\n)(.*?)(<!--/archive-->)", re.DOTALL)
CURVES = re.compile(r"\]\(([^)\s]*/)?curves-([\w-]+)\.png\)")
OTHER = ("<!--speed-->", "<!--runs:")
"""Beginnings of the line before a table without an archive: of speeds, or of runs in a zip archive, which have own tests."""
UNTRACED = "*Unarchived.*"
"""Line after a table of results that cannot be traced to an archive."""
SHARE = 0.5
"""A table counts as a table of results if at least this share of its filled cells begins with a number."""


class Table(NamedTuple):
    """Table on a page, as the check of tables without an archive finds it."""

    line: int
    """Number of its first line."""
    head: str
    is_marked: bool
    """True if the line after the table says that it has no archive."""


def rendered(text: str, archives: Path) -> str:
    """Return a page with the tables of its archives inserted; raises RunNotFound for an archive that is not in the folder."""
    return MARKED.sub(lambda found: f"{found[1]}{page_of(archive_named(found[2], archives))}{found[4]}", text)


def draw_images(page: Path, archives: Path) -> list[Path]:
    """Draw the learning curves that a page shows, and return the picture files.

    Args:
        page: Markdown page; images named curves-NAME.png are drawn.
        archives: Folder of the archives NAME.
    """
    found = {page.parent / (place or "") / f"curves-{name}.png": name for place, name in CURVES.findall(page.read_text())}
    return [file for file, name in found.items() if draw(curves_of(archive_named(name, archives)), file)]


def untraced(text: str) -> list[Table]:
    """Return the tables of results that are not between the marks of an archive."""
    return [table for table in _tables(MARKED.sub(lambda found: "\n" * found[0].count("\n"), text))]


def _tables(text: str) -> Iterator[Table]:
    lines, is_code, at = text.splitlines(), False, 0
    while at < len(lines):
        is_code ^= lines[at].lstrip().startswith("```")
        end = at
        while not is_code and end < len(lines) and lines[end].startswith("|"):
            end += 1
        is_other = at > 0 and lines[at - 1].startswith(OTHER)
        if end - at > 2 and not is_other and _is_result(lines[at + 2 : end]):
            yield Table(at + 1, lines[at], UNTRACED in lines[end : end + 2])
        at = max(end, at + 1)


def _is_result(rows: list[str]) -> bool:
    cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")[1:]]
    filled = [cell for cell in cells if cell]
    return bool(filled) and sum(bool(re.match(r"[*~<>+−±-]*\s*\d", cell)) for cell in filled) >= SHARE * len(filled)
