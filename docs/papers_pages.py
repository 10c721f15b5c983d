"""Hook of mkdocs: papers bring their pages and their places in the navigation, and links to files out of docs/ are kept.

A paper's page lies in its folder; the site has it at papers/NAME.md, in the section of "Methods" that its paper.toml names.
papers/index.md is the README of the distribution with a table of what the folders declare; the stand-in has its README, too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from robo_rl.papers import Paper, papers

ROOT = Path(__file__).parents[1]
STANDIN = ROOT / "sims" / "carla_standin" / "README.md"
HOME = ROOT / "policies" / "robo_papers"
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def ours() -> list[Paper]:
    """Return the papers of this repository that have a page."""
    return [paper for paper in papers().values() if paper.folder.is_relative_to(HOME) and paper.page is not None]


def on_config(config: Any) -> Any:
    """Add the papers to the navigation."""
    (methods,) = (entry["Methods"] for entry in config.nav if "Methods" in entry)
    sections = {name: pages for entry in methods for name, pages in entry.items()}
    for paper in ours():
        if paper.section not in sections:
            sections[paper.section] = []
            methods.append({paper.section: sections[paper.section]})
        sections[paper.section].append(_place(paper))
    methods.append({"Papers": "papers/index.md"})
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages."""
    for paper in ours():
        files.append(File.generated(config, _place(paper), abs_src_path=str(paper.page)))
    files.append(File.generated(config, "papers/index.md", content=_index()))
    files.append(File.generated(config, "carla-standin.md", abs_src_path=str(STANDIN)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Lead links between docs/ and the folders of papers to where the site has them."""
    of_paper = {paper.page.resolve(): _place(paper) for paper in ours() if paper.page}
    places = of_paper | {HOME / "README.md": "papers/index.md", STANDIN: "carla-standin.md", ROOT / "README.md": "index.md"}
    beside = Path(page.file.abs_src_path).parent if page.file.abs_src_path else HOME

    def led(match: re.Match[str]) -> str:
        file = Path(os.path.normpath(beside / match[2]))
        if "://" in match[2] or not file.is_file():
            return match[0]
        place = places.get(file) or (str(file.relative_to(ROOT / "docs")) if file.is_relative_to(ROOT / "docs") else None)
        here = os.path.dirname(page.file.src_uri)
        return f"{match[1]}{os.path.relpath(place, here or '.')}{match[3] or ''}{match[4]}" if place else match[0]

    return LINK.sub(led, markdown)


def _place(paper: Paper) -> str:
    return f"papers/{paper.name}.md"


def _index() -> str:
    rows = [f"| [{paper.name}]({paper.folder.name}/page.md) | {paper.summary} |" for paper in ours()]
    return (HOME / "README.md").read_text() + "\n| paper | |\n|---|---|\n" + "\n".join(rows) + "\n"
