"""Whoever begins at the README finds every page, and every link leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "policies" / "robo_papers"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *PAPERS.rglob("*.md"), *(ROOT / "sims").rglob("*.md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def links(page: Path) -> list[tuple[Path, str]]:
    """Returns the files that a page links to within the repository, and the heading or ""."""
    targets = [target for target in LINK.findall(CODE.sub("", page.read_text())) if "://" not in target]
    pairs = [target.partition("#") for target in targets]
    return [((page.parent / file).resolve() if file else page, heading) for file, _, heading in pairs]


def headings(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    lines = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for file, heading in links(page):
        assert file.exists(), file
        assert not heading or heading in headings(file), f"{file.name}#{heading}"


def test_every_page_is_found_from_the_readme():
    found, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md" and page not in found:
            found.add(page)
            waiting += [file for file, _ in links(page)]
            waiting += PAPERS.glob("*/page.md") if page == PAPERS / "README.md" else []  # which says how they are listed
        elif page.is_dir():
            waiting += page.glob("*.md")
    pages = {page for page in PAGES if ROOT / "docs" / "examples" not in page.parents}  # a template
    assert sorted(str(page.relative_to(ROOT)) for page in pages - found) == []
