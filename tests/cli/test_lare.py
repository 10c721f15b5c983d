"""Learning from returns by commands: a program is written, trainings read it, a study does both and goes on after a stop."""

import json
from pathlib import Path

import pytest

from robo_app.experiments.plan import read_plan
from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting, RoboRLError, UnknownName

STUDY = """
summary: A study in small.
programs:
  verified: {environment: gymnasium/Reacher-v5, llm: "pack:lare-reacher", settings: {steps: 60}}
settings:
  steps: 110
  learner.replay.learning-starts: 100
  learner.batch-size: 16
  evaluation.episodes: 2
  evaluation.every: 100
  evaluation.episodes-during: 1
  log-every: 100
methods:
  episodic: {recipe: reacher-episodic}
  lare: {recipe: reacher-lare, program: verified}
seeds: [0]
claims: [{better: lare, than: episodic}]
"""


@pytest.mark.slow
def test_a_study_writes_programs_trains_and_makes_nothing_twice(in_this_process, capsys):
    Path("study.yaml").write_text(STUDY)
    order = ["experiment", "study.yaml", "--out", "out"]
    assert dispatch(order) == 0
    assert [job.name for job in in_this_process] == ["verified", "episodic-0", "lare-0"]
    about = json.loads(Path("out/programs/verified.json").read_text())
    assert about["provenance"]["model"] == "made by hand"
    calls = Path("out/programs/verified.calls.jsonl").read_text().splitlines()
    assert len(calls) == 8, "five candidates, a summary, two corrections"
    (run,) = Path("out/runs").glob("*-lare-0")
    assert json.loads((run / "run.json").read_text())["reward"]["program"] == about["hash"]
    facts = json.loads(Path("out/archive.json").read_text())["table"]
    assert facts["methods"]["lare"]["seeds"] == [0] and facts["claims"][0]["holds"] in ("yes", "no", "undecided")
    assert "| lare | " in capsys.readouterr().out
    assert dispatch(order) == 0 and len(in_this_process) == 3
    (run / "evaluation.json").unlink()  # as after a kill at the end of a training
    assert dispatch(order) == 0 and [job.name for job in in_this_process[3:]] == ["lare-0"]
    Path("study.yaml").write_text(STUDY.replace("{better: lare, than: episodic}", "{better: lair, than: episodic}"))
    with pytest.raises(UnknownName, match=r"method of the experiment study 'lair'(.|\n)*did you mean 'lare'"):
        dispatch(order)
    Path("study.yaml").write_text(STUDY.replace("seeds: [0]", "seed: 0"))
    with pytest.raises(InvalidSetting, match=r"study.yaml is not an experiment(.|\n)*seed"):
        dispatch(order)


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
