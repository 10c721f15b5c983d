"""A person compares on a page of this machine: each answer is taken once, durable at once, and from this page alone."""

import json
import re
import threading
import time
from http.client import HTTPConnection

import cv2
import numpy as np
import pytest

from factories import axes, make_dataset, make_spec, picture_spec, random_episode
from robo_app.display import browser
from robo_cli.main import dispatch
from robo_datasets.comparison_page.person import PersonRater
from robo_datasets.dataset import Dataset
from robo_datasets.preference_collection import collect_preferences, draw_questions
from robo_datasets.preferences import PreferenceSet
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.preferences.raters import Segment
from robo_rl.types import Episode

CAMERA = picture_spec("camera_front", (4, 6, 3))
SPEC = make_spec("test/Cell-v0", CAMERA, action=axes("x"))


def episode(seed: int = 0, steps: int = 12) -> Episode:
    return random_episode(SPEC, steps, seed, rewards=np.arange(steps, dtype=np.float32), instruction="pick <b>up</b>")


class Browser:
    """Asks as the page does."""

    def __init__(self, address: str) -> None:
        self.port = int(address.rstrip("/").rsplit(":", 1)[1])
        self.token = re.search(r'robo-token" content="([^"]+)"', self.get("/"))[1]

    def get(self, path: str) -> str:
        return self.send("GET", path)[1]

    def question(self, after: int = 0) -> dict:
        while True:
            found = json.loads(self.get("/api/question"))
            if (found["number"] or 0) > after:
                return found
            time.sleep(0.002)

    def answer(self, number: int, choice: object, **headers) -> tuple[int, str]:
        body = json.dumps({"number": number, "answer": choice})
        own = {"X-Robo-Token": self.token, "Origin": f"http://127.0.0.1:{self.port}"} | headers
        return self.send("POST", "/api/answers", body, own)

    def send(self, method, path, body=None, headers=None) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, text


@pytest.fixture
def rater():
    made = PersonRater(port=0)
    yield made
    made._page.server.close()


def picture(url: str) -> np.ndarray:
    data = np.frombuffer(__import__("base64").b64decode(url.partition("base64,")[2]), np.uint8)
    return cv2.cvtColor(cv2.imdecode(data, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def test_both_clips_are_shown_and_the_answer_comes_back(rater):
    one, found = episode(), []
    browser = Browser(rater.address)
    assert json.loads(browser.get("/api/question"))["number"] is None
    pairs = [(Segment(one, 0, 3), Segment(one, step, step + 3)) for step in (1, 2, 3, 4)]
    asking = threading.Thread(target=lambda: found.extend(rater.compare(*pair) for pair in pairs), daemon=True)
    asking.start()
    for number, choice in enumerate((0, 0.5, 1, "skip"), 1):
        question = browser.question(after=number - 1)
        assert question["instructions"] == ["pick <b>up</b>"] * 2
        for segment, shown in zip(pairs[number - 1], (question["first"], question["second"]), strict=True):
            wanted = one.observations["camera_front"][segment.start + 1 : segment.stop + 1]
            np.testing.assert_array_equal([picture(url) for url in shown], wanted)
        assert browser.answer(number, choice)[0] == 200
        assert browser.answer(number, 0)[0] == 409, "a second answer to the same question"
    asking.join(10)
    assert found == [0.0, 0.5, 1.0, "skip"] and rater.kind == "human"


@pytest.mark.slow
def test_page_says_how_many_comparisons_are_to_come(rater, tmp_path):
    dataset = make_dataset(tmp_path / "data", SPEC, [episode(seed) for seed in range(2)])
    drawn = draw_questions(dataset.entries(), 3, 2, 0)
    asking = threading.Thread(target=collect_preferences, args=(dataset, rater, drawn, 2, "mine"), daemon=True)
    asking.start()
    browser = Browser(rater.address)
    for number in (1, 2, 3):
        question = browser.question(after=number - 1)
        assert (question["number"], question["total"]) == (number, 3)
        browser.answer(number, 0)
    asking.join(10)
    assert "pair ${found.number} of ${found.total}" in browser.get("/page.js")


def test_what_is_no_answer_is_refused(rater):
    browser = Browser(rater.address)
    asking = threading.Thread(target=rater.compare, args=(Segment(episode(), 0, 1), Segment(episode(), 1, 2)), daemon=True)
    asking.start()
    number = browser.question()["number"]
    for choice in (2, "first", None, [0]):
        assert browser.answer(number, choice)[0] == 400
    assert browser.answer(number + 1, 0)[0] == 409 and browser.answer(None, 0)[0] == 409
    assert browser.answer(number, 0, Origin="http://elsewhere.org")[0] == 403
    assert browser.answer(number, 0, **{"X-Robo-Token": "guessed"})[0] == 403
    assert (
        browser.send("POST", "/api/other", "{}", {"X-Robo-Token": browser.token, "Origin": f"http://127.0.0.1:{browser.port}"})[
            0
        ]
        == 404
    )
    assert browser.send("GET", "/api/question", None, {"Host": "elsewhere.org"})[0] == 403
    assert browser.send("GET", "/../pyproject.toml")[0] == 404
    assert browser.answer(number, 1)[0] == 200
    asking.join(10)


def test_a_key_that_is_pressed_twice_is_one_answer(rater):
    """The second answer comes before the one who asked has taken the first."""
    browser = Browser(rater.address)
    rater._page._question = {"number": 1}
    assert [browser.answer(1, choice)[0] for choice in (0, 1)] == [200, 409] and rater._page._choice == 0.0


def test_people_are_told_apart_and_a_taken_port_is_named(rater):
    names = [PersonRater(), PersonRater("anna"), PersonRater("berta"), PersonRater("anna", camera="wrist")]
    assert len({each.identity for each in names}) == 4 and PersonRater("anna").identity[0] == "person anna"
    with pytest.raises(InvalidSetting, match="cannot be used"):
        PersonRater(port=Browser(rater.address).port).address  # noqa: B018


def test_a_person_goes_on_where_she_stopped(tmp_path, monkeypatch, capsys):
    dataset = Dataset.create(tmp_path / "data", SPEC, {})
    with dataset.writer() as writer:
        writer.add(episode())
    monkeypatch.setattr(browser, "has_display", lambda: True)
    answering = []

    def opened(address):
        def work():
            browser = Browser(address)
            for number in range(1, 4):
                browser.question(after=number - 1)
                browser.answer(number, 1)

        answering.append(threading.Thread(target=work, daemon=True))
        answering[-1].start()

    monkeypatch.setattr(browser.webbrowser, "open", opened)
    for pairs in ("3", "6"):
        command = [
            "prefer",
            str(dataset.path),
            "--name",
            "mine",
            "--rater",
            "person",
            "--rater.settings.name",
            "anna",
            "--rater.settings.port",
            "0",
        ]
        assert dispatch([*command, "--pairs", pairs, "--length", "2"]) == 0
        answering[-1].join(10)
    told = capsys.readouterr().out
    assert told.count("3 pairs compared now") == 2 and "compare at http://127.0.0.1:" in told
    found = [*PreferenceSet(dataset, "mine")]
    assert len(found) == 6 and {each.rater.split(":")[0] for each in found} == {"person anna"}
    assert {each.kind for each in found} == {"human"}
