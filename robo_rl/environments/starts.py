"""Training episodes that begin in the middle of a teacher's recorded episodes.

After S3RL in Zhao et al. 2024, "Snapshot Reinforcement Learning: Leveraging Prior Trajectories for Efficiency",
arXiv:2403.00673. A state is restored by its episode's seed and actions, which any simulator here repeats bit for bit, time
limit and random generators included; no simulator need save anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_rl.environments.levels import require_training_seeds
from robo_rl.errors import InvalidSetting, SimulationFailed, require_allowed
from robo_rl.extras import returns_to_go
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import Episode

CLOSE = 1e-3
"""Difference allowed between a restored observation and the recorded one: another processor rounds otherwise."""


@dataclass(frozen=True)
class StartRule:
    """Choice of the states in which episodes begin."""

    share: float = 0.5
    """Share of the training episodes that begin in one of them; the others begin as the task says."""
    teacher_episodes: int = 10
    """Episodes of the teacher with the highest returns that are used."""
    every: int = 10
    """Steps between two states of an episode."""
    clusters: int = 6
    """Groups of states of similar value that are drawn alike; 1 draws all states alike."""
    longest: int = 100
    """Steps after which an episode that began in such a state is truncated; 0 for the task's own limit."""
    discount: float = 0.99
    """Discount of the return-to-go that is taken for a state's value."""

    def __post_init__(self) -> None:
        least = {"teacher_episodes": 1, "every": 1, "clusters": 1, "longest": 0}
        allowed = {name: (getattr(self, name) >= count, f"{count} or more") for name, count in least.items()}
        shares = {name: (0.0 <= getattr(self, name) <= 1.0, "0 to 1") for name in ("share", "discount")}
        require_allowed(self, allowed | shares)


@dataclass(frozen=True)
class Start:
    """State of a teacher after some steps of an episode."""

    episode: Episode
    steps: int
    value: float
    """Discounted return from there."""


class TeacherStarts(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment some of whose episodes begin in states of a teacher."""

    def __init__(
        self, environment: gymnasium.Env[Any, Any], episodes: Sequence[Episode], rule: StartRule, recorded: EnvironmentSpec
    ) -> None:
        """Raise SpecMismatch for episodes of another environment, InvalidSetting for those of the test or without a state.

        episodes: of the teacher. recorded: spec of their environment.
        """
        super().__init__(environment)
        self._rule = rule
        require_teacher(environment, recorded)
        require_training_seeds((each.seed for each in episodes), "Starts")
        self.clusters = clustered(starts_of(episodes, rule), rule.clusters)
        """Starts of each cluster."""
        self._random = np.random.default_rng(0)
        self._left: int | None = None

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        if seed is not None:
            self._random = np.random.default_rng([seed, 1])
        self._left = None
        if self._random.random() >= self._rule.share:
            drawn = int(self._random.integers(2**31)) if seed is None else seed
            found: tuple[Observation, dict[str, Any]] = self.env.reset(seed=drawn, options=options)
            return found
        cluster = self.clusters[self._random.integers(len(self.clusters))]
        start = cluster[self._random.integers(len(cluster))]
        self._left = self._rule.longest or None
        observation, info = restored(self.env, start.episode, start.steps, options)
        return observation, {**info, "start": {"seed": start.episode.seed, "steps": start.steps}}

    @override
    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._left is not None:
            self._left -= 1
            if self._left <= 0 and not terminated and not truncated:
                return observation, reward, False, True, {**info, "stop_reason": "time_limit"}
        return observation, reward, terminated, truncated, info


def has_starts(environment: gymnasium.Env[Any, Any]) -> bool:
    """Return whether an environment begins episodes in a teacher's states."""
    while isinstance(environment, gymnasium.Wrapper):
        if isinstance(environment, TeacherStarts):
            return True
        environment = environment.env
    return False


class BranchingEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment whose episodes begin in a state of another episode, as long as one is named."""

    branch: tuple[Episode, int] | None = None
    """Episode of this environment, and the steps before the state; None for the task's own beginning."""

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        if self.branch is None:
            found: tuple[Observation, dict[str, Any]] = self.env.reset(seed=seed, options=options)
            return found
        return restored(self.env, *self.branch, options)


def require_teacher(environment: gymnasium.Env[Any, Any], recorded: EnvironmentSpec) -> None:
    """Raise SpecMismatch for a teacher recorded in an environment of another spec, InvalidSetting for a robot."""
    spec = specification(environment)
    recorded.require_interface(spec, what="The teacher was recorded in another environment")
    require_simulation(environment)


def require_simulation(environment: gymnasium.Env[Any, Any]) -> None:
    """Raise InvalidSetting for a robot, whose states cannot be restored."""
    if not getattr(environment.unwrapped, "replays", True):
        got, fix = specification(environment).name, "leave starts, hints and histories out"
        raise InvalidSetting("States of a robot cannot be restored.", got=got, allowed="a simulation", fix=fix)


def restored(
    environment: gymnasium.Env[Any, Any], episode: Episode, steps: int, options: dict[str, Any] | None = None
) -> tuple[Observation, dict[str, Any]]:
    """Bring an environment into the state of an episode after some steps, by its seed and actions; return the observation.

    Raises SimulationFailed if the simulation is not where the episode was.
    """
    observation, info, is_over = replayed(environment, episode.seed, episode.actions[:steps], options)
    there = {name: (observation[name], values[steps]) for name, values in episode.observations.items() if name in observation}
    alike = [np.allclose(*pair, CLOSE, 0.1 * CLOSE) for pair in there.values() if np.shape(pair[0]) == np.shape(pair[1])]
    if is_over or not all(alike):  # stacks of frames differ in shape, and are left out
        raise SimulationFailed(
            f"A state of the teacher cannot be restored in {specification(environment).name}.",
            got=f"another state after {steps} steps of the episode with seed {episode.seed}",
            allowed="the recorded one",
            fix="record the teacher again, with the simulator and the arguments of this training",
        )
    return observation, {"instruction": info["instruction"]} if "instruction" in info else {}


def replayed(
    environment: gymnasium.Env[Any, Any], seed: int | None, actions: Iterable[Any], options: dict[str, Any] | None = None
) -> tuple[Observation, dict[str, Any], bool]:
    """Reset an environment and take actions; return observation and info, and True if the episode is over."""
    is_over = False
    observation, info = environment.reset(seed=seed, options=options)
    for action in actions:
        observation, _, terminated, truncated, info = environment.step(action)
        is_over |= terminated or truncated
    return observation, info, is_over


def starts_of(episodes: Sequence[Episode], rule: StartRule) -> list[Start]:
    """Return every state that the rule takes of the teacher's best episodes; raises InvalidSetting without one."""
    seeded = [episode for episode in episodes if episode.seed is not None]
    best = sorted(seeded, key=lambda episode: -float(episode.rewards.sum()))[: rule.teacher_episodes]
    found = []
    for episode in best:
        values = returns_to_go(episode.rewards, rule.discount)
        found += [Start(episode, steps, float(values[steps])) for steps in range(rule.every, len(episode), rule.every)]
    if not found:
        raise InvalidSetting(
            "The teacher's episodes hold no state to begin in.",
            got=f"{len(seeded)} of {len(episodes)} episodes with a seed, of {max(map(len, episodes), default=0)} steps at most",
            allowed=f"an episode of more than {rule.every} steps whose seed is recorded",
            fix="record the teacher in simulation, or lower every",
        )
    return found


def clustered(starts: Sequence[Start], count: int) -> list[list[Start]]:
    """Return the starts in groups of similar value, at most `count`, by k-means."""
    from scipy.cluster.vq import kmeans2  # late: a training without a teacher does not need it

    values = np.array([start.value for start in starts])
    count = min(count, len(np.unique(values)))
    _, places = kmeans2(values[:, None], count, minit="++", seed=0) if count > 1 else (None, np.zeros(len(starts), np.int64))
    groups = [[start for start, place in zip(starts, places, strict=True) if place == index] for index in range(count)]
    return [group for group in groups if group]
