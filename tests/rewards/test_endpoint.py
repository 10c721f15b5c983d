"""A judge behind an endpoint: faults have statuses, the key is seen nowhere, nothing is paid twice or beyond the budget."""

import email.utils
import json
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from robo_rl.errors import BudgetReached, InvalidSetting, JudgeChanged, JudgeError, JudgeUnavailable, MissingExtra, UnknownName
from robo_rl.rewards.chat import endpoint as endpoints
from robo_rl.rewards.chat import transport
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.endpoint import Endpoint
from robo_rl.rewards.chat.models import Terms, chat_model
from robo_rl.rewards.chat.question import Form, Question, data_url
from robo_rl.rewards.chat.transport import retry_after

KEY = "sk-test-5ecret"


class Verdict(Form):
    done: Literal["yes", "no"]


GOOD = '{"done": "yes"}'


def question(number: int = 0) -> Question:
    picture = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
    return Question(("Is it done?", picture), Verdict)


FIRST_WAIT = transport.FIRST_WAIT


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(transport, "FIRST_WAIT", 0.001)


@pytest.fixture
def endpoint(chat_server):
    chat_server.answer = lambda words, pictures: GOOD
    return Endpoint("judge", chat_server.url, "TEST_KEY", retries=2, timeout_s=5, deadline_s=5)


def one(endpoint: Endpoint, number: int = 0):
    return ModelClient(endpoint).ask([question(number)])[0]


# ---------------------------------------------------------------------------------------------- what is sent
def test_words_and_pictures_arrive_as_they_are(endpoint, chat_server):
    assert one(endpoint).content == {"done": "yes"}
    seen = []
    chat_server.answer = lambda words, pictures: seen.append((words, pictures)) or GOOD
    asked = replace(question(1), system="You judge.")
    ModelClient(endpoint).ask([asked])
    words, pictures = seen[0]
    assert words[:2] == ["You judge.", "Is it done?"] and "Answer with one JSON object of this schema" in words[2]
    np.testing.assert_array_equal(pictures[0], asked.parts[1])
    body = chat_server.asked[-1]
    assert body["temperature"] == 0 and body["max_tokens"] == 1024
    assert body["response_format"]["json_schema"]["schema"]["additionalProperties"] is False
    assert chat_server.headers[-1]["authorization"] == f"Bearer {KEY}"


def test_a_server_may_be_told_otherwise(endpoint, chat_server):
    one(replace(endpoint, response_format="none", extra={"max_tokens": None, "max_completion_tokens": 9, "seed": 1}))
    body = chat_server.asked[-1]
    assert (
        "response_format" not in body and "max_tokens" not in body and (body["max_completion_tokens"], body["seed"]) == (9, 1)
    )
    one(replace(endpoint, response_format="json_object"))
    assert chat_server.asked[-1]["response_format"] == {"type": "json_object"}
    free = ModelClient(endpoint).ask([Question(["Say something."])])[0]
    assert free.content == {"text": GOOD} and chat_server.asked[-1]["messages"][-1]["content"] == "Say something."


def test_pictures_are_resized_only_where_asked_to(chat_server, endpoint):
    seen = []
    chat_server.answer = lambda words, pictures: seen.append(pictures[0].shape) or GOOD
    for side in (0, 4, 16):
        one(replace(endpoint, longest_side=side))
    assert seen == [(6, 8, 3), (3, 4, 3), (12, 16, 3)]
    assert data_url(np.zeros((6, 8, 3), np.uint8), 8) == data_url(np.zeros((6, 8, 3), np.uint8))


def test_concurrent_questions_keep_their_order(endpoint, chat_server):
    def answer(words, pictures):
        time.sleep(0.02)
        return json.dumps({"done": "yes" if pictures[0][0, 0, 0] % 2 else "no"})

    chat_server.answer = answer
    asked = [question(number) for number in range(12)]
    answers = ModelClient(replace(endpoint, concurrency=3)).ask(asked)
    assert [each.content["done"] == "yes" for each in answers] == [bool(each.parts[1][0, 0, 0] % 2) for each in asked]
    assert 1 < chat_server.most_under_way <= 3


# ---------------------------------------------------------------------------------------------- faults that may pass
def test_what_passes_is_tried_again(endpoint, chat_server):
    faults = [chat_server.cut, lambda: chat_server.fail(500), lambda: chat_server.fail(503), lambda: chat_server.fail(429)]
    faults += [lambda: chat_server.send(b"<html>bad gateway</html>"), lambda: chat_server.send(b"{", length=90)]
    for number, fault in enumerate(faults):
        chat_server.script.extend([fault(), fault()])
        assert one(endpoint, number).status == "ok"
    assert len(chat_server.asked) == 3 * len(faults)


@pytest.mark.parametrize(
    ("fault", "status"),
    [("cut", "unreachable"), ("500", "unreachable"), ("429", "too many requests"), ("empty", "unreachable")],
)
def test_failed_answer_is_missing_after_bounded_attempts(endpoint, chat_server, fault, status):
    faults = {
        "cut": chat_server.cut(),
        "500": chat_server.fail(500),
        "429": chat_server.fail(429),
        "empty": chat_server.send(b""),
    }
    chat_server.script.extend([faults[fault]] * 9)
    found = one(endpoint)
    assert (found.status, dict(found.content)) == (status, {}) and len(chat_server.asked) == 3
    chat_server.script.clear()
    assert one(endpoint).status == "ok", "no answer is not kept, so that it is asked for again"


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_a_server_that_takes_too_long_is_given_up(endpoint, chat_server, fault):
    chat_server.script.extend([getattr(chat_server, fault)()] * 9)
    assert one(replace(endpoint, timeout_s=0.08, retries=1)).status == "unreachable"
    assert len(chat_server.asked) == 2
    assert one(replace(endpoint, timeout_s=60, deadline_s=0.1, retries=9)).status == "unreachable"
    assert len(chat_server.asked) == 3, "the deadline counts for all attempts"


def test_nobody_listens(endpoint):
    assert one(replace(endpoint, base_url="http://127.0.0.1:9/v1")).status == "unreachable"


def test_a_server_that_stays_away_ends_the_labelling(endpoint, chat_server):
    chat_server.script.extend([chat_server.fail(500)] * 99)
    patient = ModelClient(replace(endpoint, retries=0, concurrency=1, terms=Terms(unanswered=4)))
    assert [each.status for each in patient.ask([question(n) for n in range(3)])] == ["unreachable"] * 3
    with pytest.raises(JudgeUnavailable, match=r"4 questions in a row had no answer.\n.*HTTP 500"):
        patient.ask([question(n) for n in range(3, 9)])
    assert len(chat_server.asked) == 4


def test_faults_between_answers_end_nothing(endpoint, chat_server):
    chat_server.script.extend([chat_server.fail(500), chat_server.say(GOOD)] * 3)
    patient = ModelClient(replace(endpoint, retries=0, concurrency=1, terms=Terms(unanswered=2)))
    assert [each.status for each in patient.ask([question(n) for n in range(6)])] == ["unreachable", "ok"] * 3


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("1e9", 1e9),
        ("inf", float("inf")),
        ("nan", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_in_seconds(header, seconds):
    assert retry_after(header, 1e9) == seconds


def test_retry_after_as_a_date():
    now = 1_800_000_000.0
    assert retry_after(email.utils.formatdate(now + 9, usegmt=True), now) == 9
    assert retry_after(email.utils.formatdate(now - 9, usegmt=True), now) == 0
    assert retry_after("Sun, 99 Nov 2026 08:49:37 GMT", now) is None


@pytest.mark.parametrize("after", ["0.15", "99999999", "Fri, 31 Dec 2300 23:59:59 GMT", "inf"])
def test_a_rate_limit_is_waited_for_but_no_longer_than_allowed(endpoint, chat_server, after):
    chat_server.script.append(chat_server.fail(429, Retry_After=after))
    started = time.monotonic()
    assert one(replace(endpoint, longest_wait_s=0.15)).status == "ok"
    assert time.monotonic() - started >= 0.15 and len(chat_server.asked) == 2


@pytest.mark.parametrize("after", [None, "0", "-5", "Fri, 31 Dec 1999 23:59:59 GMT"])
def test_a_wait_of_nothing_is_none_less_than_ours(endpoint, chat_server, monkeypatch, after):
    monkeypatch.setattr(transport, "FIRST_WAIT", 0.1)
    said = {} if after is None else {"Retry_After": after}
    chat_server.script.extend([chat_server.fail(429, **said), chat_server.fail(503, **said)])
    started = time.monotonic()
    assert one(endpoint).status == "ok" and len(chat_server.asked) == 3
    assert time.monotonic() - started >= 1.5 * 0.1, "half of the first wait, and of the second, which is twice as long"
    assert 1.5 * FIRST_WAIT >= 0.75, "so much with the waits of everyday use"


def test_no_wait_goes_beyond_the_deadline(endpoint, chat_server):
    chat_server.script.append(chat_server.fail(429, Retry_After="1000"))
    found = one(replace(endpoint, longest_wait_s=2000, deadline_s=100))
    assert (found.status, len(chat_server.asked)) == ("too many requests", 1)


def test_requests_are_paced(endpoint, chat_server):
    started = time.monotonic()
    ModelClient(replace(endpoint, requests_per_minute=1200)).ask([question(n) for n in range(5)])
    assert time.monotonic() - started >= 4 * 0.05


ERRORS = {
    "openai": {"error": {"message": "engine is overloaded", "code": "overloaded"}},
    "words": {"error": "engine is overloaded"},
    "gateway": {"error": {"message": "engine is overloaded", "code": 503}},
    "in a choice": {"choices": [{"error": {"message": "engine is overloaded", "code": 502}, "message": {"content": ""}}]},
    "beside an answer": {"error": {"message": "engine is overloaded"}, "choices": [{"message": {"content": GOOD}}]},
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_in_a_success_is_an_error(endpoint, chat_server, name):
    chat_server.script.extend([chat_server.send(json.dumps(ERRORS[name]).encode())] * 3)
    found = one(endpoint)
    assert (found.status, found.text) == ("unreachable", "HTTP 200 with an error: engine is overloaded")
    assert len(chat_server.asked) == 3 and one(endpoint).status == "ok", "tried again, and never kept"


def test_an_error_in_a_success_may_be_a_limit_a_refusal_or_final(endpoint, chat_server):
    def error(**facts):
        return chat_server.send(json.dumps({"error": {"message": "no", **facts}}).encode())

    chat_server.script.extend([error(code=429), error(code="content_filter"), error(code=401)])
    quick = replace(endpoint, retries=0)
    assert [one(quick, 0).status, one(quick, 1).status] == ["too many requests", "refused"]
    with pytest.raises(JudgeUnavailable, match="rejects the key"):
        one(quick, 2)


def test_slow_server_is_told_the_setting(endpoint, chat_server):
    chat_server.script.extend([chat_server.hang()] * 2)
    found = one(replace(endpoint, timeout_s=0.1, retries=0))
    assert "no answer within 0.1 s (timeout_s); a slow model needs more" in found.text
    found = one(replace(endpoint, timeout_s=60, deadline_s=0.1, retries=0))
    assert "(deadline_s); a slow model needs more" in found.text


def test_connections_are_used_again(endpoint, chat_server):
    asked = [question(n) for n in range(12)]
    judge = ModelClient(replace(endpoint, concurrency=3))
    for few in (asked[:6], asked[6:7], asked[7:]):
        judge.ask(few)
    assert len(chat_server.asked) == 12 and chat_server.connections <= 3


# ---------------------------------------------------------------------------------------------- faults that do not
@pytest.mark.parametrize(
    ("change", "reply", "message"),
    [
        ({"key_variable": ""}, None, r"rejects the key.\n.*401.*\n.*key_variable"),
        ({"key_variable": "NO_SUCH_KEY"}, None, "NO_SUCH_KEY is empty or not set"),
        ({}, ("fail", 403, "not yours"), "does not allow this"),
        ({}, ("fail", 429, "no money", "insufficient_quota"), "the account is empty"),
        ({"model": "jugde"}, None, "does not have this model"),
        ({}, ("fail", 400, "Images are not supported"), r"does not accept the question.\n.*Images are not supported"),
        ({"extra": {"tempo": 1}}, None, "Unrecognized request argument supplied: tempo"),
        ({}, ("fail", 413), "longest_side"),
        ({}, ("fail", 302), "does not accept the question"),
    ],
)
def test_what_no_later_question_would_change_is_an_error_at_once(endpoint, chat_server, change, reply, message):
    chat_server.script.extend([getattr(chat_server, reply[0])(*reply[1:])] if reply else [])
    with pytest.raises(JudgeUnavailable, match=message) as error:
        one(replace(endpoint, **change))
    assert len(chat_server.asked) <= 1 and KEY not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": ""}, r"Which model(.|\n)*--reward.settings.judge_settings.model NAME(.|\n)*judge chance"),
        ({"key_variable": KEY}, "never the key itself"),
        ({"base_url": "localhost:8000"}, "not an address"),
        ({"base_url": f"http://user:{KEY}@127.0.0.1/v1"}, "more than an address"),
        ({"base_url": f"https://x.org/v1?key={KEY}"}, "more than an address"),
        ({"base_url": "http://example.org/v1"}, "for everybody to read"),
        ({"concurrency": 0}, "1 or more"),
        ({"deadline_s": float("nan")}, "above 0"),
        ({"terms": {"most_cost": 1}}, "only with prices"),
        ({"terms": {"unanswered": 0}}, "1 or more"),
        ({"terms": {"useless": 0}}, "1 or more"),
    ],
)
def test_a_wrong_setting_is_named_and_no_secret_shown(settings, message):
    with pytest.raises(InvalidSetting, match=message) as error:
        chat_model("endpoint", {"model": "judge", "key_variable": "TEST_KEY", **settings})
    assert KEY not in str(error.value)


def test_an_unknown_judge_or_setting_is_named():
    with pytest.raises(UnknownName, match="endpoint"):
        chat_model("endpiont", {})
    with pytest.raises(UnknownName, match="base_url"):
        chat_model("endpoint", {"model": "x", "base_ulr": "y"})


# ---------------------------------------------------------------------------------------------- what is no answer
GARBAGE = {
    "prose": "The task is done: yes.",
    "json in prose": f"Sure! Here it is: {GOOD} Have a nice day.",
    "two objects": GOOD + GOOD,
    "a list": '["yes"]',
    "wrong word": '{"done": "maybe"}',
    "wrong type": '{"done": true}',
    "more fields": '{"done": "yes", "sure": 1}',
    "no field": "{}",
    "twice": '{"done": "yes", "done": "no"}',
    "other language": "Erledigt: ja",
    "deep": "[" * 100_000,
    "control signs": '{"done": "yes\x00"}',
    "half a surrogate": '{"done": "\\ud800"}',
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_missing_after_one_repair(endpoint, chat_server, name):
    words = GARBAGE[name]
    chat_server.answer = lambda *_: words
    found = one(endpoint)
    assert (found.status, dict(found.content), found.text) == ("garbage", {}, words)
    assert len(chat_server.asked) == 2 and "This cannot be used:" in str(chat_server.asked[1])
    again = one(endpoint)
    assert (again, len(chat_server.asked)) == (found, 2), "it is an answer, too: it was paid for and is kept"


def test_a_repaired_answer_is_an_answer(endpoint, chat_server):
    chat_server.script.append(chat_server.say('{"done": "maybe"}'))
    assert one(endpoint).content == {"done": "yes"}
    shown = chat_server.asked[1]["messages"][0]["content"][2]["text"]
    assert '{"done": "maybe"}' in shown and "done: Input should be 'yes' or 'no'" in shown
    assert one(endpoint).content == {"done": "yes"} and len(chat_server.asked) == 2


@pytest.mark.parametrize("words", [f"```json\n{GOOD}\n```", f"```\n{GOOD}\n```\n", f"\n {GOOD} "])
def test_a_fence_around_the_whole_answer_is_none_of_it(endpoint, chat_server, words):
    chat_server.script.append(chat_server.say(words))
    assert one(endpoint).content == {"done": "yes"} and len(chat_server.asked) == 1


@pytest.mark.parametrize(
    ("reply", "status", "asked"),
    [
        (("say", GOOD, "length"), "cut", 1),
        (("say", GOOD, "content_filter"), "refused", 1),
        (("say", None, "stop", "I do not look at that."), "refused", 1),
        (("say", "I'm sorry, but I cannot help with that."), "refused", 1),
        (("fail", 400, "blocked", "content_filter"), "refused", 1),
        (("say", ""), "garbage", 1),
        (("say", None), "garbage", 1),
        (("send", b'{"choices": []}'), "garbage", 1),
        (("send", b'{"choices": [{"message": null}]}'), "garbage", 1),
        (("send", b" " * 2_000_000), "garbage", 1),
    ],
)
def test_every_other_end_has_its_status(endpoint, chat_server, reply, status, asked):
    (name, *arguments) = reply
    if name == "say" and len(arguments) == 3:
        chat_server.script.append(chat_server.say(*arguments[:2], refusal=arguments[2]))
    else:
        chat_server.script.append(getattr(chat_server, name)(*arguments))
    found = one(endpoint)
    assert (found.status, dict(found.content), len(chat_server.asked)) == (status, {}, asked)
    assert (one(endpoint).status, len(chat_server.asked)) == (status, asked), "kept"


@pytest.mark.parametrize(
    ("words", "finish", "status", "advice"),
    [
        (GOOD, "length", "cut", "max_tokens = 77: allow more"),
        ("It is done.", "stop", "garbage", "look at an answer"),
        ("", "stop", "garbage", "look at an answer"),
        ("I'm sorry, no.", "stop", "refused", "other words for the task"),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 3])
def test_model_without_usable_answers_is_not_asked_on(endpoint, chat_server, words, finish, status, advice, concurrency):
    chat_server.script.extend([chat_server.say(words, finish)] * 200)
    terms = Terms(useless=4)
    judge = ModelClient(replace(endpoint, max_tokens=77, concurrency=concurrency, terms=terms))
    judge.ask([question(n) for n in range(2)])
    with pytest.raises(JudgeUnavailable, match=rf"[456] answers in a row were of no use: \d {status}(.*\n)*.*{advice}"):
        judge.ask([question(n) for n in range(2, 50)])
    repairs = 2 if status == "garbage" and words else 1
    assert 4 * repairs <= len(chat_server.asked) <= (4 + concurrency) * repairs, "those under way are finished"


def test_useless_answers_between_usable_ones_end_nothing(endpoint, chat_server):
    chat_server.script.extend([chat_server.say(GOOD, "length"), chat_server.say("no"), chat_server.say(GOOD)] * 4)
    patient = ModelClient(replace(endpoint, concurrency=1, terms=Terms(useless=2)))
    assert [each.status for each in patient.ask([question(n) for n in range(8)])] == ["cut", "ok"] * 4


def test_a_model_that_needs_each_repair_is_asked_on(endpoint, chat_server):
    chat_server.answer = lambda words, pictures: GOOD if "This cannot be used" in words[-2] + words[-1] else "It is done."
    judge = ModelClient(replace(endpoint, concurrency=3, terms=Terms(useless=2)))
    assert [each.status for each in judge.ask([question(n) for n in range(9)])] == ["ok"] * 9
    assert len(chat_server.asked) == 18 and dict(judge.statuses) == {"ok": 9}


def test_an_answer_in_parts_is_put_together(endpoint, chat_server):
    chat_server.script.append(chat_server.say([{"type": "text", "text": '{"done":'}, {"type": "text", "text": ' "no"}'}]))
    assert one(endpoint).content == {"done": "no"}


# ---------------------------------------------------------------------------------------------- cache, budget, names
def test_answers_are_replayed_without_server_and_key(endpoint, chat_server, monkeypatch):
    asked = [question(n) for n in range(4)]
    before = ModelClient(endpoint).ask([*asked, asked[0]])
    assert len(chat_server.asked) == 4, "the same question twice is asked once"
    monkeypatch.delenv("TEST_KEY")
    replayed = ModelClient(endpoint)
    assert replayed.ask([*asked, asked[0]]) == before and len(chat_server.asked) == 4
    assert replayed.spent() == {"judge/asked": 0, "judge/kept": 4, "judge/tokens": 440, "judge/cost": 0}


def test_another_question_or_another_setting_is_another_answer(endpoint, chat_server):
    one(endpoint)
    one(replace(endpoint, timeout_s=4, concurrency=1, terms=Terms(most_tokens=1000)))
    assert len(chat_server.asked) == 1
    one(replace(endpoint, temperature=0.5))

    class Verdict(Form):
        done: Literal["yes", "no", "unsure"]

    for other in (
        replace(question(), system="x"),
        replace(question(), form=Verdict),
        replace(question(), parts=question().parts[::-1]),
    ):
        ModelClient(endpoint).ask([other])
    assert len(chat_server.asked) == 5


@pytest.mark.parametrize(
    "change", ['raw = \'{"done": "no"}\'', "raw = CAST(x'7b80' AS TEXT)", "status = 'cut'", "model = x'00'"]
)
def test_a_damaged_answer_is_dropped_and_asked_for_again(endpoint, chat_server, tmp_path, change):
    one(endpoint)
    with sqlite3.connect(tmp_path / "cache/answers/answers.sqlite") as connection:
        connection.execute(f"UPDATE answers SET {change}")
    connection.close()
    assert one(endpoint).content == {"done": "yes"} and len(chat_server.asked) == 2


def test_a_broken_file_is_one_error(endpoint, tmp_path):
    one(endpoint)
    for path in (tmp_path / "cache/answers").iterdir():
        path.write_bytes(b"something else" * 1000)
    with pytest.raises(JudgeError, match=r"answers.sqlite cannot be used.\n(.*\n)*.*moved away"):
        one(endpoint)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_budget_pauses_and_a_larger_one_goes_on(endpoint, chat_server, concurrency):
    asked = [question(n) for n in range(10)]
    terms = Terms(prompt_price=10, completion_price=100, most_cost=0.006)  # 0.002 for each answer
    limited = replace(endpoint, concurrency=concurrency, terms=terms)
    for _ in range(2):
        with pytest.raises(
            BudgetReached, match=r"The budget is spent, and \d of the questions.*\n.*tokens, cost 0.0.*\n.*cost 0.006"
        ):
            ModelClient(limited).ask(asked)
    spent = len(chat_server.asked)
    assert 3 <= spent < 3 + concurrency, "what is under way is finished, and kept"
    more = ModelClient(replace(limited, terms=replace(terms, most_cost=1.0)))
    assert all(each.status == "ok" for each in more.ask(asked)) and len(chat_server.asked) == 10
    assert more.spent()["judge/cost"] == pytest.approx(0.02)


def test_a_budget_of_tokens(endpoint, chat_server):
    with pytest.raises(BudgetReached, match="tokens 200"):
        ModelClient(replace(endpoint, concurrency=1, terms=Terms(most_tokens=200))).ask([question(n) for n in range(5)])
    assert len(chat_server.asked) == 2


def test_a_budget_needs_a_server_that_counts(endpoint, chat_server):
    chat_server.script.append(chat_server.say(GOOD, usage=False))
    with pytest.raises(InvalidSetting, match="does not say how many tokens"):
        one(replace(endpoint, terms=Terms(most_tokens=200)))


def test_another_model_under_the_same_name_is_refused(endpoint, chat_server):
    assert one(endpoint).model == "judge-2026-11-01"
    chat_server.reported = "judge-2026-12-24"
    for number in (1, 1, 0):
        with pytest.raises(JudgeChanged, match=r"'judge-2026-11-01', 'judge-2026-12-24'(.*\n)*.*mixed_models"):
            one(endpoint, number)
    assert len(chat_server.asked) == 2, "what the other one said was paid for and is kept"
    mixed = replace(endpoint, terms=Terms(mixed_models=True))
    assert [one(mixed, number).model for number in (0, 1)] == ["judge-2026-11-01", "judge-2026-12-24"]
    assert len(chat_server.asked) == 2


def test_other_weights_under_one_name_are_told(endpoint, chat_server):
    def reply(fingerprint):
        found = {"model": "m", "choices": [{"message": {"content": GOOD}}], "system_fingerprint": fingerprint}
        return chat_server.send(json.dumps(found).encode())

    chat_server.script.extend([reply("fp_1"), reply("fp_1"), reply("fp_2")])
    judge = ModelClient(endpoint)
    judge.ask([question(0)])
    judge.ask([question(1)])
    assert "answered by 'm, system_fingerprint fp_1';" in judge.report()
    judge.ask([question(2)])
    told = judge.report()
    assert "fp_1" in told and "fp_2" in told and "the model or its system has changed" in told


# ---------------------------------------------------------------------------------------------- the key
def test_the_key_is_nowhere(endpoint, chat_server, tmp_path):
    chat_server.script.extend(
        [chat_server.say(f"your key is {KEY}", model=KEY), chat_server.say(f'{{"done": "{KEY}"}}', model=KEY)]
    )
    found = [one(endpoint, 0)]
    mixed = replace(endpoint, terms=Terms(mixed_models=True), retries=0)
    for number, reply in enumerate(
        [chat_server.fail(500, KEY), chat_server.fail(400, KEY, "content_filter"), chat_server.say(KEY, "content_filter")], 1
    ):
        chat_server.script.append(reply)
        found.append(one(mixed, number))
    chat_server.script.append(chat_server.fail(400, f"wrong {KEY}"))
    with pytest.raises(JudgeUnavailable, match=r"wrong \[key\]") as error:
        one(mixed, 9)
    assert KEY not in repr(found) + repr(endpoint) + str(error.value) + repr(ModelClient(endpoint).__dict__)
    assert "[key]" in repr(found)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not [path for path in files if KEY.encode() in path.read_bytes()]


# ---------------------------------------------------------------------------------------------- the server itself
def test_openais_own_client_takes_the_server_for_a_real_one(chat_server):
    """The server of these tests speaks the protocol: the client of OpenAI accepts its answers and knows its errors."""
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=chat_server.url, api_key=KEY, max_retries=1)
    chat_server.answer = lambda words, pictures: GOOD
    body = Endpoint("judge", chat_server.url, "TEST_KEY").request(question())
    completion = client.chat.completions.create(**body)
    assert completion.choices[0].message.content == GOOD and completion.usage.total_tokens == 110
    parsed = client.chat.completions.parse(**{**body, "response_format": Verdict})
    assert parsed.choices[0].message.parsed == Verdict(done="yes")
    assert [model.id for model in client.models.list()] == ["judge"]
    chat_server.script.append(chat_server.fail(429, Retry_After="0.1"))
    assert client.chat.completions.create(**body).choices[0].finish_reason == "stop"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(**{**body, "model": "other"})
    with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
        openai.OpenAI(base_url=chat_server.url, api_key="sk-wrong").chat.completions.create(**body)
    chat_server.script.extend([chat_server.cut()] * 2)
    with pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(**body)
    client.close()


@pytest.mark.slow
def test_the_client_is_imported_by_the_first_question(endpoint, monkeypatch):
    """It takes half a second; a question with a kept answer does without it."""
    code = (
        "import sys; from robo_rl.rewards.chat.client import ModelClient; from robo_rl.rewards.chat.endpoint import Endpoint\n"
    )
    code += "ModelClient(Endpoint('m')).has_answered; assert not {'openai', 'httpx2'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert one(endpoint).status == "ok"

    def missing(name):
        raise ModuleNotFoundError("no", name="openai")

    monkeypatch.setattr(endpoints, "import_module", missing)
    assert one(replace(endpoint)).status == "ok", "kept"
    with pytest.raises(MissingExtra, match=r"needs the package 'openai'(.|\n)*robo-rl\[llm\]"):
        one(replace(endpoint), 1)


def test_the_wrapper_finds_judges_by_name(chat_server):
    assert ModelClient(chat_model("chance", {"seed": 1})).ask([question()])[0].content["done"] in ("yes", "no")
    assert ModelClient(chat_model("chance", {"missing": 1})).ask([question()])[0].status == "refused"
