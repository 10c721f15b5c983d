"""Conformance suite of environments, built in or third party.

    from robo_rl.conformance.environments import check_environment
    check_environment(lambda: MyEnvironment())          # raises ConformanceFailure, which names the broken rule

With pytest, one row of a table is one test per rule:

    @pytest.mark.parametrize("check", ENVIRONMENT_CHECKS, ids=lambda check: check.__name__)
    def test_my_environment(check): check(MyEnvironment)

Each check makes its own environments and raises ConformanceFailure if the rule is broken. The rule about divergence needs the
state of a MuJoCo environment in its attribute `data`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from robo_rl.conformance.rules import Rule
from robo_rl.errors import InvalidAction, InvalidObservation
from robo_rl.evaluation.measures import measures_of
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.types import DIVERGED, MEASURES, Array

Environment = gymnasium.Env[Any, Any]
Make = Callable[[], Environment]
EnvironmentCheck = Callable[[Make], None]

_STEPS = 12
"""Steps of the short episodes."""


def check_environment(make: Make) -> None:
    """Run every check on environments that `make` returns; raises ConformanceFailure at the first broken rule."""
    for check in ENVIRONMENT_CHECKS:
        check(make)


def spaces_derive_from_spec(make: Make) -> None:
    """Require that both spaces are those of the spec, and that the spec survives JSON."""
    with _rule(make, spaces_derive_from_spec) as (environment, spec, require):
        require(environment.observation_space == spec.observation.space, "the observation space is not the spec's")
        require(environment.action_space == spec.action.space, "the action space is not the spec's")
        copy = EnvironmentSpec.from_json(json.loads(json.dumps(spec.to_json())))
        require(copy == spec, "the spec changes on its way through JSON", got=copy.differences(spec))


def specs_of_two_instances_agree(make: Make) -> None:
    """Require that two environments made alike have the same fingerprint."""
    with _rule(make, specs_of_two_instances_agree) as (_, spec, require), contextlib.closing(make()) as other:
        difference = spec.differences(specification(other))
        require(not difference, "two instances made alike have different specs", got=difference)


def observations_match_spec(make: Make) -> None:
    """Require right keys, shapes, types, finite numbers and limits after the reset and after every step."""
    with _rule(make, observations_match_spec) as (environment, spec, require):
        for step in _episode(environment, seed=0, steps=_STEPS):
            try:
                spec.observation.validate(step.observation)
            except InvalidObservation as error:
                require(False, str(error))
            for name, array in spec.observation.items():
                value = step.observation[name]
                require(value in array.space, f"observation {name!r} leaves its limits", got=value, allowed=array.space)


def reset_depends_on_seed_alone(make: Make) -> None:
    """Require that the same seed gives the same first observation, in a fresh instance and after another episode."""
    with _rule(make, reset_depends_on_seed_alone) as (environment, _, require), contextlib.closing(make()) as used:
        list(_episode(used, seed=1, steps=_STEPS))
        used.reset()
        first = _copy(environment.reset(seed=7)[0])
        again, _ = environment.reset(seed=7)
        after, _ = used.reset(seed=7)
        for observation, where in ((again, "a second reset"), (after, "an instance that has run another episode")):
            require(_same(first, observation), f"seed 7 begins otherwise in {where}", got=_unequal(first, observation))


def episode_replays(make: Make) -> None:
    """Require that the same seed and actions give the same observations, rewards and ends, bit for bit."""
    with _rule(make, episode_replays) as (environment, _, require), contextlib.closing(make()) as used:
        list(_episode(used, seed=1, steps=_STEPS))
        pairs = zip(_episode(environment, seed=3, steps=_STEPS), _episode(used, seed=3, steps=_STEPS), strict=True)
        for index, (one, other) in enumerate(pairs):
            where = f"at step {index} of a replay"
            same = _same(one.observation, other.observation)
            require(same, f"observations differ {where}", got=_unequal(one.observation, other.observation))
            require(one.outcome == other.outcome, f"rewards or ends differ {where}", got=(one.outcome, other.outcome))


def rewards_are_finite_numbers(make: Make) -> None:
    """Require that each reward is one finite number."""
    with _rule(make, rewards_are_finite_numbers) as (environment, _, require):
        for step in _episode(environment, seed=0, steps=_STEPS):
            finite = isinstance(step.reward, float | int | np.floating) and bool(np.isfinite(step.reward))
            require(finite, "a reward is not a finite number", got=repr(step.reward))


def info_has_right_types(make: Make) -> None:
    """Require that the known keys of `info` have the right types."""
    with _rule(make, info_has_right_types) as (environment, _, require):
        declared = {measure.name for measure in measures_of(environment)}
        for step in _episode(environment, seed=0, steps=_STEPS):
            for name, kind in (("success", bool), ("stop_reason", str), ("instruction", str), ("reward_terms", dict)):
                if name in step.info:
                    require(isinstance(step.info[name], kind), f"info[{name!r}] is no {kind.__name__}", got=step.info[name])
            for name, value in step.info.get(MEASURES, {}).items():
                require(name in declared, f"info[{MEASURES!r}] has a name that is not in the attribute `measures`", got=name)
                require(isinstance(value, float) and np.isfinite(value), f"measure {name!r} is not a finite float", got=value)
            for name, value in step.info.get("reward_terms", {}).items():
                require(
                    isinstance(value, float) and np.isfinite(value), f"reward term {name!r} is not a finite float", got=value
                )


def episodes_end_for_one_reason(make: Make) -> None:
    """Require that an episode ends terminated or truncated, never both, gives a stop reason, and keeps the time limit."""
    with _rule(make, episodes_end_for_one_reason) as (environment, spec, require):
        limit = spec.max_steps
        for count, step in enumerate(_episode(environment, seed=0, steps=(limit or 100) + 1)):
            terminated, truncated, reason = step.terminated, step.truncated, step.info.get("stop_reason")
            require(isinstance(terminated, bool) and isinstance(truncated, bool), "an end flag is not a bool", got=step.outcome)
            require(not (terminated and truncated), "a step is both terminated and truncated")
            ended = terminated or truncated
            require(ended == (reason is not None), "stop_reason comes with the end, and only then", got=step.info)
            timed_out = reason == "time_limit"
            require(not timed_out or truncated, "a time limit is a truncation, not a terminal state", got=step.outcome)
            if limit is not None:
                require(not timed_out or count == limit, "the time limit comes early", got=count, allowed=limit)
                require(ended or count < limit, "the episode goes on past max_steps", got=count, allowed=limit)


def actions_at_the_limits_are_accepted(make: Make) -> None:
    """Require that every corner value of the action range, or every choice, is accepted."""
    with _rule(make, actions_at_the_limits_are_accepted) as (environment, spec, require):
        action = spec.action
        zeros = np.zeros(action.shape, np.float32)
        legal = list(range(action.size)) if action.is_discrete else [zeros - 1.0, zeros + 1.0, zeros]
        for value in legal:
            environment.reset(seed=0)
            observation, *_ = environment.step(value)
            require(set(observation) == set(spec.observation), "an action at the limit breaks the step", got=value)


def wrong_actions_are_refused(make: Make) -> None:
    """Require that NaN, a wrong shape and an unknown choice raise InvalidAction, and that the episode can go on afterwards."""
    with _rule(make, wrong_actions_are_refused) as (environment, spec, require):
        environment.reset(seed=0)
        size = spec.action.size
        wrong: list[tuple[Any, str]] = [(np.zeros(size + 1, np.float32), "wrong shape")]
        if spec.action.is_discrete:
            wrong += [(size, "Unknown discrete action")]
        else:
            wrong += [(np.full(size, np.nan, np.float32), "NaN"), (np.full(size, np.inf, np.float32), "infinity")]
        for action, words in wrong:
            try:
                environment.step(action)
            except InvalidAction as error:
                require(words in str(error), f"the message does not say {words!r}", got=str(error))
            else:
                require(False, "a wrong action is accepted", got=action, allowed="InvalidAction is raised")
        environment.step(_actions(spec, 0)[0])


def observations_are_not_shared(make: Make) -> None:
    """Require that writing into a returned observation changes no later one."""
    with _rule(make, observations_are_not_shared) as (environment, spec, require), contextlib.closing(make()) as spoilt:
        observation, _ = environment.reset(seed=0)
        other, _ = spoilt.reset(seed=0)
        for action in _actions(spec, _STEPS):
            for value in other.values():
                value[...] = 1
            observation, _, terminated, truncated, _ = environment.step(action)
            other, *_ = spoilt.step(action)
            require(_same(observation, other), "an observation is reused by a later step", got=_unequal(observation, other))
            if terminated or truncated:
                return


def arrays_are_fresh(make: Make) -> None:
    """Require that a later step or reset changes no observation that was returned before."""
    with _rule(make, arrays_are_fresh) as (environment, _, require):
        returned: list[tuple[dict[str, Array], dict[str, Array]]] = []
        for steps in (_STEPS, 1):  # the second episode begins with a reset after the steps of the first
            for step in _episode(environment, seed=0, steps=steps):
                returned.append((step.observation, _copy(step.observation)))
                for kept, before in returned:
                    fix = "return copies: a later step writes into an observation that was returned"
                    require(_same(before, kept), fix, got=_unequal(before, kept))


def closing_twice_is_harmless(make: Make) -> None:
    """Require that close() raises nothing before the first reset, and when it is called twice."""
    with _rule(make, closing_twice_is_harmless) as (environment, _, _require):
        environment.reset(seed=0)
        environment.close()
        environment.close()
    unused = make()
    unused.close()


def divergence_ends_the_episode(make: Make) -> None:
    """Require that NaN in the velocities of a MuJoCo state truncates the episode, and that a reset recovers.

    The stop reason must be "sim_diverged", the reward finite, and the observation the last finite one.
    """
    with _rule(make, divergence_ends_the_episode) as (environment, spec, require):
        first = _copy(environment.reset(seed=5)[0])
        data = _mujoco_data(environment)
        if data is None:
            return
        data.qvel[-1] = np.nan
        observation, reward, terminated, truncated, info = environment.step(_actions(spec, 1)[0])
        require(truncated and not terminated, "a diverged simulation is not truncated", got=(terminated, truncated))
        require(info.get("stop_reason") == DIVERGED, f"stop_reason is not {DIVERGED!r}", got=info)
        require(bool(np.isfinite(float(reward))), "the reward of the diverged step is not finite", got=reward)
        require(_same(first, observation), "the observation is not the last finite one", got=_unequal(first, observation))
        again, _ = environment.reset(seed=5)
        require(_same(first, again), "a reset does not recover from divergence", got=_unequal(first, again))
        environment.step(_actions(spec, 1)[0])


ENVIRONMENT_CHECKS: tuple[EnvironmentCheck, ...] = (
    spaces_derive_from_spec,
    specs_of_two_instances_agree,
    observations_match_spec,
    reset_depends_on_seed_alone,
    episode_replays,
    rewards_are_finite_numbers,
    info_has_right_types,
    episodes_end_for_one_reason,
    actions_at_the_limits_are_accepted,
    wrong_actions_are_refused,
    observations_are_not_shared,
    arrays_are_fresh,
    closing_twice_is_harmless,
    divergence_ends_the_episode,
)


@dataclass(frozen=True)
class _Step:
    observation: dict[str, Array]
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[str, Any]

    @property
    def outcome(self) -> tuple[Any, Any, Any]:
        return self.reward, self.terminated, self.truncated


@contextlib.contextmanager
def _rule(make: Make, check: EnvironmentCheck) -> Iterator[tuple[Environment, EnvironmentSpec, Rule]]:
    """Make an environment for one check and close it afterwards."""
    environment = make()
    try:
        spec = specification(environment)
        yield environment, spec, Rule(spec.name, check.__name__.replace("_", " "))
    finally:
        environment.close()


def _actions(spec: EnvironmentSpec, count: int) -> list[Array]:
    """Return at least one random action, the same ones at every call, to compare two episodes."""
    return list(spec.action.random(np.random.default_rng(0), max(count, 1)))


def _episode(environment: Environment, *, seed: int, steps: int) -> Iterator[_Step]:
    """Yield the reset, then each step until the episode ends or `steps` are done."""
    observation, info = environment.reset(seed=seed)
    yield _Step(observation, 0.0, False, False, info)
    for action in _actions(specification(environment), steps):
        step = _Step(*environment.step(action))
        yield step
        if step.terminated or step.truncated:
            return


def _mujoco_data(environment: Environment) -> Any:
    """Return the MuJoCo state of an environment, its `data` or that of its `physics`; None if there is none."""
    inner = environment.unwrapped
    data = getattr(inner, "data", None) or getattr(getattr(inner, "physics", None), "data", None)
    return data if hasattr(data, "qvel") else None


def _copy(observation: dict[str, Array]) -> dict[str, Array]:
    return {name: value.copy() for name, value in observation.items()}


def _unequal(one: dict[str, Array], other: dict[str, Array]) -> list[str]:
    """Return the names of the arrays that differ in any bit."""
    return [name for name in one if one[name].tobytes() != other[name].tobytes()]


def _same(one: dict[str, Array], other: dict[str, Array]) -> bool:
    return not _unequal(one, other)
