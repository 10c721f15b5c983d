"""Score of an episode: route completion, infractions and CARLA's driving score.

The score is that of the CARLA leaderboard 2.0 (https://leaderboard.carla.org): route completion in percent times the product
of a coefficient per infraction, and times 1 - the share of the distance in lanes of oncoming traffic, as its
OutsideRouteLanesTest has it. Differs from it: an episode ends with its first infraction, where the leaderboard lets a
collision or a red light pass and goes on, so that a product has one factor at most and completion is lost as well; off the
road and off the route end here at 8 m from the lane's middle and at the lane's edge, without a factor, as there routes that
are left beyond 30 m and agents that stand do; more than 50 m in lanes of oncoming traffic end an episode, if they are more
than a fifth of the way; in junctions the lane before them counts; stop signs, scenario time-outs and the least speed have no
rule.
"""

from __future__ import annotations

from robo_rl.evaluation.measures import Measure
from robo_sims.carla.judge import INFRACTIONS

COEFFICIENTS = {"collision_walker": 0.50, "collision_vehicle": 0.60, "collision_static": 0.65, "red_light": 0.70}
"""By infraction; the others have 1."""
MEASURES = (
    Measure("route_completion", "%", "of the route"),
    Measure(
        "driving_score",
        "%",
        "route completion times the coefficient of the infraction that ended the episode, times 1 - oncoming_share",
    ),
    Measure("oncoming_share", "%", "of the distance that was driven, in lanes of oncoming traffic"),
    Measure("distance", "km", "of the route that was driven, in an episode"),
    *(Measure(name, "1/km", "infractions per km of the route that was driven", per="distance") for name in INFRACTIONS),
)


def measured(completion: float, farthest: float, reason: str | None, oncoming: float) -> dict[str, float]:
    """Returns the values of `MEASURES` so far.

    completion: share of the route. farthest: [m] along it. reason: why the episode is over, or None. oncoming: share of the
    distance in lanes of oncoming traffic.
    """
    return {
        "route_completion": 100.0 * completion,
        "driving_score": 100.0 * completion * COEFFICIENTS.get(reason or "", 1.0) * (1.0 - oncoming),
        "oncoming_share": 100.0 * oncoming,
        "distance": farthest / 1000.0,
        **{name: float(name == reason) for name in INFRACTIONS},
    }
