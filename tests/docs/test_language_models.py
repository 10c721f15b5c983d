"""The page on language models: its code runs, its pack is one, and it names every status."""

import re
from pathlib import Path
from typing import get_args

from robo_rl.rewards.chat.packs import read_pack
from robo_rl.rewards.chat.question import Status

PAGE = (Path(__file__).parents[2] / "docs/rewards/language-models.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_runs(capsys):
    (code,) = blocks("python")
    Path("example.py").write_text(code)
    exec(compile(code, "example.py", "exec"), {})
    assert "made by hand" in capsys.readouterr().out and Path("run/calls.jsonl").read_text().count("\n") == 3


def test_the_pack_of_the_page_is_one():
    Path("pack.yaml").write_text(blocks("yaml")[1])
    assert read_pack("pack.yaml").pack.replies.keys() == {"write", "annotate"}


def test_every_status_is_explained():
    assert [status for status in get_args(Status) if f"| `{status}` |" not in PAGE] == []
