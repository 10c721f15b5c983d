"""Conformance suite of learners and policies, built in or third party.

    from robo_rl.conformance.learners import check_learner
    check_learner(lambda seed: MyConfig().build(spec, seed), spec, rows=256)      # raises ConformanceFailure

`rows` is the number of transitions per update, sampling.batch_size * sampling.updates_per_step. For a learner with extras pass
`sampling.extras`, too.
"""

from __future__ import annotations

import copy
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robo_rl.conformance.rules import Rule
from robo_rl.errors import NonFiniteUpdate
from robo_rl.extras import Chunks, Extra, NextActions, ReturnsToGo
from robo_rl.protocols.components import Learner, Policy, TransferablePolicy
from robo_rl.protocols.planning import replan
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, packed, save_checkpoint, unpacked
from robo_rl.spec.cost import cost_names
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Episode

MakeLearner = Callable[[int], Learner]
"""Function that makes an untrained learner from a seed."""
MakeBatch = Callable[[int], Batch]
"""Function that returns a random batch, in the shape that the learner requests, from a seed."""
LearnerCheck = Callable[[MakeLearner, EnvironmentSpec, MakeBatch], None]

EXTRAS: tuple[Extra, ...] = (NextActions(), ReturnsToGo(), Chunks(4))
"""Further entries of a batch, such as returns to go, that learners of robo_policies need."""
_UPDATES = 3


def check_learner(make: MakeLearner, spec: EnvironmentSpec, rows: int, extras: Sequence[Extra] = EXTRAS) -> None:
    """Run every check on learners whose `update` takes `rows` transitions with `extras`; raises ConformanceFailure."""
    for check in LEARNER_CHECKS:
        check(make, spec, batches(spec, rows, extras))


def batches(spec: EnvironmentSpec, rows: int, extras: Sequence[Extra] = EXTRAS) -> MakeBatch:
    """Return a function that makes random batches from a seed."""
    return lambda seed: random_batch(spec, rows, seed=seed, extras=extras)


def check_policy(policy: Policy, spec: EnvironmentSpec) -> None:
    """Require that a policy acts as its interface says; raises ConformanceFailure at the first broken rule.

    Actions must fit the spec, repeat if deterministic, stay unchanged after later calls, and ignore privileged entries. After
    `replan` an action must follow from its own observation.
    """
    require = Rule(type(policy).__name__, "actions are those of the spec")
    policy.reset()
    for observation in _observations(spec, 12):
        for deterministic in (True, False):
            action = policy.act(observation, deterministic=deterministic)
            kind = np.asarray(action).dtype
            require(kind == spec.action.dtype, "an action has the wrong type", got=kind, allowed=spec.action.dtype)
            require(action in spec.action.space, "an action leaves the spec", got=action, allowed=spec.action.space)
    first, second = _observations(spec, 2)
    policy.reset()
    action = policy.act(first, deterministic=True)
    kept = np.copy(action)
    policy.act(second, deterministic=True)
    require(np.array_equal(action, kept), "an action changes when the next one is chosen", got=action, allowed=kept)
    policy.reset()
    again = policy.act(first, deterministic=True)
    require(np.array_equal(again, kept), "a deterministic action does not repeat after a reset", got=again, allowed=kept)
    changed = {**first, **{name: second[name] for name in spec.observation.subset("privileged")}}
    missing = {name: first[name] for name in spec.observation.visible}
    for observation in (changed, missing):
        policy.reset()
        other = policy.act(observation, deterministic=True)
        require(np.array_equal(other, kept), "an action depends on privileged entries", got=other, allowed=kept)
    _no_plan_outlives_replan(policy, spec, require)


def _no_plan_outlives_replan(policy: Policy, spec: EnvironmentSpec, require: Rule) -> None:
    """Require that an action after `replan` follows from its own observation."""
    if spec.action.is_discrete:  # two observations often have the same choice
        return
    first, *others = _observations(spec, 12)
    fresh, after = [], []
    for observation in others:
        policy.reset()
        fresh.append(policy.act(observation, deterministic=True))
        policy.reset()
        policy.act(first, deterministic=True)
        replan(policy)
        after.append(policy.act(observation, deterministic=True))
    says_nothing = len(np.unique(fresh, axis=0)) == 1 or np.abs(after).min() == 1.0  # looks at nothing, or is at its limits
    follows = says_nothing or len(np.unique(after, axis=0)) > 1
    require(follows, "an action after `replan` was planned before: the policy needs a method `replan`", got=after[0])


def its_policy_conforms(make: MakeLearner, spec: EnvironmentSpec, batch_of: MakeBatch) -> None:
    """Require that the policy passes `check_policy`, before and after updates."""
    learner = make(0)
    check_policy(learner.policy, spec)
    _update(learner, batch_of)
    check_policy(learner.policy, spec)


def metrics_are_floats_by_tag(make: MakeLearner, spec: EnvironmentSpec, batch_of: MakeBatch) -> None:
    """Require that `update` returns a dict of finite floats under tags such as train/critic_loss; it may be empty."""
    learner = make(0)
    require = Rule(type(learner).__name__, "metrics are floats by tag")
    for tag, value in learner.update(batch_of(0)).items():
        finite = isinstance(value, float) and bool(np.isfinite(value))
        require(finite and "/" in tag, "a metric is not a finite float under a tag with a slash", got=(tag, value))


def seed_determines_updates(make: MakeLearner, spec: EnvironmentSpec, batch_of: MakeBatch) -> None:
    """Require that the same seed and batches give the same state bit for bit, and another seed another state.

    Global random generators must not be used.
    """
    first, second, other = (make(seed) for seed in (0, 0, 1))
    require = Rule(type(first).__name__, "seed determines updates")
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    _update(first, batch_of)
    require((random.getstate(), repr(np.random.get_state())) == before, "a global generator is used")  # noqa: NPY002
    _update(second, batch_of)
    difference = different_leaves(first.state_dict(), second.state_dict())
    require(not difference, "two learners of one seed differ after the same updates", got=difference)
    require(bool(different_leaves(first.state_dict(), other.state_dict())), "the seed changes nothing")


def saved_state_continues_exactly(make: MakeLearner, spec: EnvironmentSpec, batch_of: MakeBatch) -> None:
    """Require that a learner restored from a checkpoint on disk takes the same next updates, bit for bit."""
    learner, restored = make(0), make(1)
    require = Rule(type(learner).__name__, "saved state continues exactly")
    _update(learner, batch_of)
    state = learner.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), Checkpoint(1, {"learner": state}))
        restored.load_state_dict(load_checkpoint(Path(folder)).parts["learner"])
        _update(learner, batch_of)
        difference = different_leaves(load_checkpoint(Path(folder)).parts["learner"], state)
    require(not difference, "a saved state changes with later updates: it must be a copy", got=difference)
    _update(restored, batch_of)
    difference = different_leaves(learner.state_dict(), restored.state_dict())
    require(not difference, "a restored learner takes other updates", got=difference)


def parameters_act_elsewhere(make: MakeLearner, spec: EnvironmentSpec, batch_of: MakeBatch) -> None:
    """Require that a second policy that loads the parameters of the first acts as the first does."""
    learner, other = make(0), make(1)
    policy, elsewhere = learner.policy, other.policy
    if not isinstance(policy, TransferablePolicy) or not isinstance(elsewhere, TransferablePolicy):
        return
    require = Rule(type(policy).__name__, "parameters act elsewhere")
    _update(learner, batch_of)
    sent = policy.parameters()
    elsewhere.load_parameters(unpacked(packed(sent)))
    observations = list(_observations(spec, 12))
    actions = [policy.act(observation, deterministic=True) for observation in observations]
    found = [elsewhere.act(observation, deterministic=True) for observation in observations]
    require(np.array_equal(actions, found), "the other acts differently", got=found, allowed=actions)
    before = copy.deepcopy(sent)
    _update(learner, batch_of)
    difference = different_leaves(before, sent)
    require(not difference, "parameters change with later updates: they must be copies", got=difference)


def update_that_is_not_finite_is_refused(make: MakeLearner, spec: EnvironmentSpec, batch_of: MakeBatch) -> None:
    """Require that NaN in a batch raises NonFiniteUpdate and changes nothing."""
    learner = make(0)
    require = Rule(type(learner).__name__, "update that is not finite is refused")
    before = copy.deepcopy(learner.state_dict())
    batch = batch_of(0)
    batch.rewards[:] = np.nan
    try:
        learner.update(batch)
    except NonFiniteUpdate:
        difference = different_leaves(before, learner.state_dict())
        require(not difference, "a refused update changes the state", got=difference)
    else:
        require(False, "NaN in the rewards is accepted", allowed="NonFiniteUpdate is raised")


LEARNER_CHECKS: tuple[LearnerCheck, ...] = (
    its_policy_conforms,
    metrics_are_floats_by_tag,
    seed_determines_updates,
    saved_state_continues_exactly,
    parameters_act_elsewhere,
    update_that_is_not_finite_is_refused,
)


def random_batch(spec: EnvironmentSpec, rows: int, *, seed: int, extras: Sequence[Extra] = EXTRAS) -> Batch:
    """Make a batch of `rows` steps from random episodes, in the shapes and types of a spec, with these extras."""
    generator = np.random.default_rng(seed)
    episodes = [_random_episode(spec, int(length), generator) for length in generator.integers(1, 9, size=1 + rows // 4)]
    return RecordedReplay.of(spec, episodes, seed, extras=extras).sample(rows)


def _random_episode(spec: EnvironmentSpec, steps: int, generator: np.random.Generator) -> Episode:
    terminated = bool(generator.random() < 0.8)
    return Episode(
        observations=_stacked_observations(spec, steps + 1, generator),
        actions=spec.action.random(generator, steps),
        policy_actions=spec.action.random(generator, steps),
        rewards=generator.normal(size=steps).astype(np.float32),
        sources=np.zeros(steps, np.int8),
        timestamps=np.arange(steps + 1, dtype=np.float64),
        terminated=terminated,
        truncated=not terminated,
        stop_reason="random",
        success=None,
        seed=None,
        spec_fingerprint=spec.fingerprint,
        costs={name: generator.random(steps).astype(np.float32) for name in cost_names(spec.costs)},
    )


def _update(learner: Learner, batch_of: MakeBatch) -> None:
    for seed in range(_UPDATES):
        learner.update(batch_of(seed))


def _stacked_observations(spec: EnvironmentSpec, rows: int, generator: np.random.Generator) -> dict[str, Array]:
    return {
        name: generator.normal(size=(rows, *array.shape)).astype(array.dtype)
        if np.dtype(array.dtype).kind == "f"
        else generator.integers(0, 8, (rows, *array.shape)).astype(array.dtype)
        for name, array in spec.observation.items()
    }


def _observations(spec: EnvironmentSpec, count: int) -> Iterator[Observation]:
    stacked = _stacked_observations(spec, count, np.random.default_rng(0))
    return ({name: array[row] for name, array in stacked.items()} for row in range(count))


def different_leaves(one: Any, other: Any, path: str = "state") -> list[str]:
    """Return the paths at which two nested states differ in any bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other})
        return [line for key in keys for line in different_leaves(one.get(key), other.get(key), f"{path}/{key}")]
    if hasattr(one, "__array__") or hasattr(other, "__array__"):  # of which one may be missing in the other state
        return [] if np.asarray(one).tobytes() == np.asarray(other).tobytes() else [path]
    return [] if one == other else [path]
