"""Write the tables and curves of the pages from archives, and list the tables of results that have none.

    python docs/page_tables.py                  # README, docs and the pages of papers
    python docs/page_tables.py docs/rewards/rewards.md
    python docs/page_tables.py --check          # writes nothing; status 1 if a table is not that of its archive

    <!--archive:oni-->
    | task | method | ...          between the two lines: the table of docs/benchmarks/oni.json
    <!--/archive-->

An image named curves-NAME.png is drawn from the archive NAME.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from robo_app.display.learning_curves import draw
from robo_app.experiments.archived import curves_of, page_of
from robo_app.experiments.levels import archive_named
from robo_rl.runs.run import write_text

ROOT = Path(__file__).parents[1]
ARCHIVES = ROOT / "docs" / "benchmarks"
PAGES = (ROOT / "README.md", ROOT / "docs", ROOT / "policies" / "robo_papers")
"""Pages, and folders of pages."""

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


def main(words: Sequence[str] | None = None) -> int:
    """Write what differs, and print it and the tables without an archive; return 1 if `--check` finds one to mend."""
    parser = argparse.ArgumentParser(prog="python docs/page_tables.py", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES, help="pages, and folders of pages")
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args(words)
    files = [file for page in given.pages for file in ([page] if page.is_file() else sorted(page.rglob("*.md")))]
    files = [file for file in files if file.parent != ARCHIVES or file.name == "README.md"]  # others are data
    changed, lacking, marked = 0, 0, 0
    for file in files:
        text = file.read_text(encoding="utf-8")
        now = rendered(text, ARCHIVES)
        if now != text:
            changed += 1
            print(f"{'differs' if given.check else 'written'}  {file}")
            if not given.check:
                write_text(file, now)
        for image in () if given.check else draw_images(file, ARCHIVES):
            print(f"drawn    {image}")
        for table in untraced(text):
            lacking, marked = lacking + 1, marked + table.is_marked
            print(f"{'marked   ' if table.is_marked else 'UNMARKED '}{file}:{table.line}  {table.head}")
    print(f"{lacking} tables of results have no archive; {marked} of them say so")
    return 1 if given.check and (changed or lacking > marked) else 0


if __name__ == "__main__":
    sys.exit(main())
