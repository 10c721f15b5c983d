"""robo-rl tables: write the tables and curves of pages from archives, and list those that have none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_rl.runs.run import write_text

EXAMPLES = """robo-rl tables
robo-rl tables docs/rewards/oni.md
robo-rl tables --check     (writes nothing; 1 if a table is not that of its archive)"""


@dataclass(frozen=True)
class Tables:
    """Write the tables and curves of pages from archives; list tables of results that have no archive."""

    pages: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PAGE")] = (
        Path("README.md"),
        Path("docs"),
        Path("policies/robo_papers"),
    )
    """Pages, and folders of pages."""
    archives: Path = Path("docs/benchmarks")
    """Folder of the archives."""
    check: bool = False
    """Only check whether the tables on the pages are up to date, and write nothing."""


def run(arguments: Tables) -> int:
    """Write what differs, and print it and the tables without an archive."""
    from robo_app.experiments.pages import draw_images, rendered, untraced  # scipy, which help does without

    files = [file for page in arguments.pages for file in ([page] if page.is_file() else sorted(page.rglob("*.md")))]
    files = [file for file in files if file.parent != arguments.archives or file.name == "README.md"]  # others are data
    changed, lacking, marked = 0, 0, 0
    for file in files:
        text = file.read_text(encoding="utf-8")
        now = rendered(text, arguments.archives)
        if now != text:
            changed += 1
            print(f"{'differs' if arguments.check else 'written'}  {file}")
            if not arguments.check:
                write_text(file, now)
        for image in () if arguments.check else draw_images(file, arguments.archives):
            print(f"drawn    {image}")
        for table in untraced(text):
            lacking, marked = lacking + 1, marked + table.is_marked
            print(f"{'marked   ' if table.is_marked else 'UNMARKED '}{file}:{table.line}  {table.head}")
    print(f"{lacking} tables of results have no archive; {marked} of them say so")
    return 1 if arguments.check and (changed or lacking > marked) else 0
