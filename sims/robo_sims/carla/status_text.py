"""Text below rendered pictures: progress, speed and limit, pedals, next light and sign, oncoming lane, and how it ended."""

from __future__ import annotations

from robo_sims.carla.rewards import Situation
from robo_sims.carla.scene import GREEN, RED, YELLOW
from robo_sims.carla.termination import GOAL

LIGHTS = {RED: "red", YELLOW: "yellow", GREEN: "green"}
SIGNS = {"traffic.stop": "stop sign", "traffic.yield": "sign to give way"}
AHEAD = 60.0
"""[m] range within which a light or a sign is shown."""
WRONG_LANE = "WRONG LANE"
DRIVING, DONE, FAILED, AGAINST = (30, 30, 36), (30, 110, 60), (150, 40, 40), (150, 100, 20)
"""Backgrounds of the text."""
ENDS = {
    GOAL: "arrived",
    "collision_walker": "hit a walker",
    "collision_vehicle": "hit a vehicle",
    "collision_static": "hit an obstacle",
    "red_light": "passed a red light",
    "off_road": "left the road",
    "route_deviation": "left the route",
    "oncoming_lane": "drove in the lane of oncoming traffic",
    "blocked": "stood for too long",
    "time_limit": "out of time",
    "link_lost": "lost the server",
}
"""Stop reason -> what a person reads."""


def lines(situation: Situation, pedals: float, ended: str) -> tuple[list[str], tuple[int, int, int]]:
    """Return two lines of text and their background colour.

    Args:
        situation: The situation that is shown.
        pedals: Throttle, or brake if negative, in [-1, 1].
        ended: Stop reason, "" while the episode runs.
    """
    ego, is_wrong = situation.scene.ego, situation.is_oncoming
    pedal = f"{'throttle' if pedals >= 0.0 else 'brake'} {100 * abs(pedals):.0f} %"
    done = f"{100 * situation.completion:.0f} % of the route, {ego.speed:.1f} of {ego.limit:.1f} m/s, {pedal}"
    if ended:
        return [done, f"END: {ENDS.get(ended, ended)}"], DONE if ended == GOAL else FAILED
    parts = [*ahead(situation), WRONG_LANE if is_wrong else ""]
    return [done, ", ".join(part for part in parts if part)], AGAINST if is_wrong else DRIVING


def ahead(situation: Situation) -> list[str]:
    """Return the next light and the next sign on the route, with their distances; one text if there is none."""
    s, scene = situation.place.s, situation.scene
    lights = [(stop - s, f"{LIGHTS[state]} light") for stop, state in scene.lights if state in LIGHTS]
    signs = [(line - s, SIGNS[kind]) for line, kind in scene.signs if kind in SIGNS]
    near = [next((one for one in found if 0.0 <= one[0] < AHEAD), None) for found in (lights, signs)]
    return [f"{name} in {left:.0f} m" for left, name in filter(None, near)] or ["no light ahead"]
