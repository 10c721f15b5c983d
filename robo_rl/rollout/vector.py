"""Episodes of N environments that step together: the counterpart of `Rollout` for vector environments.

An environment begins its next episode in the same step in which one ends (AutoresetMode.SAME_STEP), so that no step is spent on
a reset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv
from typing_extensions import override

from robo_rl.environments.stepping import ROUNDING, require_finite
from robo_rl.errors import EnvironmentFailed, InvalidEpisode, InvalidSetting
from robo_rl.protocols.components import Stateful, TrainingSupervisor
from robo_rl.rollout.episode import end_of
from robo_rl.spec.cost import PLAIN, CostSpec, cost_names
from robo_rl.spec.environment import ActionSpec
from robo_rl.types import DIVERGED, ActionSource, Array, StateDict, VectorTransition

Environments = VectorEnv[Any, Any, Any]


@dataclass(frozen=True)
class EndedEpisode:
    """Summary of an episode that ended in one of N environments."""

    place: int
    """Number of the environment in which the episode ended, from 0."""
    episode_return: float
    """Undiscounted sum of rewards."""
    length: int
    """Number of steps."""
    success: bool | None
    """True if any step reported success, None if no step reported success or failure."""
    stop_reason: str
    """Reason of the end, as `Episode.stop_reason`."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Name of a constraint cost -> its sum over the episode."""


class RunningEpisodes(Stateful):
    """Sums of rewards, costs and steps, and success so far, of the running episode in each of N environments."""

    def __init__(self, environments: int, costs: Sequence[str] = ()) -> None:
        """Start with sums of zero.

        Args:
            environments: Number N of environments.
            costs: Names of the C constraint costs.
        """
        self._returns = np.zeros(environments)
        self._costs = np.zeros((environments, len(costs)))
        self._cost_names, self._has_costs = tuple(costs), 0
        self._lengths = np.zeros(environments, np.int64)
        self._knows_success = np.zeros(environments, np.bool_)
        self._successes = np.zeros(environments, np.bool_)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """(N,) steps of the running episodes."""
        return self._lengths

    def restart(self) -> None:
        """Set all sums to zero. The environments are not touched; `VectorRollout.begin` resets them."""
        for running in (self._returns, self._costs, self._lengths, self._knows_success, self._successes):
            running[:] = 0

    def add(self, rewards: Array, infos: Mapping[str, Any], costs: Array | None = None) -> None:
        """Add one step of every environment.

        Args:
            rewards: (N,) rewards.
            infos: `infos` of the vector step.
            costs: (N, C) constraint costs; None if there are none.
        """
        self._returns += rewards
        if costs is not None:
            self._costs += costs
            self._has_costs = 1
        self._lengths += 1
        for source in (infos, infos.get("final_info", {})):
            if "success" in source:
                self._knows_success |= source["_success"]
                self._successes |= source["_success"] & source["success"].astype(np.bool_)

    def end(self, place: int, terminated: bool, infos: Mapping[str, Any]) -> EndedEpisode:
        """Return the summary of the episode that ended in environment `place`, and set the sums of this environment to zero.

        Args:
            place: Number of the environment.
            terminated: True if the task itself ended.
            infos: `final_info` of the vector step.
        """
        success = bool(self._successes[place]) if self._knows_success[place] else None
        told = infos["stop_reason"][place] if "stop_reason" in infos and infos["_stop_reason"][place] else None
        ended = EndedEpisode(
            place,
            float(self._returns[place]),
            int(self._lengths[place]),
            success,
            end_of(terminated, not terminated, success, None if told is None else str(told)),
            dict(zip(self._cost_names, self._costs[place].tolist(), strict=True)) if self._has_costs else {},
        )
        self._returns[place], self._costs[place], self._lengths[place] = 0.0, 0.0, 0
        self._knows_success[place] = self._successes[place] = False
        return ended

    @override
    def state_dict(self) -> StateDict:
        return {name: np.array(value) for name, value in vars(self).items() if name != "_cost_names"}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for name, value in vars(self).items():
            if name != "_cost_names":
                setattr(self, name, int(state[name]) if isinstance(value, int) else np.array(state[name]))


class VectorRollout(Stateful):
    """Episodes of N environments that step together, and an optional supervisor of environment 0.

    A supervisor, such as a person who corrects the policy, sees and overrides only environment 0. After a resume the episodes
    continue if the environments can be saved, directly or by repeating their actions (robo_rl.environments.repeatable).
    Otherwise every environment begins a new episode.
    """

    def __init__(self, environments: Environments, supervisor: TrainingSupervisor | None = None) -> None:
        self.environments, self.supervisor = environments, supervisor
        spec = getattr(environments, "environment_spec", None)
        self._declared: tuple[CostSpec, ...] = spec.costs if spec else ()
        self._action: ActionSpec | None = spec.action if spec else None
        self._name = spec.name if spec else "The environment"
        self._cost_names = cost_names(self._declared)
        self.episodes = RunningEpisodes(environments.num_envs, self._cost_names)
        self.observations: Mapping[str, Array] = {}
        """Newest observations, name -> (N, ...); empty before `begin`."""
        self.infos: Mapping[str, Any] = {}
        """Infos of the newest step, or of `begin`."""
        self.costs: npt.NDArray[np.float64] | None = None
        """(N, C) constraint costs of the newest step in the order of `cost_names`; None if there are no costs."""
        self.ended: Sequence[EndedEpisode] = ()
        """Episodes that ended with the newest step."""

    def __len__(self) -> int:
        count: int = self.environments.num_envs
        return count

    def begin(self, seeds: Sequence[int | None]) -> Mapping[str, Array]:
        """Reset every environment with its seed, and return the first observations, name -> (N, ...)."""
        self.observations, self.infos = self.environments.reset(seed=list(seeds))  # type: ignore[arg-type]  # Gymnasium's own take a list
        self.episodes.restart()
        self._require_finite(self.observations)
        self.ended = ()
        if self.supervisor is not None:
            self.supervisor.reset()
        return self.observations

    def step(self, actions: Array) -> VectorTransition:
        """Take one step in each environment with the actions (N, A) or (N,).

        Raises:
            InvalidAction: The supervisor returned an action that the spec does not allow, or an action of the policy is
                invalid.
            InvalidEpisode: A reward or cost is not finite, or a cost is negative.
            InvalidObservation: An observation holds NaN or infinity.
            EnvironmentFailed: An environment raised an error, or reports an executed action beyond [-1, 1].
        """
        before, proposed = self.observations, actions
        sources = np.full(len(self), ActionSource.POLICY, np.int8)
        if self.supervisor is not None:
            actions, sources[0] = self._overridden(self.supervisor, actions)
        self.observations, rewards, terminated, truncated, infos = self.environments.step(actions)
        self.infos = infos
        truncated = truncated & ~terminated
        over = np.flatnonzero(terminated | truncated).tolist()
        finals: Mapping[str, Any] = infos.get("final_info", {})
        self._count(rewards, infos)
        after = _with_finals(self.observations, infos, over)
        self._require_finite(after, rewards)
        self.ended = [self.episodes.end(place, bool(terminated[place]), finals) for place in over]
        if over:
            self._require_finite(self.observations)
        diverged = np.zeros(len(self), np.bool_)
        diverged[[each.place for each in self.ended if each.stop_reason == DIVERGED]] = True
        if self.supervisor is not None and 0 in over:
            self.supervisor.reset()
        return VectorTransition(
            before,
            self._executed(actions, infos),
            rewards,
            after,
            self.observations,
            terminated,
            truncated,
            diverged,
            proposed,
            _sources_in(infos, sources),
            infos,
        )

    def _require_finite(self, observations: Mapping[str, Array], rewards: Array | None = None) -> None:
        """Raise InvalidObservation or InvalidEpisode if an environment returned a number that is not finite."""
        arrays = [*observations.values(), *([] if rewards is None else [rewards])]
        if all([each.dtype.kind != "f" or np.count_nonzero(np.isfinite(each)) == each.size for each in arrays]):
            return
        for place, length in enumerate(self.episodes.lengths.tolist()):
            where = (
                f"at step {length} of the episode in environment {place}" if length else f"at the reset of environment {place}"
            )
            require_finite(self._name, {name: values[place] for name, values in observations.items()}, where)
            if rewards is not None and not np.isfinite(rewards[place]):
                raise InvalidEpisode(
                    f"{self._name} returned a reward that is not finite.",
                    got=f"{rewards[place]} {where}",
                    allowed="finite numbers",
                    fix="look at the reward of the environment; nothing is replaced silently",
                )

    def _overridden(self, supervisor: TrainingSupervisor, actions: Array) -> tuple[Array, ActionSource]:
        """Return the actions with the supervisor's choice for environment 0, and the source of that action."""
        first = {name: values[0] for name, values in self.observations.items()}
        action, source = supervisor.override(first, actions[0])
        changed = np.array(actions)
        changed[0] = action if self._action is None else self._action.validate(action)
        return changed, source

    def _count(self, rewards: Array, infos: Mapping[str, Any]) -> None:
        self.costs = None
        if self._declared or PLAIN in infos or PLAIN in infos.get("final_info", {}):
            self.costs = costs_in(infos, self._cost_names, len(self))
        self.episodes.add(rewards, infos, self.costs)

    def _executed(self, actions: Array, infos: Mapping[str, Any]) -> Array:
        """Return the actions that `infos` report as executed, else the ones sent; raises EnvironmentFailed."""
        found = actions
        for source in (infos, infos.get("final_info", {})):
            if "executed_action" not in source or not (mask := source["_executed_action"]).any():
                continue
            told = np.stack([np.asarray(each) for each in source["executed_action"][mask]])
            if self._action is None or not self._action.is_discrete:
                if not (np.abs(told) <= 1.0 + ROUNDING).all():
                    allowed = "numbers in [-1, 1]"
                    raise EnvironmentFailed("An executed action cannot be one.", got=told.tolist(), allowed=allowed)
                told = np.clip(told, -1.0, 1.0)
            found = np.array(actions) if found is actions else found
            found[mask] = told
        return found

    @property
    def is_under_way(self) -> bool:
        """True while episodes are running: from `begin` until `abandon`."""
        return bool(self.observations)

    def abandon(self) -> None:
        """Abandon the running episodes; the next call must be `begin`."""
        self.observations = {}

    @override
    def state_dict(self) -> StateDict:
        saved = self.environments.state_dict() if self.is_under_way and isinstance(self.environments, Stateful) else None
        return {"state": saved, "episodes": self.episodes.state_dict(), "observations": dict(self.observations)}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue the episodes of a saved state; if the environments cannot, `is_under_way` is False afterwards."""
        self.episodes.load_state_dict(state["episodes"])
        self.observations = {}
        if state["state"] is None or not isinstance(self.environments, Stateful):
            return
        self.environments.load_state_dict(state["state"])
        if getattr(self.environments, "is_exact", True):
            self.observations = {name: np.array(values) for name, values in state["observations"].items()}


def _with_finals(observations: Mapping[str, Array], infos: Mapping[str, Any], over: Sequence[int]) -> Mapping[str, Array]:
    """Return the observations after the step, with the last observation of each episode that ended.

    over: numbers of the environments whose episode ended. If there are any, the arrays are copies.
    """
    if not over:
        return observations
    found = {name: np.array(values) for name, values in observations.items()}
    for place in over:
        for name, values in found.items():
            values[place] = infos["final_obs"][place][name]
    return found


def _sources_in(infos: Mapping[str, Any], sources: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return the sources (N,) of the executed actions: those that `infos` report, else `sources`."""
    for source in (infos, infos.get("final_info", {})):
        if "action_source" in source:
            sources = np.where(source["_action_source"], source["action_source"], sources).astype(np.int8)
    return sources


def costs_in(infos: Mapping[str, Any], names: Sequence[str], count: int) -> npt.NDArray[np.float64]:
    """Return the constraint costs (N, C) of a step of N environments, in the order of `names`.

    Raises:
        InvalidSetting: An environment did not report one of the costs.
        InvalidEpisode: A cost is negative or not finite.
    """
    costs, found = np.zeros((count, len(names))), np.zeros((count, len(names)), np.bool_)
    for source in (infos, infos.get("final_info", {})):
        values = source.get("costs", {PLAIN: source[PLAIN], f"_{PLAIN}": source[f"_{PLAIN}"]} if PLAIN in source else {})
        for column, name in enumerate(names):
            if name in values:
                mask = values[f"_{name}"]
                costs[mask, column], found[mask, column] = values[name][mask], True
    if not found.all():
        raise InvalidSetting(
            "The learner needs constraint costs of each step, and a step has not all of them.",
            got=f"infos with {', '.join(sorted(key for key in infos if not key.startswith('_'))) or 'no entries'}",
            allowed=f'info["costs"] with {", ".join(names)}',
            fix="take an environment with costs (docs/safety/constraints.md), or another learner",
        )
    if not (np.isfinite(costs) & (costs >= 0)).all():
        raise InvalidEpisode("A step has a cost that is none.", got=costs.tolist(), allowed="finite numbers, 0 or more")
    return costs
