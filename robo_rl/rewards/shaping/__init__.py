"""Stages between a reward and the policy that learns from it: potentials, bounds, differences, sigmoids, scales."""

from __future__ import annotations

from robo_rl.rewards.shaping.bounds import Bound, Clip
from robo_rl.rewards.shaping.delta import Delta
from robo_rl.rewards.shaping.par import PreferenceAsReward
from robo_rl.rewards.shaping.potential import Potential
from robo_rl.rewards.shaping.scale import Scale
from robo_rl.rewards.shaping.stage import Stage

STAGES: dict[str, type[Stage]] = {
    "potential": Potential,
    "clip": Clip,
    "bound": Bound,
    "delta": Delta,
    "par": PreferenceAsReward,
    "scale": Scale,
}
"""Name in a recipe -> stage."""
