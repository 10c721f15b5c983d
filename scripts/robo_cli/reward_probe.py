"""Steps of all sorts on which a reward program is tried before anything learns from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import gymnasium
import numpy as np

from robo_cli.assembly import scripted_expert
from robo_rl.discovery import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.protocols import Policy
from robo_rl.rewards.programs.abstraction import EnvAbstraction
from robo_rl.rewards.programs.probation import probation
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.search.writing import Try
from robo_rl.rollout import RandomPolicy, rollout
from robo_rl.spec import EnvironmentSpec, specification
from robo_rl.types import Array, Episode

ROWS = 2000
"""About as many steps are recorded, half of them by the scripted expert where there is one."""
FIRST_SEED = 700_000
"""Of the resets: apart from those of training, demonstrations and evaluations."""


def spec_and_trial(name: str, arguments: Mapping[str, object], sizes: Sequence[int] = ()) -> tuple[EnvironmentSpec, Try]:
    """Returns the spec of an environment, and what tries programs on steps recorded in it now, also in batches of these sizes.

    Recording first shows whether the environment works at all, before a model is asked for anything.
    """
    environment = make_environment(name, **arguments)
    spec = specification(environment)
    view = EnvAbstraction.of(spec)
    batches = [view.batch(episode) for episode in _episodes(environment, name, spec)]
    environment.close()
    columns = {column: np.concatenate([batch[column] for batch in batches]) for column in view.columns}
    return spec, partial(_tried, columns, sizes)


def batch_sizes(learner: object) -> tuple[int, ...]:
    """Returns how many steps a learner that asks for the rewards of whole rollouts asks for at once; nothing for others."""
    for environments, steps in (("num_envs", "steps_per_env"), ("n_envs", "n_steps")):
        if hasattr(learner, environments) and hasattr(learner, steps):
            return (getattr(learner, environments) * getattr(learner, steps),)
    return ()


def _tried(columns: Mapping[str, Array], sizes: Sequence[int], program: RewardProgram) -> tuple[str, str]:
    verdict = probation(program, columns, sizes=sizes)
    if verdict.passed:
        return "ok", ""
    failed = next(finding for finding in verdict.findings if finding.kind == "failure")
    return failed.check, verdict.feedback


def _episodes(environment: gymnasium.Env[object, object], name: str, spec: EnvironmentSpec) -> Iterator[Episode]:
    for policies in _kinds(environment, name, spec):
        rows, seed = 0, FIRST_SEED
        while rows < ROWS // 2:
            episode = rollout(environment, policies(seed), seed=seed)
            rows, seed = rows + len(episode), seed + 1
            yield episode


def _kinds(environment: gymnasium.Env[object, object], name: str, spec: EnvironmentSpec) -> Iterator[Callable[[int], Policy]]:
    yield partial(RandomPolicy, spec)
    try:
        expert = scripted_expert(environment, name)
    except InvalidSetting:
        return
    yield lambda seed: expert(seed, noise=0.1)
