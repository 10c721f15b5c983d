"""Measure updates alone of learners with gradients, by engine, and against other versions of the project.

Every contestant has its own process with one thread; processor time counts.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from robo_bench.contestant import contestant
from robo_bench.measurement import Case, Contestants, Effort, Trial, each, timed
from robo_rl.conformance.learners import random_batch
from robo_rl.entry_points import load
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec

LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sac": ("sac", {}),
    "rlpd-2": ("rlpd", {"critics": 2, "updates_per_step": 1}),
    "rlpd-10": ("rlpd", {"critics": 10, "updates_per_step": 1}),
    "hil-serl": ("hil-serl", {}),
    "iql": ("iql", {}),
    "cql": ("cql", {}),
    "td3-bc": ("td3-bc", {}),
}
WARM_UP = 15
ONE_THREAD = Effort(threads=1)
SPEC = EnvironmentSpec(
    "speed", ObservationSpec((ArraySpec("state", (17,)),)), ActionSpec(tuple("abcdef"), (-1.0,) * 6, (1.0,) * 6, ("1",) * 6)
)
"""Spec of a stand-in environment with the sizes of HalfCheetah: 17 observed numbers and 6 actions."""


def cases(effort: Effort) -> list[Case]:
    """Return one case for each learner."""
    return [Case(f"update of {name}", "ms", partial(_contestants, name)) for name in LEARNERS]


def _contestants(learner: str, effort: Effort, _: ExitStack) -> Contestants:
    ours, trial = {"learner": learner}, f"{__name__}:updates"
    others = {python: contestant(trial, ours, ONE_THREAD, python) for python in effort.beside}
    reference = contestant(trial, ours | {"engine": "reference"}, ONE_THREAD)
    return {"ours": contestant(trial, ours, ONE_THREAD), "engine reference": reference} | others


def updates(learner: str, engine: str | None = None) -> Trial:
    """Return a trial of a learner's updates on random data: processor time of one update [ms].

    Args:
        learner: Name of the learner, a key of LEARNERS.
        engine: Setting `network.engine` of the learner; None leaves the default, also in versions without this setting.
    """
    name, settings = LEARNERS[learner]
    config: Any = load("learners", name)(**settings)
    if engine is not None:
        from robo_rl.settings import updated  # versions without groups of settings have it not

        config = updated(config, network={"engine": engine})
    built = config.build(SPEC, 0)
    batch = random_batch(SPEC, config.batch_size * getattr(config, "updates_per_step", 1), seed=0)
    for _ in range(WARM_UP):
        built.update(batch)
    return lambda seconds: 1e3 * timed(each(lambda: built.update(batch)), seconds).cost
