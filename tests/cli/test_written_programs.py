"""A study has a program written, its trainings read it, and it goes on after a stop."""

import json
from pathlib import Path

import pytest

from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting, UnknownName

STUDY = """
summary: A study in small.
programs:
  verified: {writer: latent, environment: gymnasium/Reacher-v5, llm: "pack:lare-reacher", settings: {steps: 60}}
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
    assert facts["methods"]["lare"]["seeds"] == [0] and facts["claims"][0]["holds"] == "few seeds"
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
