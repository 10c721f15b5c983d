"""Labelling with a judge from the command line: killed in the middle of an episode, out of budget, with its server gone."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from factories import axes, make_dataset, make_spec, picture_spec, random_episode
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.errors import BudgetReached, JudgeUnavailable, RewardUnavailable
from robo_rl.types import Episode

SCRIPT = Path(__file__).with_name("label_and_die.py")
CAMERA = picture_spec("camera_front", (6, 8, 3))
SPEC = make_spec("test/Cell-v0", CAMERA, action=axes("x"))
STEPS, EVERY = 12, 2
QUESTIONS = STEPS // EVERY + 1


def episode(seed: int) -> Episode:
    pictures = np.random.default_rng(seed).integers(0, 256, (STEPS + 1, 6, 8, 3), np.uint8)
    return random_episode(SPEC, STEPS, seed, observations={"camera_front": pictures}, instruction="pick up the cube")


@pytest.fixture
def dataset(tmp_path) -> Dataset:
    return make_dataset(tmp_path / "data", SPEC, map(episode, range(4)))


def brightness(words, pictures) -> str:
    return json.dumps({"completion_progress": int(pictures[-1][0, 0, 0]) // 26 / 10})


@pytest.fixture
def order(dataset, chat_server):
    """The command, with other settings of the judge."""
    chat_server.answer = brightness

    def make(name: str, **settings) -> list[str]:
        judge = {"model": "judge", "base_url": chat_server.url, "key_variable": "TEST_KEY", "retries": 0} | settings
        arguments = [
            "--reward",
            "judge-progress",
            "--reward.settings.judge_settings",
            json.dumps(judge),
            "--reward.settings.every",
            str(EVERY),
        ]
        return [
            "label",
            str(dataset.path),
            *arguments,
            "--name",
            name,
            "--cache",
            "none",
        ]  # of labels; that of answers is asked

    return make


def values(dataset: Dataset, name: str) -> np.ndarray:
    return np.concatenate([LabelSet(dataset, name).read(entry.identity).values for entry in dataset.entries()])


@pytest.mark.slow
def test_labels_are_made_and_made_again_without_server_and_key(dataset, order, chat_server, monkeypatch, capsys):
    prices = {"prompt_price": 10.0, "completion_price": 0.0}
    assert dispatch(order("first", terms=prices)) == 0
    told = capsys.readouterr().out
    assert "4/4 | 28 asked | 3080 tokens | cost 0.028" in told
    assert "endpoint judge: 28 ok (100.0%); 28 asked now, 0 known before, answered by 'judge-2026-11-01'; 3080 tokens" in told
    wanted = [
        brightness((), [picture]) for seed in range(4) for picture in episode(seed).observations["camera_front"][EVERY::EVERY]
    ]
    assert values(dataset, "first")[1::EVERY].tolist() == pytest.approx(
        [json.loads(each)["completion_progress"] for each in wanted]
    )
    monkeypatch.delenv("TEST_KEY")
    assert dispatch(order("second", terms=prices)) == 0
    np.testing.assert_array_equal(values(dataset, "first"), values(dataset, "second"))
    assert len(chat_server.asked) == 28 and "0 asked now, 28 known before" in capsys.readouterr().out


@pytest.mark.slow
def test_one_question_judges_have_several_episodes_under_way(tmp_path, order, chat_server):
    """Each of 12 episodes has one question; all wait for the last of them, as no quiet machine is needed for."""
    all_there = threading.Event()

    def together(words, pictures):
        if chat_server.under_way == 12:
            all_there.set()
        return '{"score": 3}' if all_there.wait(5) else "late"

    chat_server.answer = together
    command = order("graded", concurrency=12)
    command[command.index("judge-progress")] = "judge-ordinal"
    place = command.index("--reward.settings.every")
    del command[place : place + 2]
    command[1] = str(make_dataset(tmp_path / "twelve", SPEC, map(episode, range(12))).path)
    assert dispatch(command) == 0
    assert len(chat_server.asked) == 12 == chat_server.most_under_way


@pytest.mark.slow
def test_answers_are_kept_in_one_store(dataset, order, chat_server, monkeypatch, tmp_path, capsys):
    """The answers are in the store, their labels in the set, and neither anywhere else."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("ROBO_RL_CACHE", str(cache))
    first, second = (order(name)[:-2] for name in ("first", "second"))  # with the usual cache of labels
    for each, asked in ((first, 28), (second, 0)):
        assert dispatch(each) == 0
        told = f"{asked} asked now, {28 - asked} known before, answered by 'judge-2026-11-01'; 3080 tokens in all"
        assert told in capsys.readouterr().out
    with sqlite3.connect(cache / "answers" / "answers.sqlite") as kept:
        assert kept.execute("SELECT count(*) FROM answers").fetchone() == (28,)
    with sqlite3.connect(cache / "labels.sqlite") as kept:
        assert kept.execute("SELECT count(*) FROM labels").fetchone() == (0,)


@pytest.mark.slow
def test_replay_sends_nothing_and_leaves_gaps(dataset, order, chat_server, capsys):
    good = brightness((), [np.zeros((1, 1, 3), np.uint8)])
    chat_server.script.extend([chat_server.say(good)] * 6 + [chat_server.fail(500)])
    with pytest.raises(JudgeUnavailable, match=r"None of these \d+ questions has a kept answer"):
        dispatch([*order("none")[:-2], "--replay"])
    assert dispatch(order("some", concurrency=1)) == 0
    asked, before = len(chat_server.asked), values(dataset, "some")
    assert dispatch([*order("again", concurrency=1)[:-2], "--replay"]) == 0
    assert len(chat_server.asked) == asked and "1 unreachable" in capsys.readouterr().out
    np.testing.assert_array_equal(values(dataset, "again"), before)


@pytest.mark.slow
def test_a_budget_pauses_and_the_same_command_goes_on(dataset, order, chat_server):
    asked = 0
    for most in (1000, 2000):
        with pytest.raises(BudgetReached, match="The budget is spent"):
            dispatch(order("mine", concurrency=2, terms={"most_tokens": most}))
        assert asked < len(chat_server.asked) <= most / 110 + 2
        asked = len(chat_server.asked)
    assert dispatch(order("mine", terms={"most_tokens": 10**6})) == 0 and len(chat_server.asked) == 28
    assert LabelSet(dataset, "mine").count(dataset.entries()) == 4 * STEPS


def test_a_server_that_goes_away_leaves_no_label_of_zero(dataset, order, chat_server):
    chat_server.script.extend([chat_server.say(brightness((), [np.zeros((1, 1, 3), np.uint8)]))] * 9)
    chat_server.script.extend([chat_server.fail(500)] * 99)
    with pytest.raises(JudgeUnavailable, match="5 questions in a row had no answer"):
        dispatch(order("mine", concurrency=1))
    assert len(LabelSet(dataset, "mine").labelled) == 1
    chat_server.script.clear()
    assert dispatch(order("mine")) == 0 and LabelSet(dataset, "mine").count(dataset.entries()) == 4 * STEPS


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_judging_repeats_no_answered_question(dataset, order, chat_server, kills):
    def slowly(words, pictures):
        time.sleep(0.01)
        return brightness(words, pictures)

    chat_server.answer, chance, killed = slowly, random.Random(0), 0
    command = [sys.executable, str(SCRIPT), str(dataset.path), chat_server.url, "killed"]
    for _ in range(kills):
        wanted = len(chat_server.asked) + chance.randrange(1, 4)
        process = subprocess.Popen(command)
        while process.poll() is None and len(chat_server.asked) < wanted:
            time.sleep(0.001)
        killed += process.poll() is None
        process.kill()
        process.wait()
    assert killed == kills
    subprocess.run(command, check=True)
    counts = Counter(json.dumps(body) for body in chat_server.asked)
    assert len(counts) == 4 * QUESTIONS
    # what was under way at a kill had no answer yet, three questions at most
    assert sum(counts.values()) <= 4 * QUESTIONS + 3 * killed
    asked = len(chat_server.asked)
    assert dispatch(order("whole", concurrency=3)) == 0
    np.testing.assert_array_equal(values(dataset, "killed"), values(dataset, "whole"))
    assert len(chat_server.asked) == asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reward", "reply", "statuses", "advice"),
    [
        ("judge-progress", ("In the first picture", "length"), "28 cut", "max_tokens = 1024: allow more"),
        ("judge-progress", ("Erledigt: ja", "stop"), "28 garbage", "look at an answer"),
        ("judge-ordinal", ("I cannot help.", "stop"), "4 refused", "other words"),  # says 0 of each step but the last
    ],
)
def test_no_usable_answer_ends_with_error_and_no_train_with(
    dataset, order, chat_server, capsys, reward, reply, statuses, advice
):
    chat_server.script.extend([chat_server.say(*reply)] * 99)
    command = order("mute", terms={"useless": 99})
    if reward == "judge-ordinal":
        command[command.index("judge-progress")] = reward
        place = command.index("--reward.settings.every")
        del command[place : place + 2]
    for _ in range(2):  # the second time from kept answers
        with pytest.raises(RewardUnavailable, match=rf"of 48 steps have a label, .*\n.*{statuses}(.*\n)*.*{advice}"):
            dispatch(command)
        assert "train with" not in capsys.readouterr().out
    assert len(chat_server.asked) == int(statuses.split()[0]) * (2 if "garbage" in statuses else 1)


def test_silent_model_is_left_after_few_questions(order, chat_server):
    chat_server.script.extend([chat_server.say("once upon a time", "length")] * 99)
    with pytest.raises(JudgeUnavailable, match=r"20 answers in a row were of no use: 20 cut"):
        dispatch(order("mute", concurrency=1))
    assert len(chat_server.asked) == 20


def test_gaps_are_told_as_they_are(dataset, order, chat_server, capsys):
    good = brightness((), [np.zeros((1, 1, 3), np.uint8)])
    script = [chat_server.say(good)] * 5 + [chat_server.say(good, "length"), chat_server.fail(500)]
    chat_server.script.extend(script)
    assert dispatch(order("some", concurrency=1)) == 0
    told = capsys.readouterr().out
    assert "45 of 48 steps have a label: 1 unreachable, asked for again by the same command; 1 cut, kept and not" in told
    assert dispatch(order("some", concurrency=1)) == 0
    assert len(chat_server.asked) == 28 + 1, "only the answer that never came"
    assert "46 of 48 steps have a label: 1 cut, kept and not asked for again" in capsys.readouterr().out


def test_model_without_labels_ends_with_error(dataset, capsys):
    with pytest.raises(RewardUnavailable, match="0 of 48 steps have a label"):
        dispatch(["label", str(dataset.path), "--reward", "noisy-oracle", "--reward.settings.missing", "1", "--name", "none"])
    assert "train with" not in capsys.readouterr().out


def descendants(pid: int) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_cluster_repeats_no_answer_and_shares_budget(dataset, order, chat_server):
    pytest.importorskip("ray")

    def slowly(words, pictures):
        time.sleep(0.2)
        return brightness(words, pictures)

    def begun(**settings) -> subprocess.Popen:
        command = [sys.executable, "-m", "robo_cli.main", *order("there", **settings), "--ray", "auto", "--jobs", "2"]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    chat_server.answer = slowly
    limited = begun(terms={"most_tokens": 1000})
    assert "The budget is spent" in limited.communicate(timeout=200)[1] and limited.returncode == 1
    assert len(chat_server.asked) == 10, "after 10 of 110 tokens each it is spent, whoever asked"
    killed = begun(concurrency=2)
    while killed.poll() is None and len(chat_server.asked) < 16:
        time.sleep(0.01)
    workers = [pid for pid in descendants(killed.pid) if b"ray::Host" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(max(workers), signal.SIGKILL)
    while killed.poll() is None and len(chat_server.asked) < 20:
        time.sleep(0.01)
    assert killed.poll() is None
    killed.kill()
    killed.communicate()
    last = begun()
    told = last.communicate(timeout=200)[1]
    assert last.returncode == 0, told
    counts = Counter(json.dumps(body) for body in chat_server.asked)
    assert len(counts) == 4 * QUESTIONS and sum(counts.values()) <= 4 * QUESTIONS + 2 + 4  # under way at the two kills
    asked = len(chat_server.asked)
    assert dispatch(order("here")) == 0 and len(chat_server.asked) == asked
    np.testing.assert_array_equal(values(dataset, "there"), values(dataset, "here"))
