"""A language model whose process is killed, and two processes with one cache: nothing is paid twice, nothing is lost."""

import json
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from robo_rl.rewards.chat.opening import language_model
from robo_rl.rewards.chat.question import prompt

SCRIPT = Path(__file__).with_name("sample_and_die.py")
N, CONCURRENCY = 60, 3


@pytest.fixture
def slow_server(chat_server):
    numbers = count()
    chat_server.answer = lambda words, pictures: time.sleep(0.01) or f"answer {next(numbers)}"
    return chat_server


def started(url, log) -> subprocess.Popen:
    command = [sys.executable, str(SCRIPT), url, str(log), str(N)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "began\n"
    return process


@pytest.mark.slow
def test_killed_sampling_loses_and_repays_nothing(slow_server, tmp_path):
    log, kills = tmp_path / "calls.jsonl", 1
    for number in range(kills):
        process = started(slow_server.url, log)
        while len(slow_server.asked) < 20 * (number + 1):
            time.sleep(0.003)
        process.kill()
        process.communicate()
    before = log.read_text().splitlines()
    assert len(before) >= 20 * kills - CONCURRENCY, "replies are in the log one by one"
    process = started(slow_server.url, log)
    told = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0 and len(told) == N == len({*told})
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert log.read_text().startswith("\n".join(before[:-1])), "no line is changed"
    assert sorted(each["sample"] for each in records) == [*range(N)] and [each["raw"] for each in _by_sample(records)] == told
    assert len(slow_server.asked) <= N + kills * CONCURRENCY, "only what was under way is asked for again"
    replayed = language_model("", replay=log)
    assert [reply.text for reply in replayed.sample(prompt("Write a reward.", purpose="write"), N)] == told


@pytest.mark.slow
def test_two_processes_share_one_cache(slow_server, tmp_path):
    processes = [started(slow_server.url, tmp_path / f"{number}.jsonl") for number in range(2)]
    told = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [len({*each}) for each in told] == [N, N] and [process.returncode for process in processes] == [0, 0]
    asked = len(slow_server.asked)
    settings = {"model": "judge", "base_url": slow_server.url, "key_variable": "TEST_KEY", "concurrency": CONCURRENCY}
    third = language_model("endpoint", settings)
    assert {reply.text for reply in third.sample(prompt("Write a reward.", purpose="write"), N)} <= {*told[0], *told[1]}
    assert len(slow_server.asked) == asked and third.spent()["llm/paid"] == 0


def _by_sample(records):
    return sorted(records, key=lambda record: record["sample"])
