"""Conformance suite of vector environments, for every family, built in or third party.

    from robo_rl.conformance.vector import check_vector_environment
    check_vector_environment("my/Task-v0")              # raises ConformanceFailure, which names the broken rule

The single environment is the reference: the vector environment must return the same as its `SequentialEnvironments`, bit for
bit. The rule about divergence needs the states of a MuJoCo batch in its attribute `datas`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from robo_rl.conformance.rules import Rule
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import InvalidAction
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.types import DIVERGED, Array

Vector = Any
"""gymnasium.vector.VectorEnv with an `environment_spec`, and optionally with `state_dict` and `datas`."""

COUNT = 3
"""Number of environments in a vector environment: the first, the last, and one between."""
_STEPS = 12


@dataclass(frozen=True)
class Subject:
    """Vector environment under test: its name and arguments, from which each check makes new instances."""

    name: str
    """Name of the environment, as `make_vector_environment` takes it."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of the single environment."""

    @contextlib.contextmanager
    def vector(self, mode: AutoresetMode = AutoresetMode.NEXT_STEP, **arguments: Any) -> Iterator[Vector]:
        """Make the vector environment within this context, and close it afterwards.

        arguments: further arguments of `make_vector_environment`.
        """
        made = make_vector_environment(self.name, COUNT, autoreset_mode=mode, **self.arguments, **arguments)
        with contextlib.closing(made):
            yield made

    @contextlib.contextmanager
    def singles(self, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Iterator[SequentialEnvironments]:
        """Make the reference, single environments stepped one by one, within this context, and close it afterwards."""
        made = SequentialEnvironments(lambda: make_environment(self.name, **self.arguments), COUNT, autoreset_mode=mode)
        with contextlib.closing(made):
            yield made

    @cached_property
    def spec(self) -> EnvironmentSpec:
        """The spec of the single environment."""
        with contextlib.closing(make_environment(self.name, **self.arguments)) as environment:
            return specification(environment)

    def actions(self, count: int) -> Array:
        """Return random actions (count, COUNT, ...) for `count` steps, the same at every call."""
        return self.spec.action.random(np.random.default_rng(0), count, COUNT)

    def require(self, rule: str, holds: bool, what: str, *, got: object = None, allowed: object = None) -> None:
        """Raise ConformanceFailure, with `what` as its message, unless `holds` is True.

        Args:
            rule: Name of the rule.
            holds: True if the rule is kept.
            what: What is wrong otherwise.
            got: Value found.
            allowed: Value that would be right.
        """
        Rule(f"vector {self.name}", rule)(holds, what, got=got, allowed=allowed)


VectorCheck = Callable[[Subject], None]


def check_vector_environment(name: str, **arguments: Any) -> None:
    """Run every check on the environment `name`; raises ConformanceFailure at the first broken rule."""
    for check in VECTOR_CHECKS:
        check(Subject(name, arguments))


def spaces_are_batches_of_the_singles(subject: Subject) -> None:
    """Require that spaces, spec and autoreset mode are declared, and agree with the single environment."""
    rule, spec = "spaces are batches of the singles'", subject.spec
    for mode in AutoresetMode:
        with subject.vector(mode) as vector:
            subject.require(rule, vector.metadata.get("autoreset_mode") is mode, "the autoreset mode is not declared")
            difference = spec.differences(vector.environment_spec)
            subject.require(rule, not difference, "the spec is not the single environment's", got=difference)
            for kind, single in (("observation", spec.observation.space), ("action", spec.action.space)):
                batched, one = getattr(vector, f"{kind}_space"), getattr(vector, f"single_{kind}_space")
                subject.require(rule, one == single, f"the single {kind} space is not the spec's")
                subject.require(rule, batched == batch_space(single, COUNT), f"the {kind} space is no batch of it")


def everything_equals_the_singles(subject: Subject, steps: int = _STEPS) -> None:
    """Require the observations, rewards, ends and infos of single environments, bit for bit, in every autoreset mode.

    steps: number of steps that both take with the same actions.
    """
    for mode in AutoresetMode:
        with subject.vector(mode) as vector, subject.singles(mode) as singles:
            compare(subject, f"equals the singles in mode {mode.value}", vector, singles, subject.actions(steps))


def seeds_count_up_or_come_as_a_list(subject: Subject) -> None:
    """Require that seed s gives the environments the seeds s, s + 1, ..., and a list gives each its own."""
    rule = "seeds count up or come as a list"
    with subject.vector() as vector:
        counted = _copy(vector.reset(seed=3)[0])
        listed = _copy(vector.reset(seed=[5, 4, 3])[0])
        for name, value in counted.items():
            subject.require(rule, value[::-1].tobytes() == listed[name].tobytes(), f"{name!r} differs for the same seeds")


def wrong_actions_name_their_environments(subject: Subject) -> None:
    """Require InvalidAction, with the numbers of the environments, for NaN and wrong shapes, before anything moves."""
    rule, action = "wrong actions name their environments", subject.actions(2)
    spoilt = action[0].copy()
    spoilt[1] = subject.spec.action.size if subject.spec.action.is_discrete else np.nan
    with subject.vector() as vector, subject.singles() as singles:
        vector.reset(seed=0)
        singles.reset(seed=0)
        for wrong, words in ((spoilt, "environments [1]"), (action[0][:2], "wrong shape")):
            try:
                vector.step(wrong)
            except InvalidAction as error:
                subject.require(rule, words in str(error), f"the message does not say {words!r}", got=str(error))
            else:
                subject.require(rule, False, "a wrong action is accepted", got=wrong)
        require_same(subject, rule, "after a refused action", vector.step(action[1])[0], singles.step(action[1])[0])


def observations_are_not_shared(subject: Subject) -> None:
    """Require that writing into an observation changes no later one, and that a later step changes no earlier one."""
    rule = "observations are not shared"
    with subject.vector() as vector, subject.singles() as singles:
        observation = vector.reset(seed=0)[0]
        singles.reset(seed=0)
        for action in subject.actions(_STEPS):
            for value in observation.values():
                value[...] = 1
            written, observation = observation, vector.step(action)[0]
            kept = all((value == 1).all() for value in written.values())
            subject.require(rule, kept, "a later step writes into an earlier observation", got=written)
            require_same(subject, rule, "after writing into one", observation, singles.step(action)[0])


def a_restored_batch_continues_alike(subject: Subject) -> None:
    """Require that a restored vector environment continues bit for bit, also in later episodes and in another instance."""
    actions, rule = subject.actions(2 * _STEPS), "a restored batch continues alike"
    with subject.vector() as vector, subject.vector() as other:
        if not hasattr(vector, "state_dict") or not hasattr(other, "load_state_dict"):
            return
        vector.reset(seed=0)
        for action in actions[:_STEPS]:
            vector.step(action)
        state = vector.state_dict()
        expected = [vector.step(action) for action in actions[_STEPS:]] + [vector.reset()]
        for restored in (vector, other):
            restored.load_state_dict(state)
            got = [restored.step(action) for action in actions[_STEPS:]] + [restored.reset()]
            for index, (one, two) in enumerate(zip(got, expected, strict=True)):
                require_same(subject, rule, f"at step {index} after restoring", one, two)


def divergence_stays_with_its_environment(subject: Subject) -> None:
    """Require that NaN in one simulation truncates its episode with "sim_diverged", and changes no other simulation."""
    rule, actions = "divergence stays with its environment", subject.actions(4)
    with subject.vector() as vector, subject.vector() as undisturbed:
        datas = getattr(vector, "datas", None)
        if not datas:  # nothing that can diverge
            return
        before = _copy(vector.reset(seed=0)[0])
        undisturbed.reset(seed=0)
        datas[1].qvel[-1] = np.nan
        observation, rewards, terminated, truncated, infos = vector.step(actions[0])
        expected = undisturbed.step(actions[0])[0]
        subject.require(rule, bool(truncated[1]) and not terminated[1], "a diverged simulation is not truncated", got=truncated)
        subject.require(rule, infos["stop_reason"][1] == DIVERGED, f"the reason is not {DIVERGED!r}", got=infos)
        subject.require(rule, rewards[1] == 0.0, "the reward of the diverged step is not 0", got=rewards)
        require_same(subject, rule, "at the divergence", _rows(observation, [1]), _rows(before, [1]))
        for action in actions[1:]:
            require_same(subject, rule, "of a neighbour", _rows(observation, [0, 2]), _rows(expected, [0, 2]))
            observation, expected = vector.step(action)[0], undisturbed.step(action)[0]
        finite = all(np.isfinite(value).all() for value in observation.values())
        subject.require(rule, finite, "the environment does not recover", got=observation)


def nothing_stays_after_closing(subject: Subject) -> None:
    """Require that close() leaves no thread, and may be called before the first reset and again."""
    before = set(threading.enumerate())
    with subject.vector(threads=2) as vector:
        vector.reset(seed=0)
        vector.step(subject.actions(1)[0])
        vector.close()
    with subject.vector(threads=2):
        pass
    left = set(threading.enumerate()) - before
    subject.require("nothing stays after closing", not left, "threads are left", got=left)


def the_number_of_threads_changes_nothing(subject: Subject) -> None:
    """Require the same results, bit for bit, with one thread and with three."""
    with subject.vector(threads=1) as one, subject.vector(threads=COUNT) as three:
        compare(subject, "the number of threads changes nothing", one, three, subject.actions(_STEPS))


VECTOR_CHECKS: tuple[VectorCheck, ...] = (
    spaces_are_batches_of_the_singles,
    everything_equals_the_singles,
    seeds_count_up_or_come_as_a_list,
    wrong_actions_name_their_environments,
    observations_are_not_shared,
    a_restored_batch_continues_alike,
    divergence_stays_with_its_environment,
    nothing_stays_after_closing,
    the_number_of_threads_changes_nothing,
)


def compare(subject: Subject, rule: str, one: Vector, other: Vector, actions: Array, seed: int = 7) -> int:
    """Step two vector environments with the same actions, and return the number of episodes that ended.

    actions: (T, N, *shape). Raises ConformanceFailure at the first bit that differs.
    """
    require_same(subject, rule, "after the reset", one.reset(seed=seed), other.reset(seed=seed))
    ended = 0
    for index, action in enumerate(actions):
        mine, others = one.step(action), other.step(action)
        require_same(subject, rule, f"at step {index}", mine, others)
        over = mine[2] | mine[3]
        ended += int(over.sum())
        if over.any() and one.metadata["autoreset_mode"] is AutoresetMode.DISABLED:
            again = [vector.reset(options={"reset_mask": over.copy()}) for vector in (one, other)]
            require_same(subject, rule, f"at the reset after step {index}", *again)
    return ended


def require_same(subject: Subject, rule: str, when: str, one: Any, other: Any) -> None:
    """Raise ConformanceFailure if two nested results differ in any bit."""
    difference = _difference("", one, other)
    subject.require(rule, difference is None, f"something differs {when}", got=difference)


def _difference(path: str, one: Any, other: Any) -> str | None:
    """Return the first path at which two nested results differ in any bit, with both values; None if they agree."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"{path or 'keys'}: {sorted(one)} and {sorted(other)}"
        pairs = [(f"{path}/{key}", one[key], other[key]) for key in one]
    elif isinstance(one, tuple | list) or (isinstance(one, np.ndarray) and one.dtype == object):
        pairs = [(f"{path}/{index}", *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    else:
        a, b = np.asarray(one), np.asarray(other)
        same = a.dtype == b.dtype and a.shape == b.shape and (a == b).all() if a.dtype == object else _bits(a) == _bits(b)
        return None if same else f"{path}: {one!r} and {other!r}"
    return next((found for pair in pairs if (found := _difference(*pair)) is not None), None)


def _bits(array: Array) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tobytes()


def _copy(observation: dict[str, Array]) -> dict[str, Array]:
    return {name: value.copy() for name, value in observation.items()}


def _rows(observation: dict[str, Array], indices: list[int]) -> dict[str, Array]:
    return {name: value[indices] for name, value in observation.items()}
