"""A point on a line with known dynamics, and worlds of it that take a moment to learn."""

from functools import cache

import numpy as np

from factories import axes, make_episode, make_spec
from robo_papers.world_models.world import fit_world
from robo_rl.spec.environment import ArraySpec
from robo_rl.worlds.dynamics import DynamicsConfig

SPEC = make_spec(
    "point",
    ArraySpec("place", (1,), low=-5.0, high=5.0),
    ArraySpec("goal", (1,), role="goal"),
    action=axes("push"),
    max_steps=30,
    success_rule="beyond 1",
)
SMALL = DynamicsConfig(hidden=(32,), members=3, elites=2, lr=1e-2, epochs=50, batch_size=128)


def episode(seed, steps=30):
    """Returns an episode of random pushes: x' = x + 0.4 a, reward -|x'|, a success beyond 1, a failure below -1."""
    random = np.random.default_rng(seed)
    place, places, pushes = random.uniform(-0.5, 0.5), [], []
    places.append(place)
    while len(pushes) < steps and abs(place) <= 1:
        pushes.append(random.uniform(-1, 1))
        place += 0.4 * pushes[-1]
        places.append(place)
    observed = {"place": np.array(places, np.float32)[:, None], "goal": np.ones((len(places), 1), np.float32)}
    actions = np.array(pushes, np.float32)[:, None]
    return make_episode(
        observed,
        actions=actions,
        policy_actions=actions,
        rewards=-np.abs(observed["place"][1:, 0]),
        terminated=bool(abs(place) > 1),
        success=bool(place > 1),
        seed=seed,
        spec_fingerprint=SPEC.fingerprint,
    )


def episodes(count=80, first=0):
    return [episode(seed) for seed in range(first, first + count)]


@cache
def learned(shuffles_actions=False):
    """Returns a world of the point; do not change it."""
    return fit_world(SPEC, episodes(), SMALL, shuffles_actions=shuffles_actions)
