"""MPO: rubrics, their versions, a meta judge that cannot be read, and a hacked rubric that is mended."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest

from factories import make_episode
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_papers.mpo.rubrics import Rubric, RubricReward, Sample, rewritten, screened
from robo_papers.mpo.study import BUSY, FIRST, IDLE, INSTRUCTION, NEARNESS, Rules, drawn, learned, scoring
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.chat import models as judging
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.models import Terms
from robo_rl.rewards.chat.question import Answer
from robo_rl.rewards.chat.store import AnswerStore


@dataclass(frozen=True)
class Says:
    """A judge that says the same whatever the form."""

    says: str = "nothing"
    terms: Terms = field(default_factory=Terms)

    @property
    def identity(self):
        return "says", self.says

    def ask(self, questions):
        for number, question in enumerate(questions):
            yield number, Answer("ok", text=self.says if question.form else "Inflated.", model="m")


def asking(judge, tmp_path):
    return ModelClient(judge, store=AnswerStore(str(tmp_path / "answers")))


def sample(cells, score, success):
    return Sample(drawn(cells), INSTRUCTION, score, success)


HACKED = sample([(2, 2)] * 5, 0.8, False)
DONE = sample([(2, 2), (3, 3), (4, 4)], 0.4, True)


def test_score_is_the_weighted_mean_of_levels():
    assert FIRST.score({NEARNESS.name: 4, BUSY.name: 0}) == pytest.approx(1 / 5)
    assert FIRST.score({NEARNESS.name: 2, BUSY.name: 3}) == pytest.approx((0.5 + 4) / 5)
    assert Rubric().score({"task_done": 4}) == 1.0


def test_a_judge_is_shown_the_rubric_and_answers_each_criterion(tmp_path):
    reward = scoring(asking(Rules(), tmp_path), FIRST, tmp_path)
    pictures = drawn([(2, 2)] * 4)
    scores = reward.scores_at(pictures, np.arange(4), INSTRUCTION)
    assert scores.values.tolist() == pytest.approx([(0 + 4) / 5])
    labels = reward.label(make_episode({"camera_front": pictures}, instruction=INSTRUCTION))
    assert labels.values.tolist() == pytest.approx([0, 0, 0.8]) and labels.valid.all()
    out_of_range = Says(json.dumps({"rationale": "", NEARNESS.name: 5, BUSY.name: 0}))
    beyond = scoring(asking(out_of_range, tmp_path), FIRST, tmp_path)
    assert not beyond.label(make_episode({"camera_front": pictures}, instruction=INSTRUCTION)).valid[-1]


def test_another_rubric_is_another_reward(tmp_path):
    files = [tmp_path / f"{number}.yaml" for number in range(3)]
    Rubric((NEARNESS, BUSY), 0).write(files[0])
    Rubric((NEARNESS, IDLE), 1).write(files[1])
    Rubric((NEARNESS, BUSY), 2).write(files[2])
    identities = [RubricReward(judge="chance", rubric=str(each)).identity for each in files]
    assert identities[0] != identities[1] and identities[0] == identities[2]  # its content counts, no file and no number
    assert Rubric.read(files[1]) == Rubric((NEARNESS, IDLE), 1)
    with pytest.raises(InvalidSetting, match="already"):
        Rubric().write(files[0])


BROKEN = ["name: model_config, levels: [x, y]", "name: copy, levels: [x, y]", "name: rationale, levels: [x, y]"]
BROKEN += ["name: A b, levels: [x, y]", "name: a, levels: [x]", "name: a, levels: [x, y], weight: 11", "levels: [x, y]"]


@pytest.mark.parametrize(
    "content",
    [
        "version: 0",
        "[1]",
        "version: 0\ncriteria: []",
        "version: 0\ncriteria: [{name: a, levels: [x, y]}, {name: a, levels: [x, y]}]",
        *(f"version: 0\ncriteria: [{{{each}}}]" for each in BROKEN),
    ],
)
def test_a_broken_file_is_one_error(tmp_path, content):
    (tmp_path / "rubric.yaml").write_text(content)
    with pytest.raises(InvalidSetting):
        Rubric.read(tmp_path / "rubric.yaml")


def test_a_meta_judge_adds_what_is_missing(tmp_path):
    result = rewritten(asking(Rules(), tmp_path), FIRST, [HACKED, DONE])
    assert result.problem == "" and result.rubric.version == 1 and result.shown == 2
    assert result.rubric.criteria == (NEARNESS, BUSY, IDLE)
    again = rewritten(asking(Rules(is_told=False), tmp_path), FIRST, [HACKED, DONE])
    assert again.rubric is FIRST and "right as it is" in again.problem


@pytest.mark.parametrize("says", ["no JSON", '{"criteria": []}', '{"criteria": [{"name": "a", "levels": ["x"]}]}'])
def test_an_unreadable_rubric_leaves_the_old_one(tmp_path, says):
    result = rewritten(asking(Says(says), tmp_path), FIRST, [HACKED])
    assert result.rubric is FIRST and result.problem


def test_a_merged_rubric_that_cannot_be_read_leaves_the_old_one(tmp_path):
    class Merging(Rules):
        def _content(self, question, words, cells):
            return "a list" if "Merge these" in words else super()._content(question, words, cells)

    result = rewritten(asking(Merging(), tmp_path), FIRST, [HACKED])
    assert result.rubric is FIRST and "merged" in result.problem


def test_badly_scored_episodes_come_first(tmp_path):
    samples = [DONE] * 6 + [HACKED] * 2
    chosen, bad = screened(asking(Rules(), tmp_path), FIRST, samples, 4, np.random.default_rng(0))
    assert bad == 2 and [each.score for each in chosen] == [0.8, 0.8]
    assert screened(asking(Rules(), tmp_path), FIRST, samples, 8, np.random.default_rng(0)) == (samples, 0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hacked_rubric_is_mended(tmp_path):
    """The judge is hacked with a fixed rubric and by one who believes the scores."""
    fixed, mended, believed = (learned(kind, 0, tmp_path) for kind in ("fixed", "rewritten", "believes"))
    assert np.mean(fixed.success[-10:]) < 0.1 and fixed.last_agreement < 0.2
    assert np.mean(mended.success[-10:]) > 0.5 and mended.last_agreement > 0.5 and mended.versions[-1] >= 1
    assert np.mean(believed.success[-10:]) < 0.1


@pytest.mark.slow
def test_line_from_scores_to_the_next_version(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path / "cache"))
    known = judging.load
    monkeypatch.setattr(judging, "load", lambda group, name: Rules if name == "rules" else known(group, name))
    quick = ["--episodes", "2", "--environment.arguments.max_steps", "8", "--environment.arguments.cameras", "[front]"]
    assert dispatch(["record", "robo/ArmReach-v0", *quick, "--out", "data"]) == 0
    Rubric((NEARNESS, BUSY)).write(tmp_path / "rubric.yaml")
    (tmp_path / "scored.yaml").write_text("reward: mpo\nsettings: {judge: chance, camera: front, rubric: rubric.yaml}\n")
    assert dispatch(["label", "data", "--reward", "scored.yaml", "--name", "scored"]) == 0
    rewrite = ["reward", "rewrite", "data", "--labels", "scored", "--reward", "scored.yaml"]
    capsys.readouterr()
    assert dispatch([*rewrite, "--meta", "chance", "--out", "rubric-1.yaml"]) in (0, 1)
    told = capsys.readouterr().out
    assert "of 2 episodes analysed" in told
    if (tmp_path / "rubric-1.yaml").exists():
        assert Rubric.read(tmp_path / "rubric-1.yaml").version == 1
    (tmp_path / "plain.yaml").write_text("reward: mpo\nsettings: {judge: chance, camera: front}\n")
    with pytest.raises(InvalidSetting, match="not scores by this rubric"):
        dispatch(["reward", "rewrite", "data", "--labels", "scored", "--reward", "plain.yaml", "--out", "rubric-3.yaml"])
    with pytest.raises(InvalidSetting):  # versions never mix
        dispatch(["label", "data", "--reward", "plain.yaml", "--name", "scored"])
    with pytest.raises(InvalidSetting, match="rubric of the reward mpo"):
        dispatch(["reward", "rewrite", "data", "--labels", "scored", "--reward", "oracle", "--out", "rubric-3.yaml"])
    assert len(LabelSet.existing(Dataset(tmp_path / "data"), "scored").makers) == 1
