"""Steps on which factors of a latent reward are tried."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import gymnasium
import numpy as np

from robo_rl.protocols.components import Policy
from robo_rl.rewards.step_rewards.abstraction import Columns, EnvAbstraction
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import EnvironmentSpec


def columns_of_steps(environment: gymnasium.Env, spec: EnvironmentSpec, view: EnvAbstraction, count: int) -> Columns:
    """Return the columns of `count` steps: half with random actions and half of the expert.

    All random if there is no expert.
    """
    random = RandomPolicy(spec, 0)
    policies: list[Callable[[int], Policy]] = [lambda _: random]
    if environment.has_wrapper_attr("scripted_policy"):
        policies.append(partial(environment.get_wrapper_attr("scripted_policy"), noise=0.1))
    parts = []
    for policy_of in policies:
        missing, seeds = -(-count // len(policies)), itertools.count()
        while missing > 0:
            seed = next(seeds)
            columns = view.batch(rollout(environment, policy_of(seed), seed=seed))
            parts.append({name: values[:missing] for name, values in columns.items()})
            missing -= len(parts[-1]["action"])
    return {name: np.concatenate([part[name] for part in parts]) for name in view.columns}
