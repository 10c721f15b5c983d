"""The simulated arm itself keeps the limits, however it is commanded: what its physics went through, not what the guard says.

The table of docs/robots/robot-guard.md: python tests/real_robot/plant_truth.py 20000
"""

import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from factories import rest_slow
from robo_real.http_client import RobotClient
from robo_real.limits import TWIN
from robo_rl.errors import RobotError

sys.path.insert(0, str(Path(__file__).parent))
from plant_truth import MARGINS, MOST_OUTSIDE, Flood, Recorder, measured, pressed

SLOW = replace(TWIN, speed=0.1, acceleration=1.0, reach=0.01, turn_speed=0.5, turn_acceleration=5.0)


@pytest.mark.parametrize("limits", rest_slow([TWIN, SLOW]), ids=["twin", "slow"])
def test_plant_keeps_the_limits_in_a_flood(limits):
    flood = Flood(11, limits)
    worst = flood.play(700)
    flood.close()
    assert flood.alarms == set()
    assert flood.followed > 500  # or nothing was put to the proof
    assert worst.broken(limits) == {}


@pytest.mark.slow
@pytest.mark.parametrize("tilt", [-0.4, 0.4])
def test_hand_that_presses_at_a_side_gets_no_farther(tilt):
    """It presses on the table, is stopped by the force, springs back and is armed again; without a way back, 5.6 mm outside."""
    outside, stops = pressed(-1.0, tilt, TWIN.box_low[1])
    assert stops > 20 and outside <= MOST_OUTSIDE


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_plant_keeps_the_limits_in_twenty_thousand_commands():
    worst = measured(20_000)
    print(worst.table(TWIN))
    assert worst.broken(TWIN) == {}


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.0, 0.002])
def test_plant_is_no_faster_for_a_flood_over_http(serve, wait):
    """Four plain clients stream poses ahead of the hand, as fast as the server answers, in real time."""
    server = serve(replace(SLOW, command_age=5.0, state_age=5.0))
    recorder = Recorder(server.application.robot.driver, SLOW)
    start, begun, answered = server.application.robot.measure(), time.monotonic(), []

    def goes_on():
        """For 1.5 s, and on a busy machine until there were 40 answers."""
        elapsed = time.monotonic() - begun
        return elapsed < 1.5 or (len(answered) < 40 and elapsed < 20.0)

    def flood(side):
        link = RobotClient(server.url, 20.0)
        while goes_on():
            x, y, z = server.application.robot.driver.read().position
            try:
                link.post("/pose", {"arr": [x, y + side * 0.009, z, 1.0, 0.0, 0.0, 0.0]})
                answered.append(side)
            except RobotError:
                pass  # too many at once
            time.sleep(wait)
        link.close()

    threads = [threading.Thread(target=flood, args=(1,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answered) > 20 and server.application.robot.measure().position[1] > start.position[1] + 0.02
    assert recorder.worst.speed <= MARGINS["speed"] * SLOW.speed
