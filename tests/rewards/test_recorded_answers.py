"""Answers that versions before this one recorded are found again: in their store, and in the log of their run."""

import json
import sqlite3
from pathlib import Path
from typing import Literal

import numpy as np

from robo_rl.rewards.chat.chance import Chance
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.endpoint import Endpoint
from robo_rl.rewards.chat.opening import language_model
from robo_rl.rewards.chat.question import Form, Question, prompt
from robo_rl.rewards.chat.store import AnswerStore

TABLES = """CREATE TABLE answers (key TEXT PRIMARY KEY, judge TEXT NOT NULL, status TEXT NOT NULL, raw TEXT NOT NULL,
    model TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, sha256 TEXT NOT NULL);
CREATE TABLE spent (judge TEXT NOT NULL, model TEXT NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, PRIMARY KEY (judge, model));"""
JUDGE = "chance:85b164d8017bd3d2"
ROWS = [
    ("c5e2756e3372d400", '{"done": "no"}', 14, "45b99f7bcffad7da054b3719eb2f877cf5d8d63d2f69788d669a6d394ba2e926"),
    ("792862887a876fe4", "A guess, df7fb0bbb660cb66.", 26, "d7db7771e65f92f1c066a91f1fd0c90ff05e999503aeb02d8453654f4f0c2989"),
    ("4926bce05b700ef9", "A guess, 91c7d40f3a904338.", 26, "2e2116cfcf512e2d123dd8a104a2ad6a5a6da255fedfa2119212366d2086e099"),
]
"""As `chance` with seed 1 gave them in November 2026, with their keys and checksums."""
LINE = """{"at": "2026-11-29T08:29:52.387+00:00", "llm": "chance", "settings": "85b164d8017bd3d2", "purpose": "write",
"round": 0, "request": "9b2d5e03fb4889f3", "sample": 1, "temperature": 1.0, "messages":
[{"role": "system", "text": "You write."},
{"role": "user", "text": "Write."}], "schema": {}, "status": "ok", "raw": "An answer of then.", "content": {},
"model": "chance", "prompt_tokens": 0, "completion_tokens": 26, "cost": 0.0,
"attempts": 0, "seconds": 0.0, "origin": "server"}"""
SHOWN = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)


class Verdict(Form):
    done: Literal["yes", "no"]


def test_a_store_of_before_answers(tmp_path):
    with sqlite3.connect(tmp_path / "answers.sqlite") as store:
        store.executescript(TABLES)
        rows = [(key, JUDGE, "ok", raw, "chance", 0, tokens, sha) for key, raw, tokens, sha in ROWS]
        store.executemany("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    turns = (("user", "a"), ("assistant", "b"))
    asked = [Question(("Is it done?", SHOWN), Verdict, "You judge."), Question(("Say.",))]
    asked += [Question(("more",), None, "s", turns, 0.5, 3)]
    client = ModelClient(Chance(seed=1), store=AnswerStore(str(tmp_path)), replays=True)
    assert [answer.text for answer in client.ask(asked)] == [raw for _, raw, _, _ in ROWS]


def test_a_log_of_before_answers_and_is_gone_on_with():
    log = Path("calls.jsonl")
    log.write_text(json.dumps(json.loads(LINE)) + "\n")
    asked = prompt("Write.", purpose="write", system="You write.")
    for kept in ({"replay": log}, {"log": log}):
        with language_model("chance", {"seed": 1}, **kept) as model:
            assert [answer.text for answer in model.sample(asked, 1, first=1)] == ["An answer of then."]


def test_identities_of_models_are_those_of_before():
    """Another identity would ask and pay for everything again."""
    assert Chance(seed=1).identity == ("chance", "85b164d8017bd3d2")
    assert Endpoint("m", "http://127.0.0.1:9/v1", extra={"seed": 1}).identity == ("endpoint m", "521d222f1076e001")
