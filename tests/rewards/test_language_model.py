"""A language model behind an endpoint: each end of a call has one status, nothing is paid twice, a log answers a whole run."""

import json
import os
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from robo_rl.errors import BudgetReached, InvalidSetting, JudgeChanged, JudgeError, JudgeUnavailable, NotInLog, UnknownName
from robo_rl.rewards.chat import transport
from robo_rl.rewards.chat.opening import language_model
from robo_rl.rewards.chat.question import Form, Message, Question, prompt

KEY = "sk-test-5ecret"
PROGRAM = "Closer is better.\n```python\ndef reward(batch):\n    return -batch['distance'], {}\n```\nGood luck."
WRITE = prompt("Write a reward.", purpose="write", system="You write programs.")
LOG = Path("run/calls.jsonl")


class Factors(Form):
    names: list[str]
    code: str


NAMED = prompt("Name the factors.", purpose="factors", form=Factors)
GOOD = json.dumps({"names": ["near"], "code": "x = 1\n"})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(transport, "FIRST_WAIT", 0.001)


@pytest.fixture
def opened(chat_server):
    """Opens the model behind the server, whose every answer is another one."""
    numbers = count()
    chat_server.answer = lambda words, pictures: f"answer {next(numbers)}\n{PROGRAM}"
    models = []

    def opened(log=LOG, replay=None, **settings):
        told = {"model": "judge", "base_url": chat_server.url, "key_variable": "TEST_KEY", "retries": 2, "deadline_s": 5.0}
        models.append(language_model("endpoint", {**told, **settings}, log=log, replay=replay))
        return models[-1]

    yield opened
    for model in models:
        model.close()


def records(path=LOG):
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---------------------------------------------------------------------------------------------- what is sent
def test_a_conversation_is_sent_turn_by_turn(opened, chat_server):
    model = opened()
    first = model.sample(WRITE)[0]
    assert first.status == "ok" and first.text.endswith(PROGRAM) and first.content == {"text": first.text}
    model.sample(WRITE.then(first.text, "Make it denser.", temperature=0.25))
    sent = [(each["role"], each["content"]) for each in chat_server.asked[1]["messages"]]
    turns = [("system", "You write programs."), ("user", "Write a reward."), ("assistant", first.text)]
    assert sent == [*turns, ("user", "Make it denser.")]
    assert [body["temperature"] for body in chat_server.asked] == [1.0, 0.25]
    assert chat_server.asked[0]["max_tokens"] == 4096 and "response_format" not in chat_server.asked[0]


def test_a_form_is_asked_for_and_read_strictly(opened, chat_server):
    chat_server.answer = lambda *_: GOOD
    found = opened().sample(NAMED)[0]
    assert (found.status, dict(found.content)) == ("ok", {"names": ["near"], "code": "x = 1\n"})
    assert chat_server.asked[0]["response_format"]["json_schema"]["schema"]["required"] == ["names", "code"]
    assert "Answer with one JSON object of this schema" in chat_server.asked[0]["messages"][0]["content"]


def test_a_seed_of_the_settings_is_another_one_for_each_sample(opened, chat_server):
    opened(extra={"seed": 7}, concurrency=1).sample(WRITE, 3)
    assert [body["seed"] for body in chat_server.asked] == [7, 8, 9]


@pytest.mark.parametrize(
    "roles", [(), ("system",), ("assistant",), ("user", "user"), ("user", "system", "user"), ("user", "assistant")]
)
def test_what_is_no_conversation_is_refused(roles):
    with pytest.raises(InvalidSetting, match=r"These messages are not a conversation(.*\n)*.*the last one user"):
        Question.of([Message(role, "words") for role in roles], purpose="write")


def test_a_prompt_has_a_purpose_and_a_temperature():
    with pytest.raises(InvalidSetting, match="a purpose and a temperature"):
        prompt("Write.", purpose="")
    with pytest.raises(InvalidSetting, match="0 to 2"):
        replace(WRITE, temperature=float("nan"))


# ---------------------------------------------------------------------------------------------- samples
def test_samples_are_different_and_each_is_paid_for_once(opened, chat_server):
    model = opened()
    replies = model.sample(WRITE, 4)
    assert len({reply.text for reply in replies}) == 4 and [reply.sample for reply in replies] == [0, 1, 2, 3]
    assert model.sample(WRITE, 4) == replies and len(chat_server.asked) == 4
    more = model.sample(WRITE, 4, first=2)
    assert more[:2] == replies[2:] and len({reply.text for reply in [*replies, *more]}) == 6
    assert len(chat_server.asked) == 6
    assert model.spent() == {"llm/replies": 6, "llm/paid": 6, "llm/tokens": 660, "llm/cost": 0}


def test_another_run_takes_them_out_of_the_cache(opened, chat_server):
    replies = opened().sample(WRITE, 3)
    other = opened(Path("other/calls.jsonl"), terms={"prompt_price": 10.0})
    assert [reply.text for reply in other.sample(WRITE, 3)] == [reply.text for reply in replies]
    assert len(chat_server.asked) == 3 and {reply.origin for reply in other.sample(WRITE, 3)} == {"cache"}
    assert other.spent()["llm/paid"] == 0 == other.spent()["llm/cost"]


def test_samples_depend_on_request_but_not_on_purpose(opened, chat_server):
    model = opened()
    model.sample(WRITE)
    model.sample(replace(WRITE, purpose="again"))
    assert len(chat_server.asked) == 1
    for changed in (replace(WRITE, temperature=0.5), WRITE.then("x", "y"), prompt("Write a reward.", purpose="write")):
        model.sample(changed)
    model.close()
    opened(max_tokens=99).sample(WRITE)
    assert len(chat_server.asked) == 5


@pytest.mark.parametrize(("n", "first", "temperature"), [(0, 0, 1.0), (1, -1, 1.0), (2, 0, 0.0), (1, 1, 0.0)])
def test_samples_that_would_be_the_same_are_not_paid_for(opened, n, first, temperature):
    with pytest.raises(InvalidSetting, match=r"This number of samples is not possible.\n.*\n.*because all are the same"):
        opened(None).sample(replace(WRITE, temperature=temperature), n, first)


def test_several_prompts_are_under_way_together(opened, chat_server):
    chat_server.answer = lambda words, pictures: time.sleep(0.05) or f"about {words[0]}"
    asked = [prompt(f"caption {number}", purpose="annotate", temperature=0.0) for number in range(6)]
    replies = opened(concurrency=3).ask([*asked, asked[0]])
    assert [reply.text for reply in replies] == [f"about caption {number}" for number in (0, 1, 2, 3, 4, 5, 0)]
    assert chat_server.most_under_way == 3 and len(chat_server.asked) == 6


def test_whoever_only_looks_does_not_wait(opened, chat_server):
    is_asked, may_go = threading.Event(), threading.Event()
    chat_server.answer = lambda words, pictures: is_asked.set() or (may_go.wait(20) and "words")
    model = opened()
    asking = threading.Thread(target=model.sample, args=(WRITE,))
    asking.start()
    assert is_asked.wait(20)
    assert model.spent()["llm/replies"] == 0 and model.report() == "nothing was asked", "while a reply is under way"
    may_go.set()
    asking.join(20)
    assert model.spent()["llm/replies"] == 1


def test_threads_may_share_it(opened, chat_server):
    model, found = opened(), []
    threads = [threading.Thread(target=lambda: found.append(model.sample(WRITE, 3))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(chat_server.asked) == 3 and found == [found[0]] * 4


# ---------------------------------------------------------------------------------------------- every end has a status
@pytest.mark.parametrize(
    ("reply", "status", "text"),
    [
        (("say", PROGRAM), "ok", PROGRAM),
        (("say", "Just prose."), "ok", "Just prose."),
        (("say", "half a \ud800 surrogate"), "ok", "half a ? surrogate"),
        (("say", "<think>I could ```x```</think>\n" + PROGRAM), "ok", PROGRAM),
        (("say", "I could.\n</think>\n" + PROGRAM), "ok", PROGRAM),
        (("say", "I'm sorry, but I can't help with that."), "refused", "I'm sorry, but I can't help with that."),
        (("say", "I can't tell more than this:\n" + PROGRAM), "ok", "I can't tell more than this:\n" + PROGRAM),
        (("say", PROGRAM[:60], "length"), "cut", PROGRAM[:60]),
        (("say", PROGRAM, "content_filter"), "refused", PROGRAM),
        (("fail", 400, "blocked", "content_filter"), "refused", "HTTP 400: blocked"),
        (("say", ""), "garbage", ""),
        (("say", None), "garbage", ""),
        (("say", "<think>only thoughts</think>"), "garbage", ""),
        (("send", b'{"choices": []}'), "garbage", ""),
        (("send", b'{"choices": [{"message": {"content": 7}}]}'), "garbage", ""),
        (("say", PROGRAM, "stop", False), "ok", PROGRAM),
    ],
)
def test_every_end_of_a_call_has_one_status(opened, chat_server, reply, status, text):
    name, *arguments = reply
    if len(arguments) == 3 and name == "say":
        chat_server.script.append(chat_server.say(*arguments[:2], usage=arguments[2]))
    else:
        chat_server.script.append(getattr(chat_server, name)(*arguments))
    model = opened()
    found = model.sample(WRITE)[0]
    assert (found.status, found.text) == (status, text) and bool(found.content) == (status == "ok")
    assert model.sample(WRITE)[0] == found and len(chat_server.asked) == 1, "it was paid for and is kept"


@pytest.mark.parametrize(
    "words", ["prose", f"Sure: {GOOD}", "[1]", '{"names": ["near"]}', '{"names": [NaN], "code": ""}', GOOD + GOOD]
)
def test_what_breaks_the_form_is_shown_to_the_model_once(opened, chat_server, words):
    chat_server.script.extend([chat_server.say(words), chat_server.say(GOOD)])
    model = opened()
    found = model.sample(NAMED)[0]
    assert (found.status, found.sample, found.content["names"]) == ("ok", 0, ["near"])
    roles = [(each["role"], each["content"]) for each in chat_server.asked[1]["messages"]]
    assert roles[1] == ("assistant", words) and roles[2][1].startswith("This cannot be used: ")
    assert [(each["purpose"], each["status"]) for each in records()] == [("factors", "garbage"), ("factors repair", "ok")]
    assert model.sample(NAMED)[0] == found and len(chat_server.asked) == 2


@pytest.mark.parametrize(("words", "finish", "status"), [("It begins", "length", "cut"), ("No names.", "stop", "garbage")])
def test_model_without_usable_replies_is_not_asked_on(opened, chat_server, words, finish, status):
    chat_server.script.extend([chat_server.say(words, finish)] * 99)
    model = opened(terms={"useless": 4})
    with pytest.raises(JudgeUnavailable, match=rf"4 answers in a row were of no use: 4 {status}.\n.*{words}"):
        for number in range(9):
            model.ask([prompt(f"caption {number}", purpose="annotate", form=Factors)])
    assert len(chat_server.asked) == 4 * (2 if status == "garbage" else 1)
    assert model.statuses[status] >= 4


def test_each_request_is_told_while_it_is_under_way(opened, chat_server):
    model, told = opened(), []
    model.watch = told.append
    chat_server.answer = lambda words, pictures: told.append("asked") or PROGRAM
    model.sample(WRITE)
    model.sample(WRITE)
    assert told == ["endpoint judge: 1 x write under way", "asked", "endpoint judge: write: ok after 0 s, 10 tokens"]


def test_garbage_twice_is_garbage(opened, chat_server):
    chat_server.answer = lambda *_: "x" * 20_000
    found = opened().sample(NAMED)[0]
    assert (found.status, dict(found.content)) == ("garbage", {}) and len(chat_server.asked) == 2
    assert len(chat_server.asked[1]["messages"][1]["content"]) == 8000


@pytest.mark.parametrize(
    ("fault", "status", "attempts"),
    [("cut", "unreachable", 3), ("500", "unreachable", 3), ("429", "too many requests", 3), ("400", "not accepted", 1)],
)
def test_absent_reply_is_missing_and_retried_later(opened, chat_server, fault, status, attempts):
    model = opened(concurrency=1)
    model.sample(WRITE)
    script = chat_server.cut() if fault == "cut" else chat_server.fail(int(fault), "no such luck")
    chat_server.script.extend([script] * attempts)
    replies = model.sample(WRITE, 3)
    assert [reply.status for reply in replies] == ["ok", status, "ok"] and not replies[1].content
    assert fault == "cut" or "no such luck" in replies[1].text
    logged = records()
    assert [(each["status"], each["attempts"]) for each in logged[1:]] == [(status, attempts), ("ok", 1)]
    assert model.sample(WRITE, 3)[1].status == "ok" and len(chat_server.asked) == 3 + attempts


@pytest.mark.real_time
def test_a_slow_server_is_given_up_in_time(opened, chat_server):
    model = opened(timeout_s=0.08, retries=1)
    model.sample(WRITE)
    chat_server.script.extend([chat_server.hang(), chat_server.drip()])
    started = time.monotonic()
    assert model.sample(WRITE, 2)[1].status == "unreachable" and time.monotonic() - started < 4
    assert records()[1]["seconds"] >= 0.16 and records()[1]["attempts"] == 2


def test_a_rate_limit_is_waited_for(opened, chat_server):
    chat_server.script.append(chat_server.fail(429, Retry_After="0.1"))
    assert opened().sample(WRITE)[0].status == "ok"
    assert records()[0]["attempts"] == 2 and records()[0]["seconds"] >= 0.1


def test_a_server_that_stays_away_ends_the_asking(opened, chat_server):
    model = opened(concurrency=1, retries=0, terms={"unanswered": 3})
    model.sample(WRITE)
    chat_server.script.extend([chat_server.fail(500)] * 9)
    with pytest.raises(JudgeUnavailable, match="3 questions in a row had no answer"):
        model.sample(WRITE, 9)
    assert len(chat_server.asked) == 4
    chat_server.script.clear()
    assert {reply.status for reply in model.sample(WRITE, 9)} == {"ok"}


@pytest.mark.parametrize(
    ("settings", "script", "message"),
    [
        ({"key_variable": "NO_SUCH_KEY"}, None, "NO_SUCH_KEY is empty or not set"),
        ({"key_variable": ""}, None, r"rejects the key.\n.*401"),
        ({"model": "jugde"}, None, "does not have this model"),
        ({}, (429, "no money", "insufficient_quota"), "the account is empty"),
        ({}, (400, "context length exceeded"), r"has not answered even once.\n.*not accepted.*\n.*context length exceeded"),
        ({}, (500, "on fire"), r"has not answered even once.\n.*unreachable: HTTP 500: on fire"),
        ({"base_url": "http://127.0.0.1:9/v1"}, None, r"has not answered even once.\n.*unreachable"),
    ],
)
def test_a_wrong_set_up_is_one_error_at_the_start(opened, chat_server, settings, script, message):
    chat_server.script.extend([chat_server.fail(*script)] * 9 if script else [])
    with pytest.raises(JudgeUnavailable, match=message) as error:
        opened(**settings).sample(WRITE)
    assert KEY not in str(error.value) and len(chat_server.asked) <= 3


def test_what_is_under_way_is_kept_when_the_key_is_withdrawn(opened, chat_server):
    def late(handler):
        time.sleep(0.15)
        handler.complete(PROGRAM)

    model = opened(concurrency=3)
    model.sample(replace(WRITE, temperature=0.5))
    chat_server.script.extend([late, late, chat_server.fail(403, "no more")])
    with pytest.raises(JudgeUnavailable, match=r"does not allow this.\n.*no more"):
        model.sample(WRITE, 9)
    assert [each["raw"] for each in records()[1:]] == [PROGRAM] * 2 and len(chat_server.asked) == 4
    model.sample(WRITE, 9)
    assert len(chat_server.asked) == 4 + 7, "the same command goes on"


def test_another_model_under_the_same_name_is_refused(opened, chat_server):
    model = opened()
    model.sample(WRITE)
    chat_server.reported = "judge-2026-12-24"
    with pytest.raises(JudgeChanged, match=r"'judge-2026-11-01', 'judge-2026-12-24'(.*\n)*.*mixed_models"):
        model.sample(WRITE, 2)
    model.close()
    mixed = opened(terms={"mixed_models": True})
    assert [reply.model for reply in mixed.sample(WRITE, 2)] == ["judge-2026-11-01", "judge-2026-12-24"]
    assert len(chat_server.asked) == 2, "what the other one said was paid for and is kept"


# ---------------------------------------------------------------------------------------------- log
def test_the_log_has_all_of_a_call(opened, chat_server):
    model = opened(terms={"prompt_price": 10.0, "completion_price": 100.0})
    first = model.sample(WRITE)[0]
    model.sample(replace(NAMED, temperature=0.5))
    one, two = records()[:2]
    assert one["messages"] == [{"role": "system", "text": "You write programs."}, {"role": "user", "text": "Write a reward."}]
    facts = {name: one[name] for name in ("llm", "purpose", "round", "request", "sample", "temperature", "status", "raw")}
    assert facts == {"llm": "endpoint judge", "purpose": "write", "round": 0, "request": WRITE.hash, "sample": 0} | {
        "temperature": 1.0,
        "status": "ok",
        "raw": first.text,
    }
    paid = {name: one[name] for name in ("prompt_tokens", "completion_tokens", "cost", "attempts", "origin", "model")}
    assert paid == {"prompt_tokens": 100, "completion_tokens": 10, "cost": pytest.approx(0.002), "attempts": 1} | {
        "origin": "server",
        "model": "judge-2026-11-01",
    }
    assert 0 <= one["seconds"] < 5 and one["at"].startswith("20") and one["schema"] == {}
    assert two["status"] == "garbage" and two["schema"]["required"] == ["names", "code"] and two["temperature"] == 0.5
    assert model.spent()["llm/cost"] == pytest.approx(0.006) and first.cost == pytest.approx(0.002)


def test_the_account_of_a_run(opened, chat_server):
    model = opened(terms={"prompt_price": 10.0, "completion_price": 100.0})
    assert model.report() == "nothing was asked"
    model.sample(WRITE, 2)
    chat_server.script.append(chat_server.say("cut", "length", usage=False))
    model.sample(WRITE.then("x", "y"))
    lines = model.report().splitlines()
    assert lines[1].split()[:7] == ["write", "2", "3", "3", "200", "20", "0.004"] and lines[1].endswith("2 ok, 1 cut")
    assert lines[2] == "endpoint judge, answered by 'judge-2026-11-01'"
    assert lines[3] == "1 replies came without a count of tokens: their cost is not known"


def test_a_run_goes_on_with_its_log_even_without_a_cache(opened, chat_server, monkeypatch, tmp_path):
    model = opened()
    replies = model.sample(WRITE, 2)
    model.close()
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path / "elsewhere"))
    chat_server.script.append(chat_server.say("third"))
    assert [reply.text for reply in opened().sample(WRITE, 3)] == [*(reply.text for reply in replies), "third"]
    assert len(chat_server.asked) == 3 == len(records())


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_torn_last_line_is_left_out_and_said(opened, chat_server, left):
    """left: bytes of the last line; -1 for all but its end."""
    model = opened()
    replies = model.sample(WRITE, 3)
    model.close()
    *kept, last = LOG.read_bytes().splitlines(keepends=True)
    LOG.write_bytes(b"".join(kept) + last[:left])
    model = opened()
    assert model.sample(WRITE, 3) == replies and len(chat_server.asked) == 3, "what the log lost is in the cache"
    assert len(records()) == 3 and (("was torn" in model.report()) == (left != -1))


@pytest.mark.parametrize("broken", [b"{", b"[]", b"{}", b"", b"\xff\xfe", b'{"llm": 1}'])
def test_a_log_broken_in_the_middle_is_one_error(opened, broken):
    model = opened()
    model.sample(WRITE, 2)
    model.close()
    first, second = LOG.read_bytes().splitlines(keepends=True)
    LOG.write_bytes(first + broken + b"\n" + second)
    for arguments in ({}, {"log": None, "replay": LOG}):
        with pytest.raises(JudgeError, match=r"Line 2 of run/calls.jsonl is not a record of a call."):
            opened(**arguments)


def test_a_log_has_one_writer(opened):
    model = opened()
    with pytest.raises(JudgeError, match=r"Another process writes the log run/calls\.jsonl"):
        opened()
    model.close()
    opened().sample(WRITE)
    with pytest.raises(JudgeError, match="The log is closed"):
        model.sample(WRITE)


def test_a_log_that_cannot_be_written_is_one_error(opened):
    Path("run").write_text("a file")
    with pytest.raises(JudgeError, match=r"The log run/calls\.jsonl cannot be written"):
        opened()


def test_the_key_is_in_no_line_of_the_log(opened, chat_server):
    chat_server.script.append(chat_server.say(f"your key is {KEY}"))
    model = opened()
    found = model.sample(prompt(f"My key is {KEY}.", purpose="write"))[0]
    chat_server.script.append(chat_server.fail(400, KEY))
    assert model.sample(WRITE)[0].status == "not accepted"
    assert found.text == "your key is [key]" and KEY.encode() not in LOG.read_bytes()
    assert "My key is [key]." in LOG.read_text() and chat_server.asked[0]["messages"][0]["content"] == f"My key is {KEY}."


# ---------------------------------------------------------------------------------------------- replay
def experiment(model):
    """Asks as a search does: samples, a repair, a conversation that follows from an answer."""
    replies = model.sample(WRITE, 3)
    replies += model.sample(NAMED)
    best = max(replies[:3], key=lambda reply: reply.text)
    return replies + model.sample(WRITE.then(best.text, f"It reached {len(best.text)}."), 2) + model.ask([WRITE, NAMED])


def test_run_replays_from_log_without_server_or_cache(opened, chat_server, monkeypatch, tmp_path):
    chat_server.script.extend([chat_server.say(f"{number} {PROGRAM}") for number in range(3)])
    chat_server.script.extend([chat_server.say("no JSON"), chat_server.say(GOOD), chat_server.fail(400, "too long")])
    first = experiment(opened(concurrency=1))
    asked = len(chat_server.asked)
    assert [reply.status for reply in first] == ["ok"] * 4 + ["not accepted"] + ["ok"] * 3
    monkeypatch.delenv("TEST_KEY")
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path / "elsewhere"))
    again = Path("again/calls.jsonl")
    model = language_model("", replay=LOG, log=again)
    assert experiment(model) == first and len(chat_server.asked) == asked
    assert model.identity == ("endpoint judge", records()[0]["settings"])
    assert "endpoint judge, replayed from run/calls.jsonl: 7 replies" in model.report() and model.spent()["llm/paid"] == 0
    model.close()
    third = language_model("", replay=again.parent)
    assert experiment(third) == first, "a replayed run can be replayed itself, and its folder named"


def test_request_absent_from_log_names_the_difference(opened, chat_server):
    model = opened()
    model.sample(WRITE, 2)
    model.sample(WRITE.then("x", "It reached 0.5.\nTry again."))
    model.close()
    replayed, asked = opened(None, LOG), len(chat_server.asked)
    changed = prompt("Write a  reward.", purpose="write", system="You write programs.")
    named = replace(WRITE, form=Factors)
    for missing, message in [
        (
            WRITE.then("x", "It reached 0.5.\nTry once more."),
            "message 3 .user., line 2: 'Try once more.', in the log 'Try again.'",
        ),
        (changed, "message 1 .user., line 1: 'Write a  reward.', in the log 'Write a reward.'"),
        (prompt("Write a reward.", purpose="write"), "message 0 is the user's, in the log the system's"),
        (replace(WRITE, temperature=0.5), "temperature 0.5, in the log 1.0"),
        (named, "another form of the answer"),
        (prompt("Compare.", purpose="difference"), "nothing of this purpose; it has write"),
    ]:
        with pytest.raises(NotInLog, match=rf"The log run/calls.jsonl has no reply to prompt .*(.*\n)*.*{message}"):
            replayed.sample(missing)
    with pytest.raises(NotInLog, match=r"for 'write', sample 2.\n.*there with the samples 0, 1"):
        replayed.sample(WRITE, 3)
    assert len(chat_server.asked) == asked


def test_a_replay_is_never_mixed_with_its_log(opened):
    opened().sample(WRITE)
    with pytest.raises(InvalidSetting, match="cannot be replayed into the log that answers it"):
        opened(LOG, LOG)


@pytest.mark.parametrize(("content", "message"), [(None, "cannot be read"), ("", "is empty")])
def test_a_log_that_is_none_cannot_be_replayed(content, message):
    if content is not None:
        Path("log.jsonl").write_text(content)
    with pytest.raises(JudgeError, match=message):
        language_model("endpoint", replay=Path("log.jsonl"))


def test_run_with_changed_settings_replays_if_unambiguous(opened):
    told = []
    for number, settings in enumerate([{}, {"max_tokens": 9}]):
        model = opened(**settings)
        told += model.sample(prompt(f"Write program {number}.", purpose="write"))
        model.close()
    replayed = opened(None, LOG)
    again = [replayed.sample(prompt(f"Write program {number}.", purpose="write"))[0] for number in range(2)]
    assert again == told and replayed.identity[0] == "endpoint judge" and replayed.identity != model.identity
    model = opened()
    model.sample(prompt("Write program 1.", purpose="write"))
    with pytest.raises(JudgeError, match=r"has two replies to one request.\n.*endpoint judge.*'write'"):
        opened(None, LOG)


def test_a_full_disk_is_one_error_and_tears_no_line(opened, monkeypatch):
    model = opened()
    model.sample(WRITE)
    before = LOG.read_bytes()
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(JudgeError, match=r"The log run/calls\.jsonl cannot be written.\n.*No space left"):
            model.sample(WRITE, 2)
    assert LOG.read_bytes() == before


# ---------------------------------------------------------------------------------------------- budget
def limited(**limits):
    return {"terms": {"prompt_price": 10.0, "completion_price": 100.0, **limits}, "max_tokens": 20}


@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_call_is_made_that_could_pass_the_budget(opened, chat_server, concurrency):
    """A reply costs 0.002; the next one could cost a little more."""
    model = opened(concurrency=concurrency, **limited(most_cost=0.0105))
    with pytest.raises(
        BudgetReached, match=r"could pass the budget of this run; \d of the replies.*\n.*cost 0.0.*\n.*cost 0.0105"
    ):
        model.sample(WRITE, 9)
    assert 1 <= len(chat_server.asked) <= 5 and model.spent()["llm/cost"] <= 0.0105
    logged = records()
    assert logged[-1]["status"] == "budget reached" and "budget reached" not in [each["status"] for each in logged[:-1]]
    assert model.report().splitlines()[-1].startswith("ended: The next call could pass the budget of this run")
    model.close()
    asked = len(chat_server.asked)
    more = opened(concurrency=concurrency, **limited(most_cost=1.0))
    assert {reply.status for reply in more.sample(WRITE, 9)} == {"ok"}
    assert len(chat_server.asked) == 9 and asked < 9, "nothing was asked for twice"
    assert more.spent()["llm/cost"] == pytest.approx(0.018)


def test_a_budget_is_one_run_s(opened, chat_server):
    with pytest.raises(BudgetReached):
        opened(**limited(most_cost=0.0045)).sample(WRITE, 4)
    asked = len(chat_server.asked)
    assert asked
    other = opened(Path("other.jsonl"), **limited(most_cost=0.0045))
    assert other.sample(WRITE, asked)[0].origin == "cache" and len(chat_server.asked) == asked
    other.sample(prompt("Another one.", purpose="write"))
    assert len(chat_server.asked) == asked + 1


def test_a_budget_of_tokens_outlives_the_process(opened, chat_server):
    for _ in range(2):
        model = opened(concurrency=1, **limited(most_tokens=300))
        with pytest.raises(BudgetReached, match="tokens 300"):
            model.sample(WRITE, 5)
        model.close()
    assert len(chat_server.asked) <= 2


def test_a_replay_ends_where_the_budget_did(opened):
    model = opened(concurrency=1, **limited(most_tokens=300))
    with pytest.raises(BudgetReached):
        model.sample(WRITE, 5)
    kept = int(model.spent()["llm/paid"])
    model.close()
    replayed = opened(None, LOG)
    assert [reply.status for reply in replayed.sample(WRITE, kept)] == ["ok"] * kept
    with pytest.raises(BudgetReached, match=r"The run that is replayed ended here.\n.*could pass the budget"):
        replayed.sample(WRITE, 5)


def test_budget_needs_counting_server_and_length_limit(opened, chat_server):
    chat_server.script.append(chat_server.say("words", usage=False))
    with pytest.raises(InvalidSetting, match="does not say how many tokens"):
        opened(**limited(most_tokens=9999)).sample(WRITE)
    settings = limited(most_tokens=9999) | {"extra": {"max_tokens": None}}
    with pytest.raises(InvalidSetting, match="A budget needs a longest answer"):
        opened(Path("other.jsonl"), **settings).sample(WRITE, 2)


# ---------------------------------------------------------------------------------------------- which model
def test_a_file_names_a_model(chat_server):
    chat_server.answer = lambda *_: "words"
    settings = f"{{model: judge, base_url: '{chat_server.url}', key_variable: TEST_KEY}}"
    Path("llm.yaml").write_text(f"settings: {settings}\n")
    assert language_model("llm.yaml").sample(WRITE)[0].text == "words"
    assert language_model("llm.yaml", {"max_tokens": 7}).sample(WRITE)[0].text == "words"
    assert [body["max_tokens"] for body in chat_server.asked] == [4096, 7]


@pytest.mark.parametrize(
    ("llm", "settings", "error", "message"),
    [
        ("endpiont", {}, UnknownName, "endpoint"),
        ("endpoint", {}, InvalidSetting, "Which model"),
        ("endpoint", {"modle": "x"}, UnknownName, "model"),
        ("none.yaml", {}, InvalidSetting, "none.yaml cannot be read"),
        ("bad.yaml", {}, InvalidSetting, "bad.yaml is not a language model"),
        ("pack:point-exmaple", {}, UnknownName, "point-example"),
        ("pack:point-example", {"seed": 1}, InvalidSetting, "A pack takes no settings"),
    ],
)
def test_an_unknown_model_or_setting_is_named(llm, settings, error, message):
    Path("bad.yaml").write_text("{model: x}")
    with pytest.raises(error, match=message):
        language_model(llm, settings)


def test_a_judge_that_guesses_is_a_control():
    replies = language_model("chance", {"seed": 1}).sample(WRITE, 5)
    assert len({reply.text for reply in replies}) == 5 and {reply.model for reply in replies} == {"chance"}


# ---------------------------------------------------------------------------------------------- the server itself
def test_openai_client_sends_same_and_handles_same_faults(opened, chat_server):
    """The server of these tests takes OpenAI's own client for what it takes ours, and that client knows its faults."""
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=chat_server.url, api_key=KEY, max_retries=0)
    talk = WRITE.then(PROGRAM, "Make it denser.")
    text = opened(extra={"seed": 3}).sample(talk)[0].text
    sent = chat_server.asked[-1]
    completion = client.chat.completions.create(**sent)
    assert chat_server.asked[-1] == sent and completion.choices[0].message.content.endswith(PROGRAM)
    assert text.endswith(PROGRAM) and (completion.usage.total_tokens, completion.model) == (110, "judge-2026-11-01")
    chat_server.script.append(chat_server.say(GOOD))
    asked = {**sent, "response_format": Factors}
    assert client.chat.completions.parse(**asked).choices[0].message.parsed.names == ["near"]
    chat_server.script.append(chat_server.say(GOOD[:9], "length"))
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(**asked)
    chat_server.script.extend(
        [chat_server.say("no", usage=False), chat_server.say(None, refusal="I won't."), chat_server.fail(500)]
    )
    assert client.chat.completions.create(**sent).usage is None
    assert client.chat.completions.create(**sent).choices[0].message.refusal == "I won't."
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(**sent)
    chat_server.script.append(chat_server.fail(429, Retry_After="0.01"))
    patient = client.with_options(max_retries=1)
    assert patient.chat.completions.create(**sent).choices[0].finish_reason == "stop"
    client.close()
