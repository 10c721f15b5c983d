"""Hook of mkdocs: papers bring their pages and their places in the navigation, and links to files out of docs/ are kept.

Pages of methods begin with level and sentence of their evidence; in the navigation proven ones come first, and others say so.

A paper's page lies in its folder; the site has it at papers/NAME.md, in the section of "Methods" that its paper.toml names.
papers/index.md is the README of the distribution with a table of what the folders declare; the stand-in has its README, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from robo_rl.evidence import LEVELS, Evidence, evidence_of, statements
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
    stated = _stated()
    for pages in sections.values():
        if isinstance(pages, list):
            pages.sort(key=lambda page: LEVELS.index(_level(stated.get(page, ()))))  # stable within a level
            pages[:] = [_entry(page, stated) for page in pages]
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
    here = page.file.src_uri
    beside = Path(page.file.abs_src_path).parent if page.file.abs_src_path else HOME

    def led(match: re.Match[str]) -> str:
        file = Path(os.path.normpath(beside / match[2]))
        if "://" in match[2] or not file.is_file():
            return match[0]
        place = places.get(file) or (str(file.relative_to(ROOT / "docs")) if file.is_relative_to(ROOT / "docs") else None)
        return (
            f"{match[1]}{os.path.relpath(place, os.path.dirname(here) or '.')}{match[3] or ''}{match[4]}" if place else match[0]
        )

    return _with_evidence(LINK.sub(led, markdown), _stated().get(here, ()))


def _stated() -> dict[str, list[tuple[str, Evidence]]]:
    """Return the evidence of the methods by the place of their page on the site."""
    found: dict[str, list[tuple[str, Evidence]]] = {}
    for paper in ours():
        for group, named in paper.evidence.items():
            found.setdefault(_place(paper), []).extend((name, evidence_of(group, name)) for name in named)
    for (_, name), evidence in statements().items():
        if evidence.page:
            found.setdefault(evidence.page.removeprefix("docs/"), []).append((name, evidence))
    return found


def _level(stated: Sequence[tuple[str, Evidence]]) -> str:
    """Return the best level of a page's methods."""
    return LEVELS[min((evidence.rank for _, evidence in stated), default=len(LEVELS) - 1)]


def _entry(page: Any, stated: dict[str, list[tuple[str, Evidence]]]) -> Any:
    """Return an entry of the navigation, with the level in its title."""
    if not isinstance(page, str) or page not in stated:
        return page
    paper = next((paper for paper in ours() if _place(paper) == page), None)
    file = paper.page if paper is not None and paper.page else ROOT / "docs" / page
    title = file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").strip()
    return {f"{title} ({_level(stated[page])})": page}


def _with_evidence(markdown: str, stated: Sequence[tuple[str, Evidence]]) -> str:
    """Return a page with the evidence of its methods under its heading."""
    if not stated or not markdown.startswith("# "):
        return markdown
    head, _, rest = markdown.partition("\n")
    lines = [f"    **{evidence.level}** `{name}`: {evidence.sentence}\n" for name, evidence in stated]
    return "\n".join([head, "", '!!! note "Evidence"', "", *lines, rest])


def _place(paper: Paper) -> str:
    return f"papers/{paper.name}.md"


def _index() -> str:
    stated = _stated()
    papers_by_level = sorted(ours(), key=lambda paper: LEVELS.index(_level(stated.get(_place(paper), ()))))
    rows = [
        f"| [{paper.name}]({paper.folder.name}/page.md) | {_level(stated.get(_place(paper), ()))} | {paper.summary} |"
        for paper in papers_by_level
    ]
    return (HOME / "README.md").read_text() + "\n| paper | level | |\n|---|---|---|\n" + "\n".join(rows) + "\n"
