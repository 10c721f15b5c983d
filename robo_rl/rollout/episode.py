"""Play one episode: a policy proposes actions, a supervisor may override them, and every step is recorded.

An unfinished episode is saved as its seed and its executed actions. Environments are deterministic given these two, so that
repeating the actions in a fresh environment restores the same state, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import gymnasium
import numpy as np
from typing_extensions import override

from robo_rl.environments import stepping
from robo_rl.environments.stepping import VERDICTS, executed_action, require_finite, success_so_far
from robo_rl.errors import InvalidEpisode
from robo_rl.protocols.components import Policy, Stateful, Supervisor, TrainingSupervisor
from robo_rl.protocols.planning import replan
from robo_rl.spec.cost import costs_of, require_costs
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import AS_PROPOSED, MEASURED_AT, MEASURES, METADATA, ActionSource, Array, Episode, StateDict, Transition

SUCCESS_CONVENTION = "an episode is a success if the environment reported success at any of its steps"
"""Convention for the success of an episode, that of Meta-World (Yu et al. 2019). For success within one step see
`EnvironmentSpec.success_rule`."""


class Rollout:
    """An episode that is being played, step by step: a policy proposes actions, a supervisor may override them."""

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        policy: Policy,
        *,
        seed: int,
        supervisor: Supervisor | None = None,
        deterministic: bool = False,
    ) -> None:
        """Reset environment, policy and supervisor.

        Args:
            environment: Environment with an `environment_spec`.
            policy: Proposes the actions.
            seed: Seed of the environment's reset.
            supervisor: May override the policy's actions; None without one.
            deterministic: Passed to `Policy.act`.
        """
        self._begin(environment, policy, seed, supervisor, deterministic)
        policy.reset()
        if supervisor is not None:
            supervisor.reset()

    @classmethod
    def resume(
        cls,
        environment: gymnasium.Env[Any, Any],
        policy: Policy,
        state: Mapping[str, Any],
        *,
        supervisor: Supervisor | None = None,
        deterministic: bool = False,
    ) -> Self:
        """Resume a saved rollout by repeating its actions in a fresh environment.

        Afterwards `exact` is True if every reward and the last observation equal the saved ones bit for bit. If `exact` is
        False, as for a robot, which never repeats its motions, cut the episode. Policy and supervisor are neither reset nor
        called: restore their states separately.

        Args:
            environment: Fresh environment.
            policy: Policy for the remaining steps.
            state: Value of `state_dict`.
            supervisor: Supervisor for the remaining steps.
            deterministic: Passed to `Policy.act`.
        """
        rollout = cls.__new__(cls)
        rollout._begin(environment, policy, int(state["seed"]), supervisor, deterministic)
        saved = zip(state["sent"], state["policy_actions"], state["sources"], strict=True)
        if not getattr(environment.unwrapped, "replays", True):  # a robot is not sent through its motions again
            rollout.exact = False
            return rollout
        for action, proposed, source in saved:
            if not rollout.done:
                rollout._execute(np.asarray(action), np.asarray(proposed), ActionSource(int(source)))
        rollout._restore_clock(state["timestamps"])
        rollout.exact = rollout._is_at(state)
        return rollout

    def _begin(
        self,
        environment: gymnasium.Env[Any, Any],
        policy: Policy,
        seed: int,
        supervisor: Supervisor | None,
        deterministic: bool,
    ) -> None:
        self.spec = specification(environment)
        self.seed = seed
        self.exact = True
        self.terminated = self.truncated = False
        self.success: bool | None = None
        self._environment, self._policy, self._supervisor = environment, policy, supervisor
        self._deterministic = deterministic
        observation, info = stepping.reset(environment, self.spec.name, seed=seed)
        require_finite(self.spec.name, observation, f"at the reset with seed {seed}")
        self._instruction: str | None = info.get("instruction", self.spec.instruction)
        self._metadata: Mapping[str, Any] = info.get(METADATA, {})
        self._stop_reason: str | None = None
        self._observations = [observation]
        self._arrived = time.monotonic()
        self._timestamps = [float(info.get(MEASURED_AT, self._arrived))]
        self._is_told_times = MEASURED_AT in info
        self._actions: list[Array] = []
        self._sent: list[Array] = []  # to the environment, which may have executed others
        self._policy_actions: list[Array] = []
        self._rewards: list[float] = []
        self._infos: list[Mapping[str, Any]] = []
        self._sources: list[int] = []
        self._measures: Mapping[str, float] = {}
        self._verdicts: dict[str, dict[str, list[str]]] = {}  # verdict -> step -> reasons of a robot's guard

    def __len__(self) -> int:
        return len(self._actions)

    @property
    def done(self) -> bool:
        """True once the episode terminated or was truncated."""
        return self.terminated or self.truncated

    @property
    def observation(self) -> Observation:
        """Newest observation: after the last step, or of the reset."""
        return self._observations[-1]

    @property
    def instruction(self) -> str | None:
        """Task of this episode in words; None if it has none."""
        return self._instruction

    @property
    def stop_reason(self) -> str:
        """Reason why the episode ended, as `Episode.stop_reason`; "running" before the end."""
        return end_of(self.terminated, self.truncated, self.success, self._stop_reason) if self.done else "running"

    def step(self) -> Transition:
        """Take one step: get the policy's action, let the supervisor override it, and execute the result.

        A policy that plans several actions ahead makes a new plan after an action that was not its own.

        Returns:
            The executed step.

        Raises:
            InvalidAction: The policy or the supervisor returned an action that the spec does not allow.
            InvalidEpisode: The episode is over, its reward is not finite, or a declared cost is missing.
            InvalidObservation: The observation holds NaN or infinity.
            EnvironmentFailed: The environment raised an error.
        """
        if self.done:
            raise InvalidEpisode(
                "The episode is over.", got=f"step {len(self) + 1} after {self.stop_reason!r}", fix="begin another Rollout"
            )
        proposed = self._validate(self._policy.act(self.observation, deterministic=self._deterministic))
        action, source = proposed, ActionSource.POLICY
        if self._supervisor is not None:
            action, source = self._supervisor.override(self.observation, proposed)
            action = self._validate(action)
        transition = self._execute(action, proposed, source)
        if transition.source not in AS_PROPOSED:
            replan(self._policy)
        return transition

    def newest(self, count: int) -> list[Transition]:
        """Return the newest `count` steps of the running episode, in order."""
        return [
            Transition(
                observation=self._observations[step],
                action=self._actions[step],
                reward=self._rewards[step],
                next_observation=self._observations[step + 1],
                terminated=False,
                truncated=False,
                policy_action=self._policy_actions[step],
                source=ActionSource(self._sources[step]),
                info=self._infos[step],
            )
            for step in range(len(self) - count, len(self))
        ]

    def cut(self, reason: str) -> None:
        """End the episode here as truncated, with the stop reason `reason`, such as "operator" or "crash"."""
        self.truncated, self._stop_reason = True, reason

    def episode(self) -> Episode:
        """Return the recorded episode; raises InvalidEpisode while the episode is running.

        Entries with a history are recorded without the older observations, since these can be rebuilt.
        """
        if not self.done:
            raise InvalidEpisode(
                "The episode is still under way.", got=f"{len(self)} steps", fix="step until done, or cut(reason) it"
            )
        observed = [self.spec.observation.newest(each) for each in self._observations]
        return Episode(
            observations={name: np.stack([each[name] for each in observed]) for name in observed[0]},
            actions=self._stack(self._actions),
            policy_actions=self._stack(self._policy_actions),
            rewards=np.asarray(self._rewards, np.float32),
            reward_terms=stacked_terms([info["reward_terms"] for info in self._infos]),
            costs=stacked_terms([costs_of(info) for info in self._infos]),
            sources=np.asarray(self._sources, np.int8),
            timestamps=np.asarray(self._timestamps, np.float64),
            terminated=self.terminated,
            truncated=self.truncated,
            stop_reason=self.stop_reason,
            success=self.success,
            seed=self.seed,
            spec_fingerprint=self.spec.single.fingerprint,
            instruction=self._instruction,
            metadata=dict(self._metadata) | ({MEASURES: dict(self._measures)} if self._measures else {}) | self._verdicts,
        )

    def state_dict(self) -> StateDict:
        """Return the seed and actions that `resume` repeats, and the rewards and observation that it compares."""
        return {
            "seed": self.seed,
            "actions": self._stack(self._actions),
            "sent": self._stack(self._sent),
            "policy_actions": self._stack(self._policy_actions),
            "sources": np.asarray(self._sources, np.int8),
            "rewards": np.asarray(self._rewards, np.float64),
            "timestamps": np.asarray(self._timestamps, np.float64),
            "observation": _copy(self.observation),
        }

    def _execute(self, action: Array, proposed: Array, source: ActionSource) -> Transition:
        before, sent = self.observation, action
        observation, reward, terminated, truncated, info = stepping.step(self._environment, self.spec.name, action)
        executed = executed_action(self.spec.name, info, self.spec.action)  # by a robot, whose guard may have changed it
        action = action if executed is None else executed
        source = ActionSource(info.get("action_source", source))
        for verdict in VERDICTS:
            if reasons := list(info.get(verdict, ())):
                self._verdicts.setdefault(verdict, {})[str(len(self))] = reasons
        if info.get("guard") and source is not ActionSource.HUMAN:
            source = ActionSource.GUARD
        require_finite(self.spec.name, observation, where := f"at step {len(self) + 1} of the episode with seed {self.seed}")
        if not np.isfinite(reward):
            raise InvalidEpisode(
                f"{self.spec.name} returned a reward that is not finite.",
                got=f"{reward} {where}",
                allowed="finite numbers",
                fix="look at the reward of the environment; nothing is replaced silently",
            )
        if declared := self.spec.costs:
            require_costs(costs_of(info), declared, where=f"{self.spec.name}, step {len(self) + 1}, seed {self.seed}")
        self._observations.append(observation)
        self._timestamps.append(self._time_of(info))
        self._actions.append(action)
        self._sent.append(sent)
        self._policy_actions.append(proposed)
        self._rewards.append(reward)
        self._infos.append({"reward_terms": {}, **info})
        self._sources.append(int(source))
        self.terminated, self.truncated = terminated, truncated
        self._stop_reason = info.get("stop_reason")
        self._measures = info.get(MEASURES, {})
        self.success = success_so_far(self.success, info)
        return Transition(before, action, reward, self.observation, self.terminated, self.truncated, proposed, source, info)

    def _time_of(self, info: Mapping[str, Any]) -> float:
        """Return the time of an observation: when it was measured if the environment reports that, else when it arrived."""
        before, self._arrived = self._arrived, time.monotonic()
        if not self._is_told_times:
            return self._arrived
        return float(info.get(MEASURED_AT, self._timestamps[-1] + self._arrived - before))

    def _validate(self, action: Array) -> Array:
        # A copy in the spec's type: a replay executes exactly the same action.
        return np.array(self.spec.action.validate(action), self.spec.action.dtype)

    def _stack(self, actions: list[Array]) -> Array:
        return np.asarray(actions, self.spec.action.dtype).reshape(len(actions), *self.spec.action.shape)

    def _restore_clock(self, timestamps: Array) -> None:
        # Monotonic clocks of two processes have nothing in common: keep the saved intervals, end them now.
        if len(timestamps) == len(self._timestamps):
            self._timestamps = [float(t) for t in timestamps - timestamps[-1] + time.monotonic()]

    def _is_at(self, state: Mapping[str, Any]) -> bool:
        rewards = np.asarray(self._rewards, np.float64)
        return _are_identical({"rewards": rewards, **self.observation}, {"rewards": state["rewards"], **state["observation"]})


class RecordedRollout:
    """A recorded episode that is replayed step by step, with the interface of `Rollout`."""

    def __init__(self, episode: Episode, begin: int = 0, supervisor: TrainingSupervisor | None = None) -> None:
        """Prepare the replay.

        Args:
            episode: Recorded episode.
            begin: Number of the first step to replay.
            supervisor: Supervisor that counts the replayed steps in its statistics; it is not asked for actions.
        """
        self._episode, self._position, self._supervisor = episode, begin, supervisor
        if supervisor is not None:
            supervisor.begin()

    def __len__(self) -> int:
        return self._position

    @property
    def done(self) -> bool:
        """True once all steps were replayed."""
        return self._position >= len(self._episode)

    @property
    def observation(self) -> Observation:
        """Newest observation: after the last replayed step, or of the reset."""
        return {name: value[self._position] for name, value in self._episode.observations.items()}

    @property
    def instruction(self) -> str | None:
        """Task of the episode in words; None if it has none."""
        return self._episode.instruction

    def step(self) -> Transition:
        """Return the next step of the episode."""
        transition = self._episode.transition(self._position)
        self._position += 1
        if self._supervisor is not None:
            self._supervisor.count(transition.source)
        return transition

    def episode(self) -> Episode:
        """Return the whole recorded episode."""
        return self._episode

    def newest(self, count: int) -> list[Transition]:
        """Return the last `count` replayed steps, in order."""
        return [self._episode.transition(step) for step in range(self._position - count, self._position)]

    def state_dict(self) -> StateDict:
        """Return the seed and the actions replayed so far."""
        return {"seed": self._episode.seed, "actions": self._episode.actions[: self._position]}


def rollout(
    environment: gymnasium.Env[Any, Any],
    policy: Policy,
    *,
    seed: int,
    supervisor: Supervisor | None = None,
    deterministic: bool = False,
) -> Episode:
    """Play one episode to its end and return it.

    Args:
        environment: Environment with an `environment_spec`.
        policy: Proposes the actions.
        seed: Seed of the environment's reset.
        supervisor: May override the policy's actions; None without one.
        deterministic: Passed to `Policy.act`.
    """
    episode = Rollout(environment, policy, seed=seed, supervisor=supervisor, deterministic=deterministic)
    while not episode.done:
        episode.step()
    return episode.episode()


class RandomPolicy(Stateful):
    """Policy that draws uniformly random actions from its own generator."""

    def __init__(self, spec: EnvironmentSpec, seed: int) -> None:
        self.environment_spec = spec
        self._generator = np.random.default_rng(seed)

    def reset(self) -> None:
        """Do nothing: the random generator continues from episode to episode."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return a uniform sample, also if `deterministic`."""
        return self.environment_spec.action.random(self._generator)

    def act_all(self, observations: Mapping[str, Array]) -> Array:
        """Return one uniform sample per environment: (N, A) or (N,)."""
        return self.environment_spec.action.random(self._generator, len(next(iter(observations.values()))))

    @override
    def state_dict(self) -> StateDict:
        return {"generator": self._generator.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._generator.bit_generator.state = state["generator"]


def _copy(observation: Observation) -> dict[str, Array]:
    return {name: np.array(value) for name, value in observation.items()}


def end_of(terminated: bool, truncated: bool, success: bool | None, reason: str | None) -> str:
    """Return the stop reason of an episode: the environment's own, or else one that follows from how it ended.

    Args:
        terminated: True if the task ended.
        truncated: True if the episode was cut.
        success: True or False if the environment reports success, None otherwise.
        reason: Reason that the environment gives; None if it gives none.

    Returns:
        `reason` unless it is None. Otherwise "goal" or "failure" for a terminated episode with known success, "time_limit" for
        a truncated one, and "unknown" for the rest.
    """
    if reason is not None:
        return reason
    if terminated and success is not None:
        return "goal" if success else "failure"
    return "time_limit" if truncated and not terminated else "unknown"


def stacked_terms(steps: Sequence[Mapping[str, float]]) -> dict[str, Array]:
    """Return the reward terms of T steps as arrays: name -> (T,) float32, NaN where a step lacks the term."""
    names = dict.fromkeys(name for terms in steps for name in terms)
    return {name: np.asarray([terms.get(name, np.nan) for terms in steps], np.float32) for name in names}


def _are_identical(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    pairs = [(np.asarray(a[name]), np.asarray(b[name])) for name in a if name in b]
    return set(a) == set(b) and all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs)
