"""Wrapper of any environment with a task that a reward machine or a formula states; the machine's state is observed.

Counterfactual experiences (CRM) are those of Toro Icarte et al. 2022, arXiv:2010.03950, section 4.2, for whole episodes: each
episode is repeated from the other states of the machine. Shaping is theirs of section 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_papers.reward_machines.machine import RewardMachine
from robo_rl.environments.scored import ScoredSteps
from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.contract import Feature
from robo_rl.replay.imagined import IMAGINED
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.system.plain_files import read_yaml
from robo_rl.types import DIVERGED, Array, Transition

STATE = "machine_state"
"""Name of the observation entry with the state of the machine, one-hot."""
LABELS = "machine_labels"
"""Key of `info`: names of the labels that hold after a step."""
FORMS = (
    "{entry: NAME, near: [...], within: D}, {entry: NAME, index: I, above: X} or below, {success: true}, "
    "or {reward: NAME, settings: {...}}"
)


@dataclass(frozen=True)
class EntryLabel:
    """Label that holds if an entry of the observation is near a point, or one of its numbers is beyond a limit."""

    entry: str
    near: tuple[float, ...] = ()
    within: float = 0.0
    index: int = 0
    above: float = -np.inf
    below: float = np.inf

    def holds(self, observation: Observation, info: Mapping[str, Any]) -> bool:
        """Return True if the condition holds after a step with this observation."""
        del info
        values = np.asarray(observation[self.entry], np.float64).ravel()
        if self.near:
            return bool(np.linalg.norm(values - np.array(self.near)) <= self.within)
        return bool(self.above < values[self.index] < self.below)


class SuccessLabel:
    """Label that holds where the environment says that its own task succeeded."""

    def holds(self, observation: Observation, info: Mapping[str, Any]) -> bool:
        """Return True if the environment reports success of its own task in `info`."""
        del observation
        return bool(info.get("success", False))


class MachineEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper whose reward is that of a reward machine, and which observes the machine's state."""

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        machine: str | Mapping[str, Any],
        *,
        shaping: float = 0.0,
        counterfactual: bool = False,
        observes: bool = True,
        reward_weight: float = 0.0,
    ) -> None:
        """Raise InvalidSetting and UnknownName for a machine that is none.

        machine: a file (YAML) or its content: `labels`, and a `formula` or `edges` (robo_papers.reward_machines.machine).
        shaping: discount of the learner, to add potentials of the machine; 0 for none.
        counterfactual: tell each episode again from the other states of the machine, to a learner with a replay memory.
        observes: False hides the machine's state, a control. reward_weight: of the environment's own reward beside it.
        """
        super().__init__(environment)
        spec = specification(environment)
        content = read_yaml(Path(machine)) if isinstance(machine, str) else machine
        labels = content.get("labels") if isinstance(content, Mapping) else None
        if not isinstance(labels, Mapping) or not labels:
            raise InvalidSetting("A machine has no labels.", got=machine, allowed=f"labels: {{NAME: {FORMS}}}")
        if not 0.0 <= shaping <= 1.0:
            raise InvalidSetting("shaping is out of range.", got=shaping, allowed="0 to 1, the discount of the learner")
        self._labels = {str(name): _label(str(name), given, spec) for name, given in labels.items()}
        rest = {key: value for key, value in content.items() if key != "labels"}
        self.machine = RewardMachine.read(rest, [*self._labels])
        self._labels = {name: self._labels[name] for name in self.machine.labels}
        self._observes, self._weight, self._repeats = observes, float(reward_weight), counterfactual
        self._discount = shaping
        self._potentials = self.machine.potentials(shaping) if shaping else np.zeros(len(self.machine.states))
        self.environment_spec: EnvironmentSpec = replace(
            spec,
            observation=ObservationSpec((*spec.observation.arrays, *([self._entry()] if observes else []))),
            success_rule=f"the machine ends in one of: {', '.join(self._successes())}",
        )
        self.observation_space = self.environment_spec.observation.space
        self.state = 0
        """Number of the machine's state."""
        self._taken: list[tuple[Observation, Array, float, Observation, bool, bool, int]] = []
        self._before: Observation = {}
        self._seed = 0

    def _entry(self) -> ArraySpec:
        meaning = f"one-hot: {', '.join(self.machine.states)}"
        return ArraySpec(STATE, (len(self.machine.states),), low=0.0, high=1.0, meaning=meaning[:300])

    def _successes(self) -> list[str]:
        return [name for name, is_one in zip(self.machine.states, self.machine.success, strict=True) if is_one]

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        for label in self._labels.values():
            if isinstance(label, ScoredSteps):
                label.begin(observation, info)
        self.state, self._taken, self._before = 0, [], observation
        self._seed = self._seed + 1 if seed is None else seed
        return self._seen(observation, 0), info

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        taken = self.env.step(action)
        observation, own, terminated, truncated, info = taken
        holding = [
            name
            for name, label in self._labels.items()
            if (label.value(action, taken) > 0 if isinstance(label, ScoredSteps) else label.holds(observation, info))
        ]
        holds, before = self.machine.number(holding), self.state
        executed = np.asarray(info.get("executed_action", action))
        if self._repeats:
            self._taken.append((self._before, executed, float(own), observation, terminated, truncated, holds))
        self.state, terms, is_over = self._moved(before, holds, float(own), terminated=terminated, truncated=truncated)
        self._before = observation
        is_machines = bool(self.machine.terminal[self.state])
        info = {**info, "reward_terms": terms, LABELS: holding, "machine": self.machine.states[self.state]}
        # the environment's own success is that of another task
        succeeded = (is_over or truncated) and bool(self.machine.success[self.state])
        info |= {"success": succeeded, "is_success": succeeded}
        if is_over or truncated:
            if info.get("stop_reason") != DIVERGED and (is_machines or info.get("stop_reason") == "goal"):
                info["stop_reason"] = "goal" if succeeded else "failure"
            if self._repeats and info.get("stop_reason") != DIVERGED:
                info[IMAGINED] = [*self._imagined()]
        truncated = truncated and not is_machines
        return self._seen(observation, self.state), sum(terms.values()), is_over, truncated, info

    def _moved(
        self, state: int, holds: int, own: float, *, terminated: bool, truncated: bool
    ) -> tuple[int, dict[str, float], bool]:
        """Return the machine's next state, the terms of the reward, and True if that ends the task."""
        following, paid = self.machine.step(state, holds)
        is_over = terminated or bool(self.machine.terminal[following])
        if (terminated or truncated) and not self.machine.terminal[following]:
            paid += float(self.machine.at_end[following])
        terms = {"machine": paid}
        if self._discount:
            ahead = 0.0 if is_over else self._potentials[following]
            terms["shaping"] = float(self._discount * ahead - self._potentials[state])
        if self._weight:
            terms["task"] = self._weight * own
        return following, terms, is_over

    def _imagined(self) -> Iterable[list[Transition]]:
        """Yield the steps of this episode as they would have been from the other states of the machine.

        One that ends early goes on from a state drawn at random, so that later steps are seen in other states, too.
        """
        random = np.random.default_rng([self._seed, len(self._taken)])
        open_states = np.flatnonzero(~self.machine.terminal)
        for first in open_states[1:].tolist():
            state, steps = first, list[Transition]()
            for before, action, own, after, terminated, truncated, holds in self._taken:
                following, terms, is_over = self._moved(state, holds, own, terminated=terminated, truncated=truncated)
                seen = self._seen(before, state), self._seen(after, following)
                cut = truncated and not is_over
                steps.append(Transition(seen[0], action, sum(terms.values()), seen[1], is_over, cut, action))
                state = following
                if is_over or cut:
                    yield steps
                    state, steps = int(random.choice(open_states)), []
            if steps:
                steps[-1] = replace(steps[-1], truncated=True)
                yield steps

    def _seen(self, observation: Observation, state: int) -> Observation:
        one_hot = np.eye(len(self.machine.states), dtype=np.float32)[state]
        return {**observation, STATE: one_hot} if self._observes else observation


def _label(name: str, given: Any, spec: EnvironmentSpec) -> EntryLabel | SuccessLabel | ScoredSteps:
    """Return a label; raises InvalidSetting, UnknownName."""
    if given == {"success": True}:
        return SuccessLabel()
    if isinstance(given, Mapping) and "reward" in given and set(given) <= {"reward", "settings"}:
        return ScoredSteps(f"label {name!r}", str(given["reward"]), given.get("settings", {}), spec)
    is_near = isinstance(given, Mapping) and set(given) == {"entry", "near", "within"}
    is_limit = isinstance(given, Mapping) and {"entry"} < set(given) <= {"entry", "index", "above", "below"}
    if not (is_near or (is_limit and ("above" in given or "below" in given))):
        raise InvalidSetting(f"The label {name!r} is not complete.", got=given, allowed=FORMS)
    numbers = [
        *(given["near"] if is_near else ()),
        *(given[key] for key in ("within", "above", "below", "index") if key in given),
    ]
    if any(isinstance(each, bool) or not isinstance(each, (int, float)) for each in numbers):
        raise InvalidSetting(f"The label {name!r} has values that are no numbers.", got=given, allowed=FORMS)
    if given["entry"] not in spec.observation:
        raise UnknownName(f"entry of {spec.name}", str(given["entry"]), spec.observation)
    size = spec.observation[given["entry"]].size
    if is_near and len(given["near"]) != size:
        raise InvalidSetting(f"The label {name!r} has another size.", got=list(given["near"]), allowed=f"{size} numbers")
    if not is_near and not 0 <= int(given.get("index", 0)) < size:
        raise InvalidSetting(f"The label {name!r} has no such number.", got=given["index"], allowed=f"0 to {size - 1}")
    return EntryLabel(**{**given, **({"near": tuple(map(float, given["near"]))} if is_near else {})})


@dataclass(frozen=True)
class RewardMachineObjective(EnvironmentWrapper):
    """Settings of the wrapper for a task that a reward machine or a formula states: its file, shaping, counterfactual steps."""

    changes = ("observation", "success_rule")

    machine: str | dict[str, Any] = ""
    """File (YAML), or its content: `labels`, and a `formula` or `edges`; must be set."""
    shaping: float = 0.0
    """Discount of the learner, with which potentials of the machine shape the reward; 0 for no shaping."""
    counterfactual: bool = False
    """Give each episode also as it would have been from the other states of the machine, to a learner with a replay memory."""
    observes: bool = True
    """False hides the machine's state from the policy, a control condition."""
    reward_weight: float = 0.0
    """Weight of the environment's own reward, added to the machine's."""

    @property
    @override
    def asks(self) -> frozenset[Feature]:
        return frozenset({Feature.OBJECTIVE, *([Feature.IMAGINED] if self.counterfactual else [])})

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> MachineEnv:
        if not self.machine:
            raise InvalidSetting("The objective has no machine.", got=self.machine, allowed="a file, or its content")
        return MachineEnv(environment, **vars(self))
