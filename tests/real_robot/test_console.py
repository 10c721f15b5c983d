"""The operator's console, attacked: dropped sockets, two operators, wrong tokens, foreign pages, slow readers, garbage."""

import itertools
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from robo_real.arm_spec import arm_spec
from robo_rl.system.pages.server import HEADERS, LARGEST_MESSAGE
from robo_rl.types import ActionSource

sys.path.insert(0, str(Path(__file__).parent))

from console_operators import RIGHT, STILL, Hands, Page, Stops, begun, start

from robo_real.console.human import ConsoleHuman, HoldAction
from robo_real.console.operator_state import HELD_SILENCE, STOP_AFTER, WATCH_SILENCE, DecisionKind, OperatorState
from robo_real.console.robot_console import RobotConsole
from robo_real.console.session import MOST_INVALID, MOST_UNSEEN, InvalidMessage, parse_message

# the desk, on a clock of the test's own


def test_holding_switch_intervenes_and_release_returns_control():
    hands = begun()
    assert hands.want() is DecisionKind.PERSON
    hands.hold(False, after=0.05)
    assert hands.want() is DecisionKind.POLICY


@pytest.mark.parametrize("how", ["dropped", "silent", "keys lost"])
def test_loss_in_intervention_holds_then_stops_the_arm(how):
    hands = begun()
    if how == "dropped":
        hands.operator_state.release(hands)
    elif how == "keys lost":
        hands.operator_state.lose(hands)
    else:
        hands.now += HELD_SILENCE + 0.01
    assert hands.want() is DecisionKind.HOLD
    if how != "silent":
        assert hands.operator_state.acquire(hands)  # the page is back, with its hand off the switch
        hands.hold(False)
    assert hands.want(STOP_AFTER - 0.1) is DecisionKind.HOLD
    assert hands.want(0.2) is DecisionKind.STOP
    hands.hold(False)
    assert hands.want() is DecisionKind.STOP


def test_a_word_that_comes_late_does_not_give_back():
    hands = begun()
    hands.hold(False, after=HELD_SILENCE + 0.01)
    assert hands.want() is DecisionKind.HOLD


def test_switch_after_loss_continues_as_intervention():
    hands = begun()
    hands.operator_state.lose(hands)
    assert hands.want(0.2) is DecisionKind.HOLD
    hands.hold(False)
    assert hands.want() is DecisionKind.HOLD, "the policy does not act again"
    hands.hold()
    assert hands.want() is DecisionKind.PERSON


def test_nobody_watching_stops_the_policy_too():
    hands = begun(held=False)
    assert hands.want(WATCH_SILENCE - 0.1) is DecisionKind.POLICY
    assert hands.want(0.2) is DecisionKind.HOLD
    empty = OperatorState(lambda: 0.0)
    empty.begin()
    assert empty.decision().kind is DecisionKind.HOLD


def test_stop_lasts_until_rearm_despite_other_keys():
    hands = begun()
    hands.operator_state.stop()
    hands.hold()
    assert hands.want() is DecisionKind.STOP
    hands.operator_state.end()
    hands.operator_state.rearm(object(), hands.operator_state.stops)
    hands.operator_state.start(hands)
    assert not hands.operator_state.wait_for_start(0)
    hands.operator_state.begin()
    assert hands.want() is DecisionKind.STOP
    hands.operator_state.end()
    hands.operator_state.rearm(hands, hands.operator_state.stops)
    hands.operator_state.start(hands)
    assert hands.operator_state.wait_for_start(0)


def test_stop_after_operator_check_survives_rearm():
    hands = begun()
    hands.operator_state.stop()
    looked = hands.operator_state.stops
    hands.operator_state.stop()
    hands.operator_state.rearm(hands, looked)
    assert hands.want() is DecisionKind.STOP


def test_a_stop_while_an_episode_is_being_prepared_holds_in_it():
    hands = Hands()
    hands.operator_state.start(hands)
    assert hands.operator_state.wait_for_start(0)
    hands.operator_state.stop()
    hands.operator_state.begin()
    assert hands.want() is DecisionKind.STOP


def test_a_start_that_is_pressed_twice_begins_one_episode():
    hands = Hands()
    hands.operator_state.start(hands)
    assert hands.operator_state.wait_for_start(0)
    hands.operator_state.start(hands)
    hands.operator_state.begin()
    hands.operator_state.end()
    assert not hands.operator_state.wait_for_start(0)


def test_next_episode_starts_until_stop_loss_or_silence():
    hands = Hands()
    hands.operator_state.set_autostart(object(), True)
    assert not hands.operator_state.wait_for_start(0)
    for ends in (
        hands.operator_state.stop,
        lambda: hands.operator_state.release(hands),
        lambda: hands.want(WATCH_SILENCE + 0.1),
    ):
        hands.operator_state.acquire(hands)
        hands.operator_state.rearm(hands, hands.operator_state.stops)
        hands.hold(False)
        hands.operator_state.set_autostart(hands, True)
        for _ in range(2):
            assert hands.operator_state.wait_for_start(0)
            hands.operator_state.begin()
            hands.operator_state.end()
        hands.operator_state.begin()
        ends()
        hands.operator_state.end()
        assert not hands.operator_state.autostarts and not hands.operator_state.wait_for_start(0)
    hands.hold(False)
    hands.operator_state.set_autostart(hands, True)
    hands.now += WATCH_SILENCE + 0.1
    assert not hands.operator_state.wait_for_start(0), "nobody was heard of since the last episode"


def test_only_the_operator_commands_starts_and_labels():
    hands, other = begun(held=False), object()
    assert not hands.operator_state.acquire(other)
    hands.operator_state.update(other, True, np.array(RIGHT, np.float32))
    hands.operator_state.label(other, "success")
    assert hands.want() is DecisionKind.POLICY and hands.operator_state.pop_label() == ""
    hands.operator_state.end()
    hands.operator_state.start(other)
    assert not hands.operator_state.wait_for_start(0)
    hands.operator_state.start(hands)
    hands.operator_state.start(other)
    assert hands.operator_state.wait_for_start(0), "a second page took back the operator's start"


def test_a_label_counts_once_and_only_within_an_episode():
    hands = begun()
    hands.operator_state.label(hands, "success")
    assert [hands.operator_state.pop_label(), hands.operator_state.pop_label()] == ["success", ""]
    hands.operator_state.end()
    hands.operator_state.label(hands, "failure")
    assert hands.operator_state.pop_label() == ""


def test_a_person_behind_the_page_is_a_human_for_learning_code():
    hands, robot, spec = begun(), Stops(), arm_spec("a robot").action
    still = HoldAction(spec)
    human = ConsoleHuman(hands.operator_state, robot, still)
    observation, proposed = {"gripper_opening": np.array([0.04], np.float32)}, np.ones(5, np.float32)
    assert human.command(observation, proposed).tolist() == pytest.approx(RIGHT) and robot.enabled == 1
    assert (human.source, still.why) == (ActionSource.HUMAN, "")
    hands.hold(False)
    assert human.command(observation, proposed) is None and human.source is ActionSource.POLICY
    hands.operator_state.release(hands)
    assert human.command(observation, proposed).tolist() == pytest.approx([0, 0, 0, 0, 0], abs=1e-6)  # as wide as measured
    still.note(np.array([0, 0, 0, 0, -1], np.float32))
    assert human.command(observation, proposed)[4] == -1  # a hand that was closed around something stays closed
    assert robot.stopped == 0
    assert (human.source, still.why) == (ActionSource.GUARD, "operator_lost")
    hands.now += STOP_AFTER + 0.1
    human.command(observation, proposed)
    assert robot.stopped == 1 and human.source is ActionSource.GUARD


def test_a_person_who_stops_the_arm_does_not_correct_the_policy():
    hands, robot, spec = begun(), Stops(), arm_spec("a robot").action
    still = HoldAction(spec)
    human = ConsoleHuman(hands.operator_state, robot, still)
    hands.operator_state.stop()
    assert human.command({}, np.ones(5, np.float32)) is not None
    assert (human.source, still.why, robot.stopped) == (ActionSource.GUARD, "operator", 1)


@pytest.mark.parametrize("message", ["", "[]", "{", '{"kind": 3}', b"\x00", "[" * 3000, '"x"'])
def test_what_makes_no_sense_is_garbage(message):
    with pytest.raises(InvalidMessage):
        parse_message(message)


# the whole of it, over sockets, against the twin


@pytest.fixture
def console(serve, unhurried):
    """Returns a console over a twin whose arm waits, closed after the test."""
    server = serve(unhurried, image_size=32)
    found = RobotConsole(server.url)
    found.server_of_robot = server
    thread = found.start()
    yield found
    found.close()
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def page(console):
    found = Page(console)
    found.told("welcome")
    found.say(kind="sit")
    found.until(lambda told: told["operator"] == "you")
    return found


def hand(console):
    return console.server_of_robot.application.robot.driver.read().position


def test_keys_move_the_arm_through_the_guard_and_space_stops_it(console, page):
    start(page)
    before = hand(console)
    page.held, page.action = True, RIGHT
    page.until(lambda told: told["human_steps"] >= 8)
    assert hand(console)[1] - before[1] > 0.005
    page.say(kind="stop")
    told = page.until(lambda told: told["state"] == "waiting")
    assert told["health"]["mode"] == "stopped" or page.until(lambda told: told["health"]["mode"] == "stopped")
    page.say(kind="start")
    assert page.told("status")["state"] == "waiting"
    page.rearm()
    page.until(lambda told: told["health"]["mode"] == "idle")
    page.held = False
    start(page)


@pytest.mark.slow
def test_stop_is_received_while_robot_rearms(console, page):
    robot = console.server_of_robot.application.robot
    entered, left = threading.Event(), threading.Event()

    def slow():
        entered.set()
        assert left.wait(60)

    robot.driver.recover = slow
    page.say(kind="stop")
    page.until(lambda told: told["health"]["mode"] == "stopped")
    page.rearm()
    assert entered.wait(60)
    stops = robot.guard.stops
    page.say(kind="stop")
    end = time.monotonic() + 60
    while robot.guard.stops == stops and time.monotonic() < end:
        time.sleep(0.01)
    assert robot.guard.stops > stops and not left.is_set(), "it was heard before the robot had recovered"
    left.set()
    page.told("refused")
    assert page.told("status")["health"]["mode"] == "stopped"
    page.rearm()
    page.until(lambda told: told["health"]["mode"] == "idle")


class Keeps:
    """Stands for the dataset of a console."""

    def __init__(self):
        self.sources, self.ended = [], []

    def begin(self, rollout):
        pass

    def step(self, transition):
        self.sources.append(transition.source)

    def end(self, rollout):
        self.ended.append(rollout)


@pytest.mark.slow
def test_a_socket_that_drops_in_an_intervention_stops_the_arm(console, page):
    kept = Keeps()
    console.keep(kept, {})
    start(page)
    page.held, page.action = True, RIGHT
    page.until(lambda told: told["human_steps"] >= 2)
    page.socket.socket.close()
    watcher = Page(console)
    watcher.say(kind="sit")
    told = watcher.until(lambda told: told["state"] == "waiting" and told["health"]["mode"] == "stopped")
    assert "ended: operator_lost" in told["message"]
    assert console.tally.acts == ""
    stretches = [source for source, _ in itertools.groupby(kept.sources)]
    assert stretches == [ActionSource.POLICY, ActionSource.HUMAN, ActionSource.GUARD], "what holds is not the person's"
    (rollout,) = kept.ended
    assert rollout.stop_reason == "operator_lost"
    episode = rollout.episode()
    held = [str(step) for step in np.flatnonzero(episode.sources == ActionSource.GUARD)]
    lost = [step for step, reasons in episode.metadata["guard"].items() if "operator_lost" in reasons]
    assert held and lost == held, "a late step, on a busy machine, has another reason"
    assert len(episode.interventions) == 1


@pytest.mark.slow
@pytest.mark.parametrize("label", ["success", "failure", "discard"])
def test_a_label_ends_the_episode_and_decides_whether_it_is_kept(console, page, label):
    kept = Keeps()
    console.keep(kept, {})
    start(page)
    page.say(kind="label", label=label)
    told = page.until(lambda told: told["state"] == "waiting")
    wanted = {"success": (True, "goal", 1.0), "failure": (False, "operator", 0.0), "discard": None}[label]
    (rollout,) = kept.ended
    assert (rollout and (rollout.success, rollout.stop_reason, rollout.episode().rewards[-1])) == wanted
    assert told["episodes"] == (label != "discard")


@pytest.mark.slow
def test_the_end_of_an_episode_is_shown_once_it_is_stored(console, page):
    class Slow(Keeps):
        def end(self, rollout):
            time.sleep(0.5)
            super().end(rollout)

    kept = Slow()
    console.keep(kept, {})
    start(page)
    page.say(kind="label", label="success")
    assert page.until(lambda told: told["state"] == "waiting")["message"] == "ended: goal"
    assert len(kept.ended) == 1, "whoever saw the end may have ended the program"


@pytest.mark.slow
def test_the_second_operator_may_watch_and_stop_and_nothing_else(console, page):
    second = Page(console)
    second.say(kind="sit")
    assert "Another operator" in second.told("refused")["why"]
    assert second.told("status")["operator"] == "another"
    second.rearm()
    assert "Only the operator" in second.told("refused")["why"]
    start(page)
    second.say(kind="stop")
    page.until(lambda told: told["health"]["mode"] == "stopped" and told["state"] == "waiting")
    page.socket.close()
    second.until(lambda told: told["operator"] == "you" or second.say(kind="sit"))


@pytest.mark.slow
@pytest.mark.parametrize("first", [{"token": "wrong"}, {"token": ""}, {"token": "ä"}, {"token": "\ud800"}])
def test_a_wrong_token_sees_nothing(console, first):
    page = Page(console, **first)
    with pytest.raises(ConnectionClosed) as error:
        page.socket.recv(timeout=30)
    assert error.value.rcvd.code == 4401


@pytest.mark.slow
def test_foreign_origins_and_names_are_refused(console):
    for arguments in ({"origin": "http://evil.example"}, {"origin": None}, {"origin": "null"}):
        with pytest.raises(InvalidStatus, match="403"):
            Page(console, **arguments)
    request = urllib.request.Request(f"http://127.0.0.1:{console.server.port}/", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)


@pytest.mark.slow
def test_page_has_no_token_and_loads_nothing_foreign(console):
    for path in ("/", "/page.js", "/controls.js", "/page.css", "/style.css"):
        with urllib.request.urlopen(f"http://127.0.0.1:{console.server.port}{path}") as answer:
            assert console.server.token.encode() not in answer.read()
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{console.server.port}/../server.py")


@pytest.mark.slow
def test_page_without_a_websocket_is_refused_with_safe_headers(console):
    address = f"http://127.0.0.1:{console.server.port}"
    request = urllib.request.Request(f"{address}/socket", headers={"Origin": address})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=20)
    with caught.value as refusal:
        assert refusal.code == 426 and dict(refusal.headers) | HEADERS == dict(refusal.headers)
        assert "Server" not in refusal.headers


@pytest.mark.slow
def test_invalid_messages_are_refused_and_finally_disconnect(console, page):
    start(page)
    hands = [{"held": 1, "action": STILL}, {"held": True, "action": [1]}, {"held": True, "action": [5.0] * 5}]
    hands += [
        {"held": True, "action": [float("nan")] * 5},
        {"held": True, "action": "left"},
        {"held": True, "action": [10**400] * 5},
    ]
    for message in hands:
        page.say(kind="hold", **message)
        assert "no sense" in page.told("refused")["why"]
    assert console.tally.human_steps == 0
    with pytest.raises(ConnectionClosed):
        for _ in range(MOST_INVALID):
            page.socket.send("garbage")
            page.told("refused")
    watcher = Page(console)
    watcher.say(kind="sit")
    watcher.until(lambda told: told["health"]["mode"] == "stopped")


@pytest.mark.slow
def test_a_message_that_is_too_large_ends_the_connection(console, page):
    page.socket.send("x" * (LARGEST_MESSAGE + 1))
    with pytest.raises(ConnectionClosed):
        for _ in itertools.count():
            page.socket.recv(timeout=10)


@pytest.mark.slow
def test_a_slow_page_is_sent_no_queue_of_old_reports(console):
    slow = Page(console)
    slow.told("welcome")
    for _ in range(MOST_UNSEEN):
        assert "status" in slow.socket.recv(timeout=20)  # and never says that it has seen one
    with pytest.raises(TimeoutError):
        slow.socket.recv(timeout=0.5)


@pytest.mark.slow
def test_words_that_answer_old_reports_command_nothing(console, page, monkeypatch):
    start(page)
    page.held, page.action = True, RIGHT
    told = page.until(lambda told: told["human_steps"] >= 2)
    page.until(lambda found: found["number"] > told["number"] + 1)
    monkeypatch.setattr("robo_real.console.operator_state.HELD_SILENCE", 0.25)
    monkeypatch.setattr("robo_real.console.session.MOST_LAG", 0.2)
    page.answers = 1  # what is heard of the page is about what it saw long ago
    page.until(lambda told: told["wish"] == "hold")
    page.until(lambda told: told["health"]["mode"] == "stopped")


@pytest.mark.slow
def test_a_person_is_told_apart_in_what_is_recorded(console, page):
    kept = Keeps()
    console.keep(kept, {})
    start(page)
    page.held = True
    page.until(lambda told: told["human_steps"] >= 2)
    page.held = False
    page.until(lambda told: told["acts"] == "policy")
    page.say(kind="label", label="failure")
    page.until(lambda told: told["state"] == "waiting")
    assert [source for source, _ in itertools.groupby(kept.sources)] == [
        ActionSource.POLICY,
        ActionSource.HUMAN,
        ActionSource.POLICY,
    ]
