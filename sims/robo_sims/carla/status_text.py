"""Text below rendered pictures: progress, speed and limit, next light, oncoming lane."""

from __future__ import annotations

from robo_sims.carla.rewards import Situation
from robo_sims.carla.scene import GREEN, RED, YELLOW
from robo_sims.carla.termination import GOAL

LIGHTS = {RED: "red", YELLOW: "yellow", GREEN: "green"}
AHEAD = 60.0
"""Distance [m] along the route within which the next light is shown."""
WRONG_LANE = "WRONG LANE"
DRIVING, DONE, FAILED, AGAINST = (30, 30, 36), (30, 110, 60), (150, 40, 40), (150, 100, 20)
"""Colours behind the text, RGB: while driving, at success, after a failure, and in a lane of oncoming traffic."""


def lines(situation: Situation, ended: str) -> tuple[list[str], tuple[int, int, int]]:
    """Return two lines of text and their background colour; ended: stop reason, "" while the episode runs."""
    ego, is_wrong = situation.scene.ego, situation.is_oncoming
    done = f"{100 * situation.completion:.0f} % of the route, {ego.speed:.1f} of {ego.limit:.1f} m/s"
    parts = [light_ahead(situation), WRONG_LANE if is_wrong else "", ended]
    background = AGAINST if is_wrong else DRIVING
    if ended:
        background = DONE if ended == GOAL else FAILED
    return [done, ", ".join(part for part in parts if part)], background


def light_ahead(situation: Situation) -> str:
    """Return the next light on the route and its distance."""
    for stop, state in situation.scene.lights:
        if 0.0 <= stop - situation.place.s < AHEAD and state in LIGHTS:
            return f"{LIGHTS[state]} light in {stop - situation.place.s:.0f} m"
    return "no light ahead"
