"""Pages of papers are on the site: in its navigation, and linked from both sides."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from robo_rl.papers import papers

ROOT = Path(__file__).parents[2]
OURS = sorted(name for name, paper in papers().items() if paper.distribution == "robo-rl-papers")


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("papers_pages", ROOT / "docs" / "papers_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_paper_is_in_the_navigation_once(hook: ModuleType) -> None:
    config = SimpleNamespace(nav=[{"Home": "index.md"}, {"Methods": [{"Online": ["learners/sac.md"]}]}])
    hook.on_config(config)
    methods = config.nav[1]["Methods"]
    entries = [page for entry in methods for places in entry.values() if isinstance(places, list) for page in places]
    pages = {page: title for entry in entries for title, page in (entry.items() if isinstance(entry, dict) else [("", entry)])}
    assert len(pages) == len(entries) and sorted(pages) == sorted(["learners/sac.md", *(f"papers/{name}.md" for name in OURS)])
    assert pages["learners/sac.md"] == "SAC: soft actor-critic (validated)" and pages["papers/barfi.md"].endswith(
        "(experimental)"
    )
    assert (
        methods[0]["Online"][0] == {"SAC: soft actor-critic (validated)": "learners/sac.md"}
        and {"Papers": "papers/index.md"} in methods
    )


def test_pages_begin_with_their_evidence(hook: ModuleType) -> None:
    here = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(ROOT / "docs/learners/rlpd.md"), src_uri="learners/rlpd.md"))
    head, note = hook.on_page_markdown("# RLPD\nText.", page=here, config=None, files=None).split("\n\n", 1)
    assert head == "# RLPD" and "**proven** `rlpd`: Picks a cube in" in note and note.endswith("Text.")


@pytest.mark.parametrize(
    ("page", "place", "text", "expected"),
    [
        ("docs/index.md", "index.md", "[a](../policies/robo_papers/oer/page.md)", "[a](papers/oer.md)"),
        ("docs/learners/iql.md", "learners/iql.md", "[a](sac.md#x)", "[a](sac.md#x)"),
        (
            "policies/robo_papers/oer/page.md",
            "papers/oer.md",
            "[a](../../../docs/training/offline.md#b)",
            "[a](../training/offline.md#b)",
        ),
        ("policies/robo_papers/oer/page.md", "papers/oer.md", "[a](https://b.c/d.md)", "[a](https://b.c/d.md)"),
    ],
)
def test_links_lead_to_where_the_site_has_a_page(hook: ModuleType, page: str, place: str, text: str, expected: str) -> None:
    here = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(ROOT / page), src_uri=place))
    assert hook.on_page_markdown(text, page=here, config=None, files=None) == expected
