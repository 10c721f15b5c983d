"""The console's page in a headless Chromium, if that and Playwright are installed (CONTRIBUTING.md says how)."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

playwright = pytest.importorskip("playwright.sync_api")

from robo_real.console.human import HoldPolicy  # noqa: E402
from robo_real.console.operator import operator_at  # noqa: E402
from robo_real.console.operator_env import HOLDS, READY  # noqa: E402
from robo_real.console.robot_console import RobotConsole  # noqa: E402
from robo_rl.environments.make import make_environment  # noqa: E402
from robo_rl.rollout.episode import Rollout  # noqa: E402

DESKTOP, TABLET = {"width": 1280, "height": 800}, {"width": 820, "height": 1180}
PHONE = {"width": 390, "height": 844}


@contextmanager
def browser():
    with playwright.sync_playwright() as found:
        file = os.environ.get("ROBO_RL_CHROMIUM") or shutil.which("chromium") or found.chromium.executable_path
        if not Path(file).exists():
            pytest.skip("there is no Chromium")
        opened = found.chromium.launch(executable_path=file, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def console(serve, unhurried):
    server = serve(unhurried, cameras=("front",), image_size=64)
    found = RobotConsole(server.url)
    found.server_of_robot = server
    thread = found.start()
    yield found
    found.close()
    thread.join(20)


def until(page, expression):
    """Waits for something to hold; wait_for_function() evaluates text within the page, whose policy allows none."""
    end = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def opened(window, url, size=64):
    page = window.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(url)
    playwright.expect(page.locator("#cameras figcaption").first).to_contain_text("pictures/s", timeout=60_000)
    until(page, f"document.querySelector('#cameras img').naturalWidth === {size}")  # 0 while the next one is loaded
    said(page, "Waiting: nothing moves")
    page.wait_for_selector("#start:enabled")
    return page, errors


def said(page, words):
    playwright.expect(page.locator("#headline")).to_contain_text(words, timeout=60_000)


def test_a_person_takes_over_by_keys_stops_labels_and_comes_back(console):
    with browser() as found:
        page, errors = opened(found.new_context(viewport=DESKTOP), console.server.url)
        page.keyboard.press("Enter")
        said(page, "Nobody acts: the arm holds still")
        page.keyboard.down("Shift")
        page.keyboard.down("w")
        said(page, "You act")
        page.keyboard.press("Space")
        said(page, "Stopped")
        page.keyboard.up("w")
        page.keyboard.up("Shift")
        page.click("#rearm")
        said(page, "Waiting")
        page.keyboard.press("Enter")
        said(page, "Nobody acts: the arm holds still")
        page.keyboard.press("1")
        ended(page, "ended: goal")
        for key, words in (("2", "ended: operator"), ("3", "discarded")):
            page.click("#start")
            said(page, "Nobody acts: the arm holds still")
            page.keyboard.press(key)
            ended(page, words)
        assert "33 % of 3" in page.locator("#facts").inner_text(), "the discarded one counts in no rate"
        page.reload()
        page.wait_for_selector("#start:enabled")
        assert errors == []


def ended(page, words):
    playwright.expect(page.locator("#message")).to_have_text(words, timeout=60_000)


GAMEPAD = """
    window.pad = { connected: true, mapping: "standard", axes: [0, 0, 0, 0],
                   buttons: Array.from({ length: 17 }, () => ({ pressed: false })) };
    window.down = (button, pressed) => { window.pad.buttons[button] = { pressed }; };
    navigator.getGamepads = () => [window.pad];
"""


def test_gamepad_starts_drives_labels_stops_and_is_lost(console):
    arm = console.environment.robot
    with browser() as found:
        context = found.new_context(viewport=DESKTOP)
        context.add_init_script(GAMEPAD)
        page, errors = opened(context, console.server.url)

        def press(button):
            page.evaluate(f"down({button}, true)")
            page.wait_for_timeout(200)
            page.evaluate(f"down({button}, false)")

        for button, words in ((12, "ended: goal"), (13, "ended: operator"), (14, "discarded")):
            press(9)
            said(page, "Nobody acts: the arm holds still")
            press(button)
            ended(page, words)
        press(9)
        said(page, "Nobody acts: the arm holds still")
        before = arm.observe()["end_effector_position"]
        page.evaluate("down(5, true); pad.axes[0] = -1")
        said(page, "You act")
        until(page, "document.querySelector('#facts').innerText.match(/Step\\n*\\s*(\\d+)/)[1] > 30")
        assert arm.observe()["end_effector_position"][1] - before[1] > 0.005, "to the left"
        page.evaluate("window.pad.connected = false")
        said(page, "Stopped")
        page.evaluate("window.pad.connected = true; down(5, false); pad.axes[0] = 0")
        page.click("#rearm")
        page.wait_for_selector("#start:enabled")
        press(9)
        said(page, "Nobody acts: the arm holds still")
        press(1)
        said(page, "Stopped")
        assert errors == []


def test_reopened_socket_keeps_policy_inactive_in_episode(console):
    with browser() as found:
        context, sockets = found.new_context(viewport=DESKTOP), []
        context.route_web_socket("**/socket", lambda socket: sockets.append((socket, socket.connect_to_server())))
        page, _ = opened(context, console.server.url)
        page.keyboard.press("Enter")
        said(page, "Nobody acts: the arm holds still")
        page.keyboard.down("Shift")
        said(page, "You act")
        page.evaluate("""() => {
            window.said = [];
            new MutationObserver(() => said.push(document.querySelector('#headline').textContent))
                .observe(document.querySelector('#headline'), { childList: true, characterData: true, subtree: true }); }""")
        for end in sockets[-1]:
            end.close()
        until(page, "said.includes('Connection lost: the arm holds, then stops')")
        page.keyboard.up("Shift")
        said(page, "Stopped")
        assert len(sockets) > 1 and "Nobody acts: the arm holds still" not in page.evaluate("said")
        page.click("#rearm")
        page.wait_for_selector("#start:enabled")
        page.keyboard.press("Enter")
        said(page, "Nobody acts: the arm holds still")


@pytest.fixture
def training(serve, unhurried):
    """Gives the operator of a training, and what says whether its learner is there."""
    name, there, ends = f"robot:{serve(unhurried, cameras=('front',), image_size=64).url}", threading.Event(), []
    operator = operator_at(name, address="127.0.0.1", port=0)
    environment, person = operator.training_env(make_environment(name))
    environment.may_begin = there.is_set
    operator_state, start, pressed = operator.operator_state, operator.operator_state.start, threading.Event()
    operator_state.start = lambda session: (start(session), pressed.set())
    policy = HoldPolicy(environment.env.environment_spec, operator.hold_action)

    def train():
        with suppress(KeyboardInterrupt):
            while True:
                episode = Rollout(environment, policy, seed=0, supervisor=person)
                while not episode.done:
                    episode.step()
                ends.append(episode.episode())

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    yield SimpleNamespace(server=operator.server, there=there, ends=ends, operator_state=operator_state, pressed=pressed)
    operator.cancel()
    thread.join(20)
    environment.close()
    operator.close()


def test_training_page_shows_task_and_reason_for_waiting(training):
    with browser() as found:
        page, errors = opened(found.new_context(viewport=TABLET), training.server.url)
        playwright.expect(page.locator("#doing")).to_have_text("training", timeout=60_000)
        ended(page, HOLDS)
        page.keyboard.press("Enter")  # nothing begins while the learner is not there, nor later
        assert training.pressed.wait(60)
        while training.operator_state._starts:
            time.sleep(0.01)
        training.there.set()
        ended(page, READY)
        said(page, "Waiting")
        page.keyboard.press("Enter")
        said(page, "The policy acts")
        page.keyboard.down("Shift")
        page.keyboard.down("a")
        said(page, "You act")
        until(page, "Number(document.querySelector('#facts').innerText.match(/By a person\\s*(\\d+)/)?.[1]) > 0")
        page.keyboard.press("1")
        ended(page, "ended: goal")
        assert errors == []
    (episode,) = training.ends
    assert episode.rewards.sum() == 1 and len(episode.interventions) == 1


def test_frozen_page_moves_nothing_when_it_thaws(console, monkeypatch):
    monkeypatch.setattr("robo_real.console.operator_state.HELD_SILENCE", 0.25)
    monkeypatch.setattr("robo_real.console.operator_state.STOP_AFTER", 60.0)
    arm = console.server_of_robot.application.robot.driver
    with browser() as found:
        page, errors = opened(found.new_context(viewport=DESKTOP), console.server.url)
        page.keyboard.press("Enter")
        said(page, "Nobody acts: the arm holds still")
        page.keyboard.down("Shift")
        page.keyboard.down("w")
        said(page, "You act")
        page.evaluate("() => { const end = performance.now() + 900; while (performance.now() < end); }")
        stands = arm.read().position
        said(page, "Lost you: the arm holds until you let go of the switch and press it again")
        page.wait_for_timeout(500)
        assert abs(arm.read().position - stands).max() < 0.002
        page.keyboard.up("Shift")
        page.wait_for_timeout(300)
        said(page, "Lost you")
        page.keyboard.down("Shift")
        said(page, "You act")
        assert errors == []


def test_page_of_a_robot_that_was_rearmed_elsewhere_says_so(console):
    with browser() as found:
        page, errors = opened(found.new_context(viewport=DESKTOP), console.server.url)
        page.keyboard.press("Enter")
        said(page, "Nobody acts: the arm holds still")
        page.keyboard.press("Space")
        said(page, "Stopped by the operator")
        console.environment.unwrapped.robot.rearm("Ada")
        said(page, "The robot was re-armed elsewhere: look, and re-arm here too")
        page.click("#rearm")
        said(page, "Waiting: nothing moves")
        assert errors == []


def test_page_without_focus_holds_and_stops(console):
    with browser() as found:
        page, _ = opened(found.new_context(viewport=DESKTOP), console.server.url)
        page.keyboard.press("Enter")
        said(page, "Nobody acts: the arm holds still")
        page.keyboard.down("Shift")
        said(page, "You act")
        page.evaluate("window.dispatchEvent(new Event('blur'))")
        said(page, "Lost you")
        said(page, "Stopped")


def test_tablet_pad_moves_while_held_and_stop_is_visible(console):
    with browser() as found:
        page, errors = opened(found.new_context(viewport=TABLET, has_touch=True), console.server.url)
        assert page.evaluate("document.documentElement.scrollWidth") <= TABLET["width"]
        page.tap("#start")
        said(page, "Nobody acts: the arm holds still")
        pad = page.locator(".pads button").first
        page.mouse.move(*centre(pad))
        page.mouse.down()
        said(page, "You act")
        page.mouse.up()
        box = page.locator("#stop").bounding_box()
        assert box["y"] + box["height"] <= TABLET["height"] and box["height"] >= 60
        page.tap("#stop")
        said(page, "Stopped")
        assert errors == []


@pytest.mark.parametrize("size", [DESKTOP, TABLET, PHONE], ids=["desktop", "tablet", "phone"])
def test_picture_pads_and_stop_are_seen_together(console, size):
    with browser() as found:
        page, errors = opened(found.new_context(viewport=size, has_touch=size is not DESKTOP), console.server.url)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        bar = page.locator(".stop-bar").bounding_box()
        assert bar["y"] + bar["height"] == pytest.approx(size["height"], abs=1) and bar["height"] >= 60
        seen = [page.locator("#cameras img").first, *page.locator("#pads button").all(), page.locator("#speed")]
        places = [each.bounding_box() for each in seen]
        assert all(place["y"] >= 0 and place["y"] + place["height"] <= bar["y"] for place in places)
        assert page.evaluate("document.querySelector('main').getBoundingClientRect().bottom") <= bar["y"] + 1
        if size is DESKTOP:
            told = page.locator(".told").bounding_box()
            assert told["y"] + told["height"] <= bar["y"]
        facts = page.locator("#facts")
        playwright.expect(facts).to_contain_text(re.compile(r"Force[0-9.]+ NFingers[0-9]+ mmHand x, y, z / mm-?[0-9]+, "))
        playwright.expect(facts).to_contain_text("no episode yet")
        assert errors == []


def centre(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_demo_waits_for_its_operator_and_plays_an_episode(tmp_path):
    command = [sys.executable, "-m", "robo_cli.main", "demo", "hil", "--out", str(tmp_path), "--port", "0", "--no-browser"]
    with browser() as found, subprocess.Popen([*command, "--episodes", "1"], stdout=subprocess.PIPE, text=True) as process:
        try:
            told = next(match for line in process.stdout if (match := re.search(r"the console is at (\S+)", line)))
            page, errors = opened(found.new_context(viewport=DESKTOP), told[1], size=240)
            playwright.expect(page.locator("#doing")).to_contain_text("evaluation", timeout=60_000)
            assert page.locator("#cameras figure").count() == 2
            page.click("#start")
            said(page, "The policy acts")
            assert errors == []
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
