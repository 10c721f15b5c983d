"""Settings of a learner for its replay memory and batches, and interfaces of memories."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Protocol

from robo_rl.errors import require_allowed
from robo_rl.extras import Extra
from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import Observation
from robo_rl.types import Batch, Transition, VectorTransition


@dataclass(frozen=True)
class Replay:
    """Settings group `replay` of learners: the replay memory, and the batches drawn from it."""

    group: ClassVar[str] = "replay"
    """Name of this group of settings in error messages."""

    capacity: int = 1_000_000
    """Largest number of rows of the memory of the policy's own steps; an episode of T steps takes T + 1 rows."""
    folder: str | None = None
    """Folder on a disk for the replay memory, which is then memory-mapped; None keeps it in RAM."""
    learning_starts: int = 5_000
    """Environment steps with random actions before the first update; Stable-Baselines3 has 100, its tuned settings 10,000."""
    update_every: int = 1
    """Environment steps, summed over all environments, from one update to the next."""
    n_step: int = 1
    """Number of rewards that are summed before the bootstrap value (n-step returns)."""
    offline_fraction: float = 0.0
    """Share of each batch that comes from recorded episodes, 0 to 1. Above 0 recorded episodes are required; at 1 no
    environment is used."""

    def __post_init__(self) -> None:
        allowed = {
            "capacity": (self.capacity >= 2, "2 or more"),
            "learning_starts": (self.learning_starts >= 1, "1 or more: an empty memory cannot be sampled"),
            "update_every": (self.update_every >= 1, "1 or more"),
            "n_step": (self.n_step >= 1, "1 or more"),
            "offline_fraction": (0.0 <= self.offline_fraction <= 1.0, "0 to 1"),
        }
        require_allowed(self, allowed, group=self.group)


@dataclass(frozen=True)
class Worlds:
    """Settings group `worlds`: a learnt model of the environment (world), whose imagined steps a learner also learns from.

    Janner et al. 2019, "When to Trust Your Model: Model-Based Policy Optimization" (MBPO), arXiv:1906.08253.
    """

    group: ClassVar[str] = "worlds"

    share: float = 0.0
    """Share of every batch that is imagined; 0 for no world. The paper has 0.95 at 20 and more updates a step."""
    horizon: int = 5
    """Steps of a branch, a short imagined episode; each begins in a state of the replay memory. The paper has 1 at first, later
    up to 25."""
    every: int = 250
    """Steps of the training from one fit of the world, and new branches, to the next; the first comes with the first update.
    To recorded steps alone it is fitted once."""
    branches: int = 1000
    """Number of imagined branches after each fit. The paper has 100,000."""
    kept: int = 4
    """Number of newest fits whose branches are kept in memory."""
    members: int = 5
    """Number of networks in the ensemble that is the world model."""
    elites: int = 3
    """Number of members with the lowest held-out error, which alone predict."""
    hidden: tuple[int, ...] = (200, 200)
    """Units of the hidden layers; the paper has four layers."""
    updates: int = 1000
    """Most updates of one fit; it stops earlier if held-out steps are predicted no better."""
    steps: int = 100_000
    """Most steps of the memories that a fit learns from, drawn at random."""
    penalty: float = 0.0
    """Deviations of reward that a disagreement of the members by one deviation costs an imagined step (MOPO's lambda)."""
    shuffles_actions: bool = False
    """Give each step the action of another before the fit, so that the world knows nothing about actions: a control
    condition."""

    def __post_init__(self) -> None:
        least = {"horizon": 1, "every": 1, "branches": 1, "kept": 1, "members": 1, "updates": 1, "steps": 100}
        allowed = {name: (getattr(self, name) >= low, f"{low} or more") for name, low in least.items()}
        allowed["share"] = (0.0 <= self.share < 1.0, "0 to 1, and below 1: real steps are learned from, too")
        allowed["elites"] = (1 <= self.elites <= self.members, f"1 to members = {self.members}")
        doubts = self.penalty > 0 and self.elites > 1
        allowed["penalty"] = (doubts or self.penalty == 0, "0, or above 0 with 2 elites or more")
        require_allowed(self, allowed, group=self.group)


NO_WORLD = Worlds()


@dataclass(frozen=True)
class Sampling(Replay):
    """Settings of a learner that the training loop reads: replay memory, batches, updates per step."""

    group = ""

    batch_size: int = 256
    """Transitions of one critic update."""
    updates_per_step: int = 1
    """Critic updates per call of `Learner.update`, which receives batch_size * updates_per_step transitions at once."""
    discount: float = 0.99
    """Discount per step, 0 to 1."""
    keeps_corrections: bool = False
    """True if steps that a person chose are also stored in the memory of the recorded episodes, as demonstrations."""
    worlds: Worlds = NO_WORLD
    """Learnt model of the environment that adds imagined steps to batches; by default none."""
    extras: tuple[Extra, ...] = ()
    """Further data in `Batch.extras` (robo_rl.extras), such as NextActions() or Chunks(4). For windows of whole steps see
    RecordedReplay.sample_windows."""

    @classmethod
    def of(cls, settings: object) -> Sampling:
        """Return the sampling settings within a learner's settings.

        Fields of Replay are read from the group `settings.replay`, all others from the attribute of `settings` with the same
        name. A field that is missing there keeps its default.
        """
        replay, of_replay = getattr(settings, "replay", None), {item.name for item in fields(Replay)}
        found = {item.name: replay if item.name in of_replay else settings for item in fields(cls)}
        return cls(**{name: getattr(source, name) for name, source in found.items() if hasattr(source, name)})

    def is_due(self, step: int) -> bool:
        """Return True if an update follows environment step `step`, counted from 1."""
        return step >= self.learning_starts and step % self.update_every == 0

    def updates(self, step: int) -> int:
        """Return the number of critic updates after `step` environment steps."""
        before = (max(self.learning_starts, 1) - 1) // self.update_every
        return self.updates_per_step * max(step // self.update_every - before, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "batch_size": (self.batch_size >= 1, "1 or more"),
            "updates_per_step": (self.updates_per_step >= 1, "1 or more"),
            "discount": (0.0 <= self.discount <= 1.0, "0 to 1"),
        }
        require_allowed(self, allowed)


class Sampler(Protocol):
    """Interface of sources of random batches."""

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99) -> Batch:
        """Return `batch_size` transitions drawn at random, with replacement."""


class Memory(Sampler, Stateful, Protocol):
    """Interface of replay memories: random batches, a known number of transitions, and a state that can be saved."""

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""


class StepMemory(Protocol):
    """Interface of memories that store episodes of N environments step by step. `place` numbers the environment from 0."""

    def is_running(self, place: int = 0) -> bool:
        """Return True from `begin` to the end of the episode of environment `place`."""

    def begin(self, observation: Observation, place: int = 0) -> None:
        """Begin an episode of environment `place`; a running episode is first cut at its last stored step."""

    def add(self, transition: Transition, place: int = 0) -> None:
        """Store the next step of the running episode of environment `place`; raises InvalidEpisode if none is running."""

    def add_all(self, steps: VectorTransition) -> None:
        """Store a step of each environment, and begin the next episode where one ended. Diverged steps are not stored."""

    def cut(self, place: int = 0) -> None:
        """End the running episode of environment `place` at its last stored step, as a truncation."""
