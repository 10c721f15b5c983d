"""Score of an episode: route completion, infractions and CARLA's driving score.

The score is that of the CARLA leaderboard 2.0 (https://leaderboard.carla.org): route completion in percent times the product
of a coefficient per infraction, and times 1 - the share of the distance in lanes of oncoming traffic (OutsideRouteLanesTest).
Differences: an episode ends with its first infraction, while the leaderboard continues after a collision or a red light, so
that a product has at most one factor and completion is lost as well; leaving the route (8 m from the centre line) or the road
(edge of the lane) ends an episode without a factor, as 30 m and standing agents do there; more than 50 m in lanes of oncoming
traffic end an episode if they exceed a fifth of the distance; in junctions the previous lane counts; scenario time-outs and
the minimum speed have no rule. A stop sign passed without a stop ends no episode, as there.
"""

from __future__ import annotations

from robo_rl.evaluation.measures import Measure
from robo_sims.carla.termination import INFRACTIONS

COEFFICIENTS = {"collision_walker": 0.50, "collision_vehicle": 0.60, "collision_static": 0.65, "red_light": 0.70}
"""By infraction; 1 for all others."""
STOP_SIGN = 0.80
"""Coefficient of each stop sign passed without a stop."""
MEASURES = (
    Measure("route_completion", "%", "of the route"),
    Measure(
        "driving_score",
        "%",
        "route completion times the coefficients of the infraction that ended the episode and of stop signs, "
        "times 1 - oncoming_share",
    ),
    Measure("oncoming_share", "%", "of the distance that was driven, in lanes of oncoming traffic"),
    Measure("distance", "km", "of the route that was driven, in an episode"),
    *(
        Measure(name, "1/km", "infractions per km of the route that was driven", per="distance")
        for name in (*INFRACTIONS, "stop_sign")
    ),
)


def measure(completion: float, farthest: float, reason: str | None, oncoming: float, missed_stops: int = 0) -> dict[str, float]:
    """Return the current values of `MEASURES`.

    completion: share of the route. farthest: [m] along it. reason: stop reason, or None. oncoming: share of the distance in
    lanes of oncoming traffic. missed_stops: stop signs passed without a stop.
    """
    coefficient = COEFFICIENTS.get(reason or "", 1.0) * STOP_SIGN**missed_stops
    return {
        "route_completion": 100.0 * completion,
        "driving_score": 100.0 * completion * coefficient * (1.0 - oncoming),
        "oncoming_share": 100.0 * oncoming,
        "distance": farthest / 1000.0,
        **{name: float(name == reason) for name in INFRACTIONS},
        "stop_sign": float(missed_stops),
    }
