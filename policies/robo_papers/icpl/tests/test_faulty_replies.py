"""A search that is told everything that can go wrong: one clear status each, the search goes on, and its replay is the same."""

from pathlib import Path

import numpy as np
import pytest

from robo_papers.icpl.candidates import Outcome
from robo_papers.icpl.eureka import Eureka, EurekaConfig
from robo_rl.rewards.chat.opening import language_model
from robo_rl.rewards.programs.validation import validate
from robo_rl.rewards.writing.prompts import RewardTask, initial_prompt
from robo_rl.rewards.writing.writer import Writer

TASK = RewardTask("bring the gripper to the goal", "class Batch:\n    goal_from_gripper: (N, 3)  # [m]", "np: abs", 50)
COLUMNS = {
    name: np.random.default_rng(number).normal(0, 0.2, (100, 3))
    for number, name in enumerate(["goal_from_gripper", "previous_goal_from_gripper", "end_effector_position", "action"])
}
EXPECTED = [  # status, and part of the reason
    ("ok", ""),
    ("refused", "The model refused to answer."),
    ("cut", "The answer was cut off before its end"),
    ("no code", "A good reward is the negative distance"),
    ("several programs", "2 fenced blocks"),
    ("syntax", "Line 1 is no Python: expected ':'."),
    ("signature", "def reward(batch, action)"),
    ("signature", "return -np.linalg.norm"),
    ("unknown column", "distance_to_goal"),
    ("forbidden", "open('/etc/hostname')"),
    ("forbidden", "import os"),
    ("forbidden", "while True"),
    ("shape", "()"),
    ("not finite", "rows"),
    ("memory", "512 MiB"),
    ("scale", "too large"),
    ("batch", "depends on the other rows"),
    ("sensitivity", "total is 0 on all"),
    ("ok", ""),
    ("unreachable", "There is no answer of the model (unreachable)."),
]


class Trainer:
    """Trains nothing: the score follows from the names of the terms."""

    def __init__(self):
        self.trained = []

    def train(self, program, seed):
        self.trained.append(program.terms)
        score = {("far",): 0.0, ("near",): 0.4, ("gain", "arrive"): 0.9}[program.terms]
        return Outcome(score, (1, 2), (0.0, score), {name: (0.0, score) for name in program.terms})


@pytest.fixture(scope="module")
def attempt():
    """Puts each program on probation once."""
    verdicts = {}

    def attempt(program):
        if program.hash not in verdicts:
            found = validate(program, COLUMNS)
            failed = next((each for each in found.findings if each.kind == "failure"), None)
            verdicts[program.hash] = (failed.check, found.feedback) if failed else ("ok", "")
        return verdicts[program.hash]

    return attempt


def searched(model, attempt, rounds=9):
    """Returns the rounds of a search, what was trained, and why it ended."""
    trainer = Trainer()
    search = Eureka(Writer(model, COLUMNS, attempt), trainer, TASK, EurekaConfig(rounds=rounds, programs=len(EXPECTED)))
    return [*search.rounds()], trainer.trained, search.ended


@pytest.mark.slow
def test_each_fault_has_a_status_and_only_budget_ends_search(attempt):
    log = Path("calls.jsonl")
    with language_model("pack:faults-reach", log=log) as model:
        (first, second), trained, ended = searched(model, attempt)
    for candidate, (status, reason) in zip(first.candidates, EXPECTED, strict=True):
        assert candidate.status == status and reason in candidate.reason, candidate.index
    assert first.incumbent.index == 0 and trained == [("near",), ("far",), ("gain", "arrive")]
    assert [each.status for each in second.candidates] == ["refused", "ok"] + ["out of replies"] * (len(EXPECTED) - 2)
    assert (second.incumbent.program.terms, ended) == (("gain", "arrive"), "the budget of the model is spent")
    assert second.incumbent.program.provenance["model"] == "made by hand"
    with language_model("", replay=log) as model:
        again, trained_again, ended_again = searched(model, attempt)
    assert (trained_again, ended_again) == (trained, ended)
    assert [[each.status for each in round.candidates] for round in again] == [
        [each.status for each in round.candidates] for round in (first, second)
    ]
    assert again[-1].incumbent.program.source == second.incumbent.program.source


@pytest.mark.slow
def test_a_server_that_says_the_same_is_searched_the_same(chat_server, attempt):
    """Over the wire, with the faults of a server among the replies."""
    chat_server.script.append(chat_server.fail(429, Retry_After="0.01"))
    for reply in language_model("pack:faults-reach").sample(initial_prompt(TASK), len(EXPECTED)):
        said = chat_server.say(reply.text, "length" if reply.status == "cut" else "stop")
        chat_server.script.extend([chat_server.cut()] * 2 if reply.status == "unreachable" else [said])
    settings = {"model": "judge", "base_url": chat_server.url, "key_variable": "TEST_KEY", "concurrency": 1, "retries": 1}
    (found,), _, _ = searched(language_model("endpoint", settings), attempt, rounds=1)
    assert [each.status for each in found.candidates] == [status for status, _ in EXPECTED]
