"""Factors are written by a command, whose mistakes are told; the shipped study names them."""

from pathlib import Path

import pytest

from robo_app.experiments.plan import read_plan
from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting, RoboRLError


def test_shipped_study_loads_and_custom_keeps_datasets():
    study = read_plan("lare")
    assert {"dense", "episodic", "rd", "rrd", "lare", "lare-unverified", "direct"} == {*study.methods}
    assert [bool(read_plan(name).datasets) for name in ("lare", "offline", "labels")] == [False, True, True]
    words = study.words("lare", 1, Path("out"))
    assert words[words.index("--reward.settings.path") + 1] == "out/programs/verified.py"
    assert words[words.index("--reward.settings.seed") + 1] == "1", "the decoder begins anew, too"
    assert "--reward.settings.seed" not in study.words("episodic", 1, Path("out"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x.txt", "--llm", "pack:lare-reacher"], r"needs a file(.|\n)*ends in .py"),
        (["--out", "x.py"], r"No language model is named(.|\n)*--llm endpoint"),
        (["--out", "x.py", "--llm", "pack:lare-richer"], r"Unknown pack 'lare-richer'(.|\n)*lare-reacher"),
    ],
)
def test_bad_orders_say_what_to_do(words, message):
    with pytest.raises(RoboRLError, match=message):
        dispatch(["reward", "latent", "gymnasium/Reacher-v5", "--steps", "2", *words])


def test_a_file_that_somebody_else_has_written_stays():
    Path("mine.py").write_text("# by hand")
    with pytest.raises(InvalidSetting, match=r"mine.py is there already(.|\n)*name a new file"):
        dispatch(["reward", "latent", "gymnasium/Reacher-v5", "--llm", "pack:lare-reacher", "--out", "mine.py"])
    assert Path("mine.py").read_text() == "# by hand"
