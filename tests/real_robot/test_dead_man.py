"""The dead-man switch: after any silence of page, network, this process or the person only a new press moves the arm."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from console_operators import RIGHT, Hands, Page, begun, start

from robo_real.arm_spec import arm_spec
from robo_real.console.episodes import Tally
from robo_real.console.human import HoldAction
from robo_real.console.operator_state import ASLEEP, HELD_SILENCE, STOP_AFTER, WATCH_SILENCE, DecisionKind
from robo_real.console.session import Console, Session
from robo_real.limits import TWIN

HOLD, PERSON, POLICY, STOP = DecisionKind.HOLD, DecisionKind.PERSON, DecisionKind.POLICY, DecisionKind.STOP
WORD = 0.05
"""[s] between two words of the page"""


def page_sleeps(hands, seconds):
    hands.want(seconds)


def network_is_silent(hands, seconds):
    """Nothing comes, then every word of the meantime at once: each answers a report from before."""
    before = hands.now
    hands.want(seconds)
    for _ in np.arange(0.0, seconds, WORD):
        hands.hold(seen=before)


def network_is_silent_while_the_person_presses_anew(hands, seconds):
    before = hands.now
    hands.want(seconds)
    for held in (True, False, True, True):
        hands.hold(held, seen=before)


def socket_is_reset(hands, seconds):
    hands.operator_state.release(hands)
    hands.want(seconds)
    assert hands.operator_state.acquire(hands)


def process_sleeps(hands, seconds):
    """Words wait in its socket meanwhile; a clock that is read after the first of them shows no silence of the page."""
    before = hands.now
    hands.now += seconds
    hands.hold(seen=before)


def control_loop_wakes_first(hands, seconds):
    before = hands.now
    hands.now += seconds
    assert hands.want() is HOLD
    hands.hold(seen=before)


def keys_are_lost_and_the_gamepad_is_not(hands, seconds):
    hands.operator_state.lose(hands)


SILENCES = [
    (page_sleeps, 0.6),
    (page_sleeps, 0.9),
    (network_is_silent, 0.6),
    (network_is_silent_while_the_person_presses_anew, 0.6),
    (socket_is_reset, 0.5),
    (process_sleeps, 0.6),
    (process_sleeps, 3.0),
    (control_loop_wakes_first, 3.0),
    (keys_are_lost_and_the_gamepad_is_not, 0.0),
]


@pytest.mark.parametrize(("silence", "seconds"), SILENCES, ids=[f"{what.__name__}-{s}" for what, s in SILENCES])
def test_only_a_new_press_moves_the_arm_after_a_silence(silence, seconds):
    hands = begun()
    assert hands.want(WORD) is PERSON
    silence(hands, seconds)
    for _ in range(5):
        hands.hold(after=WORD)
        assert hands.want() is HOLD, "the switch was held all the time"
    hands.hold(False, after=WORD)
    assert hands.want() is HOLD, "nor does the policy act again"
    hands.hold(after=WORD)
    assert hands.want() is PERSON


@pytest.mark.parametrize(("silence", "seconds"), SILENCES, ids=[f"{what.__name__}-{s}" for what, s in SILENCES])
def test_a_switch_that_is_held_on_after_a_silence_stops_the_arm(silence, seconds):
    hands = begun()
    silence(hands, seconds)
    decisions = []
    while len(decisions) < (STOP_AFTER + 0.2) / WORD:
        hands.hold(after=WORD)
        decisions.append(hands.want())
    assert set(decisions) == {HOLD, STOP} and decisions[-1] is STOP


def test_sleep_of_this_process_is_a_loss_whoever_acts():
    hands = begun(held=False)
    assert hands.want(WORD) is POLICY
    hands.now += ASLEEP + 0.01
    hands.hold(False)
    assert hands.want() is HOLD and "process was asleep for 0.5 s" in hands.operator_state.stopper
    busy = begun(held=False)
    busy.now += ASLEEP - 0.01
    busy.hold(False)
    assert busy.want() is POLICY


def test_switch_let_go_in_our_sleep_gives_nothing_back():
    hands = begun()
    before = hands.now
    hands.now += 3.0
    for held in (True, True, False, False):
        hands.hold(held, seen=before)
        assert hands.want() is HOLD


def test_switch_held_since_before_the_page_came_holds_the_arm():
    hands = Hands()
    hands.operator_state.release(hands)
    hands.operator_state.acquire(hands)
    hands.hold()
    hands.operator_state.begin()
    hands.hold()
    assert hands.want() is HOLD, "neither the person nor the policy acts"
    hands.hold(False)
    assert hands.want() is POLICY
    hands.hold()
    assert hands.want() is PERSON


def test_switch_held_through_a_stop_does_not_count_after_it():
    hands = begun()
    hands.operator_state.stop(hands)
    hands.operator_state.end()
    hands.operator_state.rearm(hands, hands.operator_state.stops)
    hands.operator_state.begin()
    hands.hold()
    assert hands.want() is HOLD
    hands.hold(False)
    hands.hold()
    assert hands.want() is PERSON


def test_press_on_a_device_ends_a_loss_only_after_its_release():
    hands, device = begun(), object()
    hands.operator_state.attach(device)
    hands.operator_state.update(device, False, np.array(RIGHT, np.float32))
    hands.operator_state.update(device, True, np.array(RIGHT, np.float32))
    hands.hold(False)
    assert hands.want() is PERSON
    hands.want(HELD_SILENCE + 0.01)
    hands.hold(False)
    for held, wanted in ((True, HOLD), (False, HOLD), (True, PERSON)):
        hands.operator_state.update(device, held, np.array(RIGHT, np.float32))
        assert hands.want() is wanted


def test_hidden_page_is_no_loss_while_the_policy_acts():
    hands = begun(held=False)
    for _ in range(5):
        assert hands.want(1.0) is POLICY, "such a page speaks once a second"
        hands.hold(False)
    assert hands.want(WATCH_SILENCE + 0.1) is HOLD


# the words of a page, which name the report that they answer


def test_release_counts_once_the_page_knows_of_the_loss(monkeypatch):
    hands = Hands()
    monkeypatch.setattr("robo_real.console.session.time", SimpleNamespace(monotonic=lambda: hands.now))
    spec, state = arm_spec("a robot").action, hands.operator_state
    monitor = SimpleNamespace(names=(), health={"stops": 0}, state=None, requested=0.0, age=lambda name: None)
    console = Console(state, monitor, Tally(), spec, HoldAction(spec), print, print, {})
    session = Session(SimpleNamespace(application_state=None), console)
    state.release(hands)
    state.acquire(session)

    def said(answers, *all_held):
        """Returns what is decided after each word that the page says while it knows a report."""
        found = []
        for held in all_held:
            word = {"kind": "hold", "held": held, "action": RIGHT, "answers": answers}
            asyncio.run(session._handle(json.dumps(word)))
            found.append(state.decision().kind)
        return found

    def reported(after=0.0):
        hands.now += after
        state.awake()
        asyncio.run(session._report(hands.now))
        return session._reports

    state.begin()
    assert said(reported(), False, True) == [POLICY, PERSON]
    newest = reported(after=0.1)
    assert said(newest, True) == [PERSON]
    hands.want(HELD_SILENCE + 0.01)
    assert said(newest, True, False, True) == [HOLD] * 3, "said before it can know of the loss"
    assert said(reported(after=0.01), True, False, True) == [HOLD, HOLD, PERSON]


# a real process that sleeps

PROGRAM = """
import sys
from robo_real.console.robot_console import RobotConsole
console = RobotConsole(sys.argv[1])
print(console.server.port, console.server.token, flush=True)
console.run()
"""


def said_within(process, seconds):
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    assert ready, "the console does not start"
    return process.stdout.readline().split()


@contextmanager
def ended(process):
    try:
        yield
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("lets_go", [False, True])
def test_console_that_was_asleep_moves_nothing_when_it_wakes(serve, lets_go):
    server = serve(replace(TWIN, stop_after=60.0), image_size=32)
    command = [sys.executable, "-c", PROGRAM, server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ended(process):
        port, token = said_within(process, 60)
        page = Page(SimpleNamespace(server=SimpleNamespace(port=int(port), token=token)))
        page.say(kind="sit")
        page.until(lambda told: told["operator"] == "you")
        start(page)
        page.held, page.action = True, RIGHT
        newest = page.until(lambda told: told["human_steps"] >= 5)
        os.kill(process.pid, signal.SIGSTOP)
        for turn in range(60):
            page.say(kind="hold", held=not lets_go or turn < 10, action=RIGHT, answers=newest["number"], episode=page.episode)
            time.sleep(WORD)
        page.held = not lets_go
        before = server.application.robot.driver.read().position
        os.kill(process.pid, signal.SIGCONT)
        told = page.until(lambda told: told["state"] == "waiting")
        assert "_lost" in told["message"], "of the operator, or of the robot if a call was under way"
        assert np.abs(server.application.robot.driver.read().position - before).max() < 0.002
        page.socket.close()
