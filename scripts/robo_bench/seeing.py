"""Measure updates of learners on the arm that knows the object's place, sees features of a frozen encoder, or sees pictures.

Every contestant has its own process with one thread; processor time counts.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

from robo_bench.contestant import contestant
from robo_bench.measurement import Case, Contestants, Effort, Trial, each, timed
from robo_policies.encoders.fitted import FEATURES
from robo_rl.conformance.learners import random_batch
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec, specification

SETTINGS: dict[str, Any] = {"batch_size": 128, "updates_per_step": 2, "network": {"hidden": (128, 128)}}
"""Settings of the learner, as in the plan `seeing`."""
LEARNERS: dict[str, dict[str, Any]] = {"rlpd": {"critics": 2}, "hil-serl": {"gripper": "gripper_opening"}}
TARGETS = 8
"""Estimates of the object's place and turn, beside the features."""
WARM_UP = 15
ONE_THREAD = Effort(threads=1)


def cases(effort: Effort) -> list[Case]:
    """Return one case for each learner."""
    return [Case(f"update of {name}, states", "ms", partial(_contestants, name)) for name in LEARNERS]


def _contestants(learner: str, effort: Effort, _: ExitStack) -> Contestants:
    kinds = {"ours": "states", "features": "features", "convolutions": "convolutions"}
    return {
        name: contestant(f"{__name__}:updates", {"learner": learner, "kind": kind}, ONE_THREAD) for name, kind in kinds.items()
    }


def updates(learner: str, kind: str) -> Trial:
    """Return a trial of updates: processor time of one [ms]."""
    convolutions = (32, 32, 32, 32) if kind == "convolutions" else ()
    config = updated(load("learners", learner)(), SETTINGS, LEARNERS[learner], network={"convolutions": convolutions})
    spec = _spec(kind)
    built = config.build(spec, 0)
    batch = random_batch(built.policy.environment_spec, config.batch_size * config.updates_per_step, seed=0)
    for _ in range(WARM_UP):
        built.update(batch)
    return lambda seconds: 1e3 * timed(each(lambda: built.update(batch)), seconds).cost


def _spec(kind: str) -> EnvironmentSpec:
    arguments: dict[str, Any] = {} if kind == "states" else {"sees": "both", "image_size": 64}
    with closing(make_environment("robo/ArmPick-v0", action_repeat=3, **arguments)) as environment:
        spec = specification(environment)
    if kind != "features":
        return spec
    features = ArraySpec("picture_features", (FEATURES + TARGETS,), role="object")
    return replace(spec, observation=ObservationSpec((*spec.without_pictures().observation.arrays, features)))
