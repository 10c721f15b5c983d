"""The page in a real browser: what the slider, the keys and the note's button do."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import threading
import time
from dataclasses import replace

import cv2
import numpy as np
import pytest

from robo_datasets.comparison_page.person import PersonRater
from robo_rl.rewards.preferences.raters import Segment

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
PATIENCE = 30.0  # [s] for the page to come to a state

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
]
SHOWN = "[...document.querySelectorAll('.cameras img')].map((image) => Number(image.dataset.step))"


class Browser:
    """Chromium without a window, driven by the DevTools protocol over a pipe: JSON messages that end with a zero byte."""

    def __init__(self, folder):
        to_browser, self._write = _pipe()
        self._read, from_browser = _pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
            "--window-size=1400,1000",
        ]
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'  # where Chromium looks for its pipe
        arguments = ["bash", "-c", command, CHROMIUM, *options, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            arguments, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest, self._number, self._session, self.faults = b"", 0, {}, []
        (target,) = [t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self._call("Runtime.enable")

    def _call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                self._rest += os.read(self._read, 1 << 16) or pytest.fail("the browser ended")
            line, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(line)
            if answer.get("method") == "Runtime.exceptionThrown":
                self.faults.append(answer["params"])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, address):
        self._call("Page.navigate", url=address)

    def value(self, expression):
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression, wanted=True):
        """Waits until an expression has a value."""
        end, found = time.monotonic() + PATIENCE, None
        while time.monotonic() < end:
            if (found := self.value(expression)) == wanted:
                return
            time.sleep(0.05)
        pytest.fail(f"{expression} is {found!r}, not {wanted!r}")

    def key(self, key, **more):
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, **more)

    def picture(self):
        """Returns what the first camera shows, (H, W, 3)."""
        url = self.value("""(async () => {
            const blob = await (await fetch(document.querySelector('.cameras img').src)).blob();
            return new Promise((done) => {
                const reader = new FileReader(); reader.onload = () => done(reader.result); reader.readAsDataURL(blob); });
        })()""")
        content = np.frombuffer(base64.b64decode(url.partition(",")[2]), np.uint8)
        return cv2.imdecode(content, cv2.IMREAD_COLOR)[..., ::-1]

    def close(self):
        with contextlib.suppress(OSError):
            os.close(self._write)  # Chromium ends with its pipe
        self._process.wait(timeout=30)
        os.close(self._read)


def _pipe():
    """Returns the two ends of a pipe, out of the way of the numbers that Chromium wants."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved


@pytest.fixture
def browser(tmp_path):
    found = Browser(tmp_path / "profile")
    yield found
    found.close()
    assert found.faults == []


@pytest.fixture
def shown(filled, serve, browser):
    """The first episode of a dataset on the page."""
    client = serve(filled)
    browser.open(f"{client.server.url}#{filled.entries()[0].identity}")
    browser.until(f"{SHOWN}.join()", "0")
    return filled, browser


def test_slider_and_keys_change_the_picture_and_the_numbers(shown):
    dataset, browser = shown
    episode = dataset.read(dataset.entries()[0])
    pictures = episode.observations["camera_wrist"]
    assert (browser.picture() == pictures[0]).all()
    browser.value("""(() => { const slider = document.querySelector('input[type=range]');
        slider.value = 3; slider.dispatchEvent(new Event('input')); })()""")
    browser.until(f"{SHOWN}.join()", "3")
    assert (browser.picture() == pictures[3]).all() and not (pictures[3] == pictures[0]).all()
    reward = "document.querySelector('.plot .readout b')?.textContent.replace('−', '-')"
    browser.until(f"Math.abs({reward} - ({episode.rewards[3]})) < 1e-3")
    browser.key("ArrowRight")
    browser.until(f"{SHOWN}.join()", "4")
    browser.key("End")
    browser.until(f"{SHOWN}.join()", "5")
    browser.until(reward, "–")  # after the last action there is no reward
    browser.key("Home")
    browser.until(f"{SHOWN}.join()", "0")
    browser.key(" ", text=" ")
    browser.until(f"{SHOWN}.join()", "5")  # it plays to the end
    browser.until("location.hash.split('@')[1]", "5")


def test_what_is_missing_is_said_and_who_acted_is_shown(shown):
    _, browser = shown
    said = "[...document.querySelectorAll('.plot')].find((p) => p.textContent.includes('labels progress'))?.textContent"
    browser.until(f"{said}.includes('2 of 5 missing')")
    browser.key("ArrowRight")
    browser.until(f"{said}.endsWith('missing')")  # the number under the cursor
    browser.until("document.querySelector('.where').textContent.includes('human')")
    assert "look at <b>this</b>" in browser.value("document.querySelector('.notes').textContent")


def test_a_note_is_written_and_the_list_is_sorted_and_searched(shown):
    dataset, browser = shown
    browser.value("""(() => { document.querySelector('textarea').value = 'from the browser';
        document.querySelector('.note-form button').click(); })()""")
    browser.until("document.querySelectorAll('.notes li').length", 2)
    assert dataset.catalogue.notes(dataset.entries()[0].identity)[1] == "from the browser"
    browser.key("Escape")
    browser.until("document.querySelectorAll('.episodes tbody tr').length", 2)
    first = "Number(document.querySelector('.episodes tbody a').textContent)"
    browser.value("document.querySelectorAll('.episodes th button')[2].click()")  # steps, fewest first
    browser.until(first, 2)
    browser.value("""(() => { const search = document.querySelector('input[type=search]');
        search.value = 'run 7'; search.dispatchEvent(new Event('input')); })()""")
    browser.until(first, 1)
    browser.until("document.querySelector('[role=status]').textContent", "1 of 2 episodes")


def test_a_damaged_episode_is_an_error_in_its_place(filled, serve, browser):
    broken, whole = filled.entries()
    (filled.path / "episodes" / broken.file).write_bytes(b"torn")
    url = serve(filled).server.url
    browser.open(f"{url}#{broken.identity}")
    browser.until("!!document.querySelector('[role=alert]')?.textContent.includes('is torn')")
    browser.key("]")
    browser.until(f"location.hash.startsWith('#{whole.identity}') && {SHOWN}.join() === '0'")


def test_a_hundred_thousand_steps_are_drawn(dataset, make_episode, serve, browser):
    steps = 100_000
    episode = make_episode(0, steps=10)
    spec = dataset.spec
    values = {"joint_position": np.zeros((steps + 1, 3), np.float32), "camera_wrist": np.zeros((steps + 1, 8, 6, 3), np.uint8)}
    flat = np.zeros((steps, 2), np.float32)
    rewards = np.zeros(steps, np.float32)
    rewards[60_000] = 1  # one step among a hundred thousand
    episode = replace(
        episode,
        observations=values,
        actions=flat,
        policy_actions=flat,
        rewards=rewards,
        sources=np.zeros(steps, np.int8),
        timestamps=np.arange(steps + 1) * 0.05,
        reward_terms={},
        spec_fingerprint=spec.fingerprint,
    )
    with dataset.writer() as writer:
        identity = writer.add(episode).identity
    browser.open(f"{serve(dataset).server.url}#{identity}")
    browser.until("!!document.querySelector('.plot canvas')?.getAttribute('aria-label').includes('from 0 to 1')")
    # the peak reaches the upper half of the plot, where nothing else is drawn in its colour
    browser.until("""(() => {
        const canvas = document.querySelector('.plot canvas');
        const ratio = devicePixelRatio;
        const upper = canvas.getContext('2d').getImageData(50 * ratio, 12 * ratio, canvas.width - 60 * ratio, 30 * ratio).data;
        let blue = 0;
        for (let i = 0; i < upper.length; i += 4) blue += upper[i + 2] > upper[i] + 100 && upper[i + 3] > 100;
        return blue > 5; })()""")


def test_no_label_of_an_axis_is_cut(dataset, make_episode, serve, browser):
    rewards = np.asarray([-1e-5, 2e-5, -2e-5, 1e-5, 0], np.float32)
    with dataset.writer() as writer:
        identity = writer.add(replace(make_episode(0), rewards=rewards)).identity
    browser.open(serve(dataset).server.url)
    browser.value("""(() => {
        const plain = CanvasRenderingContext2D.prototype.fillText;
        window.edges = [];
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            if (this.textAlign === 'right') window.edges.push([text, x - this.measureText(text).width]);
            plain.call(this, text, x, y);
        }; })()""")
    browser.value(f"location.hash = '#{identity}'")
    browser.until("window.edges.some(([text]) => text.includes('e−5'))")
    assert browser.value("window.edges.filter(([text, left]) => left < 0)") == []


def test_a_person_compares_with_keys_and_buttons(browser, make_episode):
    rater, episode, found = PersonRater("anna", "wrist", port=0), make_episode(steps=9), []
    pairs = [(Segment(episode, step, step + 3), Segment(episode, step + 2, step + 5)) for step in range(4)]
    asking = threading.Thread(target=lambda: found.extend(rater.compare(*pair) for pair in pairs), daemon=True)
    browser.open(rater.address)
    asking.start()
    for answered, key in enumerate(("ArrowLeft", "ArrowDown", "ArrowUp", None)):
        browser.until("document.body?.dataset.question", str(answered + 1))
        assert "ein Würfel 🧊" in browser.value("document.querySelector('#task').textContent")
        shown = "document.querySelector('#first').src"
        first = browser.value(shown)
        browser.until(f"{shown} === {json.dumps(first)}", False)  # the clip plays
        if key:
            browser.key(key)
        else:
            browser.value("document.querySelector('[data-answer=\"1\"]').click()")
    asking.join(10)
    assert found == [0.0, 0.5, "skip", 1.0]
    rater._page.server.close()
