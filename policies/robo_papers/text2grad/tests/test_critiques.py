"""Criticised spans: which steps are meant, what is paid, and that the place is all that teaches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_papers.text2grad import study
from robo_papers.text2grad.criticism import Remark, Remarks, lines_of, notes, question
from robo_papers.text2grad.spans import SpanFeedback, span_rewards
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification
from robo_sims.minigrid_captions import MiniGridCaptioner


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("2.1-3.0 s poor: gripper too fast", SpanFeedback(2.1, 3.0, False, "gripper too fast")),
        ("0 to 1.5s good", SpanFeedback(0.0, 1.5, True)),
        (" 4-4 s, good, well\ndone ", SpanFeedback(4.0, 4.0, True, "well\ndone ".strip())),
        ("poor from 2 to 3", None),
        ("2-3 s poorly lit", None),
        ("the gripper was too fast", None),
        ("", None),
    ],
)
def test_remarks_are_read(note, expected):
    assert SpanFeedback.read(note) == expected


def test_a_span_that_runs_backwards_has_one_clear_error():
    with pytest.raises(InvalidSetting, match="runs backwards"):
        SpanFeedback.read("3-2 s poor")


def test_steps_in_a_span_by_hand():
    times = 100.0 + np.arange(6) * 0.5  # actions at 0, 0.5, 1, 1.5 and 2 s
    good, poor, beyond = SpanFeedback(0.5, 1.2, True), SpanFeedback(1.0, 2.0, False), SpanFeedback(2.3, 9.0, True)
    rewards, missed = span_rewards(times, [good, poor, beyond])
    assert rewards.tolist() == [0, 1, 0, -1, -1] and missed == [beyond]
    assert span_rewards(times, [poor], paid="last")[0].tolist() == [0, 0, 0, 0, -1]
    np.testing.assert_allclose(span_rewards(times, [good, poor], paid="shared")[0], [0, 0.5, 0.5 - 1 / 3, -1 / 3, -1 / 3])


@given(st.floats(0, 5), st.floats(0, 5), st.integers(1, 40))
def test_shared_spans_are_worth_one_at_any_rate(start, length, rate):
    times = np.arange(10 * rate + 1) / rate
    rewards, missed = span_rewards(times, [SpanFeedback(start, start + length, True)], paid="shared")
    assert rewards.sum() == pytest.approx(0.0 if missed else 1.0)


@pytest.mark.slow
def test_only_the_place_teaches(monkeypatch):
    monkeypatch.setattr(study, "UPDATES", 50)
    assert study.learned("spans", 0) > 0.9
    assert study.learned("summed", 0) < 0.2 and study.learned("later", 0) < 0.2


def test_remarks_become_labels_beside_the_recorded_rewards(tmp_path, capsys):
    data = str(tmp_path / "data")
    assert dispatch(["record", "robo/ArmReach-v0", "--episodes", "2", "--out", data]) == 0
    dataset = Dataset(tmp_path / "data")
    with pytest.raises(InvalidSetting, match="criticism of a span"):
        dispatch(["data", "critique", data, "--name", "mine"])
    first, second = dataset.entries()
    for note in ("0-0.1 s good: quick", "99-100 s poor", "a fine day"):
        dataset.catalogue.note(first.identity, note)
    capsys.readouterr()
    assert dispatch(["data", "critique", data, "--name", "mine", "--weight", "0.5"]) == 0
    said = capsys.readouterr().out
    assert "2 criticised spans" in said and "1 other remarks" in said and "1 spans lie beyond" in said
    labels, episode = LabelSet.existing(dataset, "mine"), dataset.read(first)
    found = labels.read(first.identity)
    steps = int((episode.timestamps[:-1] - episode.timestamps[0] <= 0.1 + 1e-9).sum())
    np.testing.assert_allclose(found.values, episode.rewards + 0.5 * (np.arange(len(episode)) < steps))
    np.testing.assert_allclose(labels.read(second.identity).values, dataset.read(second).rewards)
    dataset.catalogue.note(second.identity, "0-0.1 s poor")
    with pytest.raises(InvalidSetting, match="mine"):  # labels of other remarks are never mixed in
        dispatch(["data", "critique", data, "--name", "mine"])
    np.testing.assert_allclose(labels.read(second.identity).values, dataset.read(second).rewards)


def played():
    environment = make_environment("minigrid/MiniGrid-DoorKey-5x5-v0", encoding="one-hot")
    episode = rollout(environment, RandomPolicy(specification(environment), 0), seed=0)
    environment.close()
    return episode


def test_a_model_is_shown_each_line_once():
    asked = question(["a", "a", "b", "a"], "open the door")
    assert "open the door" in asked.words and "\n0 to 1: a\n2: b\n3: a\n" in asked.words and asked.form is Remarks


def test_remarks_of_a_model_are_those_of_a_person():
    episode = played()
    lines, times = lines_of(episode, MiniGridCaptioner()), episode.timestamps - episode.timestamps[0]
    assert len(lines) == len(episode)
    remark = {"judgement": "poor", "reason": "turned away"}
    found = [Remark(first_line=2, last_line=4, **remark), Remark(first_line=3, last_line=2, **remark)]
    found += [Remark(first_line=0, last_line=len(lines), **remark)]
    (note,) = notes(Remarks(remarks=found), lines, episode)
    span = SpanFeedback.read(note)
    assert (span.is_good, span.text) == (False, "turned away")
    rewards, missed = span_rewards(episode.timestamps, [span])
    assert not missed and rewards.nonzero()[0].tolist() == [2, 3, 4] and span.start == pytest.approx(times[2], abs=1e-3)


def test_a_model_criticises_a_dataset(tmp_path, capsys):
    data = str(tmp_path / "data")
    arguments = ["--environment.arguments.encoding", "one-hot", "--policy", "random"]
    assert dispatch(["record", "minigrid/MiniGrid-DoorKey-5x5-v0", "--episodes", "8", "--out", data, *arguments]) == 0
    assert dispatch(["data", "critique", data, "--name", "guessed", "--llm", "chance", "--llm.settings.seed", "3"]) == 0
    told, dataset = capsys.readouterr().out, Dataset(tmp_path / "data")
    noted = [dataset.catalogue.notes(entry.identity) for entry in dataset.entries()]
    assert "criticise" in told and sum(map(len, noted)) > 0 and LabelSet.existing(dataset, "guessed").labelled
    assert dispatch(["data", "critique", data, "--name", "again", "--llm", "chance", "--llm.settings.seed", "3"]) == 0
    assert [dataset.catalogue.notes(entry.identity) for entry in dataset.entries()] == noted, "it asks about no episode twice"
