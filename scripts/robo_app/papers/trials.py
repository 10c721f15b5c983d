"""Short trainings of any learner in the environment of the conformance suite, with its usual training loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium

from robo_rl.conformance.corrector import Corrector
from robo_rl.conformance.swerving import Factory, Swerving
from robo_rl.conformance.trainings import Trial, run_trial
from robo_rl.protocols.components import Training
from robo_rl.protocols.contract import (
    DATA,
    OFFLINE,
    OFFLINE_THEN_CORRECTED,
    OFFLINE_THEN_ONLINE,
    ONLINE,
    ONLINE_IN_MANY,
    ROLLOUTS,
    Feature,
)
from robo_rl.rollout.episode import rollout
from robo_rl.rollout.intervention import PersonInTheLoop
from robo_rl.training.compatibility import Capabilities
from robo_rl.training.plan import OnlinePhase, TrainingPlan

STEPS, UPDATES = 123, 3
"""Sizes of a component's trial: environment steps, and updates of an offline phase.

The steps are no multiple of an episode's or a rollout's length, so that partial ones occur.
"""
DEMONSTRATIONS, CAPACITY = 30, 1_000
Around = Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]


def run_learner(
    config: Any,
    *,
    environment: Callable[[], Swerving] | None = None,
    wrap: Around = lambda inner: inner,
    count: int = 1,
    corrected: bool = False,
    accompanied: bool = False,
) -> Trial:
    """Run a short training to its end, and return it for the checks of `robo_rl.conformance.trainings`.

    Args:
        config: Settings of the learner.
        environment: Makes the environment; by default Swerving with continuous or discrete actions, as the learner needs.
        wrap: Wraps the environment.
        count: Number of environments that step together.
        corrected: True if a simulated person takes over at times, and the checks test the corrections.
        accompanied: True if a simulated person takes over at times, and the checks ignore it.
    """
    able = Capabilities.of(config)
    made = environment or (lambda: Swerving(is_discrete=Feature.CONTINUOUS not in able.spaces))
    loop = next((each for each in able.loops if each in (OFFLINE_THEN_ONLINE, OFFLINE_THEN_CORRECTED)), able.loops[0])
    loop = ONLINE_IN_MANY if count > 1 else loop
    is_corrected = corrected or loop is OFFLINE_THEN_CORRECTED
    has_data = any(each in able.loops for each in DATA)
    is_offline_first = (loop not in (ONLINE, ONLINE_IN_MANY) and has_data) or loop is OFFLINE_THEN_CORRECTED
    needs_data = is_offline_first or Feature.DEMONSTRATIONS in able.requires
    updates = UPDATES if is_offline_first else 0

    def make(factory: Factory, steps: int) -> Training:
        source = made()
        still = source.scripted_policy(0)
        data = [rollout(source, still, seed=seed) for seed in range(DEMONSTRATIONS)] if needs_data else []
        around: Any = lambda: wrap(factory())  # noqa: E731
        online = OnlinePhase(steps, replay_capacity=CAPACITY) if updates else OnlinePhase()
        person = (lambda inner: (inner, PersonInTheLoop(Corrector(), None))) if is_corrected or accompanied else None
        spec = around().get_wrapper_attr("environment_spec")
        factory.made.clear()
        plan = TrainingPlan(config, loop, spec, around, updates or steps, 0, demonstrations=data, online=online, person=person)
        return dataclasses.replace(plan, count=count).training()

    # rollouts are resumed exactly where environments can be saved; those of the suite cannot
    resume: Any = "warm" if loop is ROLLOUTS else "exact" if loop is ONLINE_IN_MANY else loop.resume
    steps = 0 if loop is OFFLINE else STEPS
    return run_trial(make, environment=made, steps=steps, updates=updates, resume=resume, corrected=is_corrected)
