"""Every paper that is installed keeps its promises, and the check of them can fail."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from robo_app.papers.checks import check_paper, rows_of
from robo_rl.errors import BrokenPlugin, ConformanceFailure, UnknownName
from robo_rl.papers import papers

TEMPLATE = Path(__file__).parents[2] / "docs" / "examples" / "paper" / "my_paper"


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a copy of the template and return its folder."""
    folder = tmp_path / "my_paper"
    for file in [each for each in TEMPLATE.rglob("*") if each.is_file() and "__pycache__" not in each.parts]:
        copy = folder / file.relative_to(TEMPLATE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    information = tmp_path / "my_paper-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-paper\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text("[robo_rl.papers]\nmine = my_paper\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_paper"]:
        sys.modules.pop(name)
    return folder


def changed(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


@pytest.mark.slow
def test_the_template_keeps_its_promises(template: Path) -> None:
    check_paper("my_paper")


@pytest.mark.parametrize(
    ("file", "old", "new", "error", "words"),
    [
        ("learner.py", "return self.parts.finish_update", "return {'loss': 1.0} | self.parts.finish_update", None, "a tag"),
        ("reward.py", "before - after)", "before - after + np.random.rand())", None, "labels repeat"),
        ("recipes/my-arm-reach.yaml", "summary: ", "# ", None, "its recipes have a summary"),
        ("paper.toml", "[trials.rwr]", "[trials.rwx]", UnknownName, "component in the trials of .*rwx"),
        ("paper.toml", "settings = {batch", "setings = {batch", UnknownName, "did you mean 'settings'"),
        ("paper.toml", "reward:GoalProgress", "reward:Nothing", BrokenPlugin, "no attribute 'Nothing'"),
    ],
)
def test_a_broken_promise_is_found(template: Path, file: str, old: str, new: str, error: type | None, words: str) -> None:
    changed(template, file, old, new)
    with pytest.raises(error or ConformanceFailure, match=words):
        check_paper("my_paper")


@pytest.mark.slow
def test_a_paper_without_a_page_is_found(template: Path) -> None:
    (template / "page.md").unlink()
    with pytest.raises(ConformanceFailure, match="it has a page"):
        check_paper("my_paper")


@pytest.mark.parametrize("name", [name for name, paper in papers().items() if paper.distribution == "robo-rl-papers"])
def test_rows_of_our_papers_are_read(name: str) -> None:
    assert rows_of(papers()[name])


LOADED = """
import importlib.abc, sys
from typing import get_args

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from robo_rl.entry_points import known
from robo_rl.errors import MissingExtra
from robo_rl.papers import Group
told = []
for group in get_args(Group):
    for name, point in known(group).items():
        try:
            point.load()
        except MissingExtra:
            told.append(name)
        except Exception as error:
            print(group, name, repr(error))
print(*told)
"""


@pytest.mark.slow
def test_a_component_without_its_package_names_the_extra() -> None:
    absent = ("av", "gpytorch", "matplotlib", "minigrid", "pyarrow", "quadprog", "sb3_contrib", "tensorboard", "websockets")
    done = subprocess.run([sys.executable, "-c", LOADED, *absent], check=True, capture_output=True, text=True)
    last = done.stdout.splitlines()[-1]
    assert {"minigrid", "sb3-tqc", "subgoals"} <= {*last.split()} and len(done.stdout.splitlines()) == 1, done.stdout
