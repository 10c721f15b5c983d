"""The console's operator: whose fingers an action moves, who stopped the arm in words, which stops a re-arming ends."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from console_operators import RIGHT, STILL, Hands, Page, Stops, begun, start

from robo_real.arm_spec import arm_spec
from robo_real.console.human import ConsoleHuman, HoldAction
from robo_real.console.operator_state import HELD_SILENCE, STOP_AFTER
from robo_real.console.robot_console import RobotConsole
from robo_rl.errors import RobotStopped, RobotUnavailable

CLOSED = np.array([*RIGHT[:4], -1.0], np.float32)


@pytest.fixture
def console(serve, unhurried):
    server = serve(replace(unhurried, stop_after=60.0), image_size=32)
    found = RobotConsole(server.url)
    found.server_of_robot = server
    thread = found.start()
    yield found
    found.close()
    thread.join(20)


@pytest.fixture
def page(console):
    found = Page(console)
    found.told("welcome")
    found.say(kind="sit")
    found.until(lambda told: told["operator"] == "you")
    return found


# fingers


@pytest.mark.parametrize("held_before", [True, False])
def test_takeover_in_a_new_episode_leaves_the_fingers(held_before):
    """The page still has the grip of the episode before, which ended closed."""
    hands, spec = begun(), arm_spec("a robot").action
    still = HoldAction(spec)
    human = ConsoleHuman(hands.operator_state, Stops(), still)
    hands.operator_state.update(hands, held_before, CLOSED, hands.operator_state.episode)
    before = hands.operator_state.episode
    hands.operator_state.end()
    still.reset()
    human.reset()  # an arm whose scene was reset by hand: open
    hands.operator_state.update(hands, True, CLOSED, before)
    observation, proposed = {"gripper_opening": np.array([0.08], np.float32)}, np.zeros(5, np.float32)
    action = human.command(observation, proposed)
    assert action.tolist() == pytest.approx([*RIGHT[:4], 1.0])
    still.note(action)
    assert human.command(observation, proposed)[4] == pytest.approx(1.0)
    hands.operator_state.update(hands, True, CLOSED, hands.operator_state.episode)  # now the page has seen them
    assert human.command(observation, proposed)[4] == -1.0


@pytest.mark.slow
def test_report_pairs_the_grip_with_its_episode(console, page):
    start(page)
    first = page.until(lambda told: told["grip"] is not None)
    page.say(kind="label", label="failure")
    page.until(lambda told: told["state"] == "waiting")
    start(page)
    second = page.until(lambda told: told["grip"] is not None and told["episode"] > first["episode"])
    assert second["episode"] == first["episode"] + 1


# who and why


def test_stop_names_its_author():
    hands = begun()
    assert hands.operator_state.stop(hands) == "the operator at the console"
    assert hands.operator_state.stop(object()) == hands.operator_state.stopper == "a second page of the console"


@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (lambda hands: hands.operator_state.release(hands), "the operator's page was closed, or its connection broke"),
        (lambda hands: hands.operator_state.lose(hands), "the operator's page lost its keys while they were held"),
        (lambda hands: hands.want(HELD_SILENCE + 0.01), "nothing came from the operator's page for 0.25 s"),
    ],
)
def test_stop_after_a_loss_names_its_cause(lose, why):
    hands, robot = begun(), Stops()
    human = ConsoleHuman(hands.operator_state, robot, HoldAction(arm_spec("a robot").action))
    lose(hands)
    hands.now += STOP_AFTER + 0.1
    human.command({"gripper_opening": np.array([0.04], np.float32)}, np.zeros(5, np.float32))
    assert robot.by == f"the console: {why}"


@pytest.mark.slow
def test_page_and_log_say_who_stopped_the_arm(console, page):
    start(page)
    page.say(kind="stop")
    told = page.until(lambda told: told["health"]["reason"])
    assert told["health"]["reason"] == "stop: the operator at the console"


@pytest.mark.slow
def test_robot_lost_at_a_press_ends_and_keeps_the_episode(console, page, monkeypatch):
    kept = []
    monkeypatch.setattr(console, "on_episode", kept.append)
    start(page)

    def lost():
        raise RobotUnavailable("gone")

    robot = console.environment.unwrapped.robot
    monkeypatch.setattr(robot, "enable", lost)
    page.held = True
    page.until(lambda told: told["human_steps"] >= 2)
    monkeypatch.setattr(robot, "apply", lambda action: lost())
    told = page.until(lambda told: told["state"] == "waiting")
    assert told["message"] == "ended: robot_lost" and len(kept) == 1


# re-arming


@pytest.mark.slow
def test_rearm_names_a_report_and_ends_no_later_stop(console, page):
    guard = console.server_of_robot.application.robot.guard
    page.say(kind="rearm")
    assert "names the report" in page.told("refused")["why"]
    page.say(kind="stop")
    looked = page.until(lambda told: told["health"]["mode"] == "stopped" and told["is_current"])
    guard.stop("a red button")  # after the report that the operator looked at
    page.say(kind="rearm", number=looked["number"])
    page.told("refused")
    assert guard.mode == "stopped"
    page.until(lambda told: told["health"]["stops"] == guard.stops)
    page.rearm()
    page.until(lambda told: told["health"]["mode"] == "idle")
    with pytest.raises(RobotStopped):
        console.environment.unwrapped.robot.rearm("Ada", looked["health"]["stops"])


@pytest.mark.slow
def test_hello_with_a_lone_surrogate_is_a_wrong_token(console):
    page = Page(console, token="\ud800")
    with pytest.raises(Exception, match="4401"):
        page.told("welcome")


def test_hands_rest_before_the_first_report():
    hands = Hands()
    hands.operator_state.update(hands, False, np.array(STILL, np.float32))
    assert hands.want().value == "policy"
