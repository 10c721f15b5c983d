"""Collectors of an on-policy training: each acts in a part of its environments, for a whole rollout at a time.

T steps; N environments of the training, n of them in one collector, the first of which has number `first`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from typing_extensions import override

from robo_rl.collectors.collector_pool import Collector
from robo_rl.protocols.components import TransferablePolicy
from robo_rl.rollout.vector import Environments, VectorRollout
from robo_rl.training.collected_rollout import COLUMNS, CollectedRollout
from robo_rl.training.episode_reports import EpisodeReports
from robo_rl.training.on_policy import OnPolicyLearner
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import Array, StateDict, VectorTransition

BLOCK = 16  # rows that a policy sees at once


class VectorPolicy(TransferablePolicy, Protocol):
    """Interface of a policy that acts in many environments at once, with one random generator per environment."""

    def draw(self, observations: Mapping[str, Array], generators: Mapping[int, np.random.Generator]) -> Array:
        """Return sampled actions for the rows of the observations that have a generator.

        An action depends on its own row only.

        Args:
            observations: name -> (n, ...).
            generators: Row -> generator of its environment.
        """

    def executed(self, actions: Array) -> Array:
        """Return sampled actions in the form that the environments accept."""


@runtime_checkable
class CollectedLearner(OnPolicyLearner, Protocol):
    """Interface of an on-policy learner whose rollouts other processes collect with its parameters."""

    @property
    def policy(self) -> VectorPolicy:
        """The policy being trained."""

    def add_rollout(self, rollout: CollectedRollout) -> None:
        """Store a whole rollout collected with the present policy; `update` learns from it."""


class RolloutCollector(Collector):
    """Collector of on-policy training: acts in n of the training's environments for a whole rollout at a time."""

    def __init__(self, environments: Environments, policy: VectorPolicy, *, seed: int, first: int) -> None:
        self._policy, self._seed, self._first = policy, seed, first
        self._playing, self._reports = VectorRollout(environments), EpisodeReports()

    @override
    def load_parameters(self, parameters: StateDict) -> None:
        self._policy.load_parameters(parameters)

    @override
    def handle(self, request: StateDict) -> StateDict:
        """Collect a rollout, save the environments or restore them, as request["do"] says."""
        return {"rollout": self._rollout, "save": self._save, "restore": self._restore}[request["do"]](request)

    def _rollout(self, request: StateDict) -> StateDict:
        """Collect a rollout.

        Its random numbers depend only on seed, step and environment, so that it can be repeated after a loss.
        """
        begins = not self._playing.is_under_way
        if begins:
            self._begin(request["step"])
        count = len(self._playing)
        places = range(self._first, self._first + count)
        generators = [np.random.default_rng([self._seed, request["step"], place]) for place in places]
        steps = _PackedSteps()
        steps.observations.append(self._playing.observations)
        for step in range(request["steps"]):
            actions = draw_actions(self._policy, self._playing.observations, generators, self._first)
            steps.add(actions, self._playing.step(self._policy.executed(actions)))
            for ended in self._playing.ended:
                self._reports.report_ended(steps, step, ended, count)
        return steps.packed() | {"begins": begins}

    def _begin(self, step: int) -> None:
        self._playing.begin([episode_seed(self._seed, step + self._first + index) for index in range(len(self._playing))])

    def _save(self, request: StateDict) -> StateDict:
        """Return the state of the environments; None if they cannot be saved."""
        playing = self._playing.state_dict()
        return {"state": None if playing["state"] is None else {"playing": playing, "reports": self._reports.state_dict()}}

    def _restore(self, request: StateDict) -> StateDict:
        self._playing.load_state_dict(request["state"]["playing"])
        self._reports.load_state_dict(request["state"]["reports"])
        return {}


def draw_actions(
    policy: VectorPolicy, observations: Mapping[str, Array], generators: Sequence[np.random.Generator], first: int
) -> Array:
    """Draw actions (n, ...) for the environments from number `first` on, each with its own random generator.

    Every environment has a fixed row in a block of BLOCK rows, because matrix products of another shape round differently. So
    the actions do not depend on how the environments are divided among collectors, if the policy reads only vectors.

    Args:
        policy: Policy that acts.
        observations: Name -> (n, ...).
        generators: Generator of each of the n environments.
        first: Number of the first environment in the training.
    """
    numbers = np.arange(first, first + len(generators))
    found = []
    for block in np.unique(numbers // BLOCK):
        own = np.flatnonzero(numbers // BLOCK == block)
        places = numbers[own] % BLOCK
        rows = {name: np.zeros((BLOCK, *values.shape[1:]), values.dtype) for name, values in observations.items()}
        for name, values in observations.items():
            rows[name][places] = values[own]
        found.append(policy.draw(rows, {int(place): generators[int(row)] for place, row in zip(places, own, strict=True)}))
    return np.concatenate(found)


class _PackedSteps:
    """Steps of a rollout so far; also the observer of the episodes that end in it."""

    def __init__(self) -> None:
        self.observations: list[Mapping[str, Array]] = []
        self._columns: dict[str, list[Array]] = {name: [] for name in COLUMNS}
        self._finals: list[Mapping[str, Array]] = []
        self._episodes: list[StateDict] = []

    def add(self, actions: Array, steps: VectorTransition) -> None:
        outcome = actions, steps.rewards, steps.terminated, steps.truncated
        for column, values in zip(self._columns.values(), outcome, strict=True):
            column.append(np.array(values))
        self.observations.append(steps.following)
        for index in np.flatnonzero(steps.truncated):
            self._finals.append({name: values[index] for name, values in steps.next_observations.items()})

    def on_episode(self, step: int, **outcome: Any) -> None:
        self._episodes.append({"step": step, **outcome})

    def on_metrics(self, step: int, metrics: Any) -> None: ...

    def on_step(self, step: int, training: Any) -> None: ...

    def packed(self) -> StateDict:
        first = self.observations[0]
        observed = {name: np.stack([each[name] for each in self.observations]) for name in first}
        finals = {
            name: np.stack([final[name] for final in self._finals]) if self._finals else observed[name][0, :0] for name in first
        }
        columns = {name: np.stack(values) for name, values in self._columns.items()}
        return {"observations": observed, **columns, "finals": finals, "episodes": self._episodes}
