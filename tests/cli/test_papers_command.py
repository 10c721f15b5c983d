"""robo-rl papers says everything that a folder brings, and how to use it."""

import pytest

from robo_cli.main import dispatch
from robo_rl.errors import UnknownName


def test_a_paper_says_all_that_it_brings(capsys):
    assert dispatch(["papers", "lare"]) == 0
    told = capsys.readouterr().out
    used = ("robo-rl train reacher-rrd", "robo-rl experiment pick-outcomes", "--llm pack:lare-reacher", "lare/page.md")
    assert all(words in told for words in (*used, "reward latent", "return-decomposition"))


def test_an_unknown_paper_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'lare'"):
        dispatch(["papers", "lair"])
