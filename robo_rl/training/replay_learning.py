"""Learning from replay memories: they are filled step by step, and a learner gets batches from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Learner, ObservingLearner, Policy, Stateful
from robo_rl.protocols.rewards import DelayedRewards
from robo_rl.protocols.sampling import Sampler, Sampling, StepMemory
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.imagined import IMAGINED, remember_imagined
from robo_rl.replay.mixing import BothMemories, CorrectedReplay, SymmetricReplay, WithImagined
from robo_rl.replay.recorded import RecordedReplay, ReplayableEpisodes
from robo_rl.replay.storage import storage_in
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.delayed_rewards import EpisodeUnderWay, WaitingSteps, relabelling
from robo_rl.types import (
    DIVERGED,
    Array,
    Episode,
    Metrics,
    StateDict,
    Transition,
    VectorTransition,
    info_of,
)

if TYPE_CHECKING:
    from robo_rl.worlds.branches import Branches


class ReplayLearner(Stateful):
    """A learner together with its replay memories: stores steps, draws batches, and updates the learner.

    Demonstrations are stored in a second memory that provides `sampling.offline_fraction` of each batch, or in the same memory
    as own steps if that fraction is 0. With a fraction of 1 own steps are not learned from, which is useful only with
    `sampling.keeps_corrections`. Demonstrations of a dataset stay on disk (ReplayableEpisodes); checkpoints do not repeat them.

    With `rewards` of a model the learner never sees the environment's own rewards, which are only reported. Observation entries
    that only the model reads are not stored. Rewards that change while they are learned are recomputed for each batch
    (`robo_rl.protocols.rewards.Relabelling`).

    With `sampling.worlds` a model of the environment is learned from the memories, and a share of each batch is imagined by it
    (`robo_rl.worlds.branches.Branches`); imagined steps have a memory of their own.
    """

    def __init__(
        self,
        learner: Learner,
        sampling: Sampling,
        *,
        seed: int,
        stopwatch: Stopwatch,
        demonstrations: Sequence[Episode] = (),
        is_corrected: bool = False,
        rewards: DelayedRewards | None = None,
        environments: int = 1,
    ) -> None:
        """Allocate the memories and store the demonstrations.

        Args:
            learner: Learner that gets the batches.
            sampling: Settings of the memories and batches.
            seed: Seed of the sampling.
            stopwatch: Clock of the training.
            demonstrations: Recorded episodes.
            is_corrected: True if a person may take over; `sampling` says whether the person's steps are kept as demonstrations.
            rewards: Rewards of a model; None for the environment's own.
            environments: Number of environments whose steps are added.
        """
        self.learner, self.sampling, self.stopwatch = learner, sampling, stopwatch
        self.has_learnt = False
        """True once the learner was given a batch."""
        self._observing = learner if isinstance(learner, ObservingLearner) else None
        spec = learner.policy.environment_spec
        self.replay = _buffer(spec, sampling, seed, environments)
        self.offline: RecordedReplay | CorrectedReplay | None = None
        self.sampler: Sampler = self.replay
        self.memory: StepMemory = self.replay
        if sampling.offline_fraction > 0:
            self.offline = recorded_replay(spec, demonstrations, sampling, seed + 1)
            if is_corrected and sampling.keeps_corrections:
                corrections = _buffer(spec, sampling, seed + 2)
                self.memory = BothMemories(self.replay, corrections)
                self.offline = CorrectedReplay(self.offline, corrections, seed + 3)
            self.sampler = self.offline
            if sampling.offline_fraction < 1:
                self.sampler = SymmetricReplay(self.replay, self.offline, sampling.offline_fraction)
        else:
            require_room(demonstrations, sampling.capacity, environments)
            for number, episode in enumerate(demonstrations):
                self.replay.add_episode(episode, number % environments)
        self.waiting = None if rewards is None else WaitingSteps(self.memory, rewards)
        self.relabelling = relabelling(rewards, sampling)
        self.branches = branches_of(learner, sampling, seed + 4)
        if self.branches is not None:
            self.sampler = WithImagined(self.sampler, self.branches.memory, sampling.worlds.share)

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        return self.learner.policy

    @property
    def metrics(self) -> Metrics:
        """Scalars of the reward model; empty without one."""
        return {} if self.waiting is None else self.waiting.rewards.metrics

    @property
    def gets_rewards(self) -> bool:
        """True if steps wait for the rewards of a reward model."""
        return self.waiting is not None

    def begin(self, episode: EpisodeUnderWay) -> None:
        """Begin an episode; a running episode is first cut at its last step."""
        if self.waiting is None:
            self.memory.begin(episode.observation)
            return
        if len(self.waiting):
            self.waiting.cut()
        self.waiting.begin(episode.observation, episode.instruction)

    def begin_all(self, observations: Mapping[str, Array], infos: Mapping[str, Any]) -> None:
        """Begin an episode in each of N environments; running episodes are first cut at their last steps."""
        if self.waiting is not None:
            self.waiting.rewards.restart()
        for place in range(len(next(iter(observations.values())))):
            self._begin_at(place, observations, infos)

    def _begin_at(self, place: int, observations: Mapping[str, Array], infos: Mapping[str, Any]) -> None:
        first = {name: values[place] for name, values in observations.items()}
        if self.waiting is None:
            self.memory.begin(first, place)
        else:
            told = info_of(infos, place).get("instruction")
            self.waiting.begin(first, told or self.policy.environment_spec.instruction, place)

    def break_off(self) -> None:
        """Cut all running episodes, because they are not continued after a resume."""
        for place in range(self.replay.environments):
            self.memory.cut(place)

    def add(self, step: Transition | VectorTransition) -> None:
        """Store a step of one environment, or one of each of N environments.

        A diverged step is not stored; its episode is cut.
        """
        if isinstance(step, VectorTransition):
            self._add_all(step)
            return
        memory = self.memory if self.waiting is None else self.waiting
        if step.info.get("stop_reason") == DIVERGED:
            memory.cut()
        else:
            memory.add(step)
            if imagined := step.info.get(IMAGINED):
                spec = self.learner.policy.environment_spec
                remember_imagined(self.memory, imagined, spec, waits=self.waiting is not None)
        if self._observing is not None:
            self._observing.observe(step)

    def _add_all(self, steps: VectorTransition) -> None:
        """Store a step of each of N environments, and begin the next episodes."""
        if self.waiting is None:
            self.memory.add_all(steps)
            return
        for place, diverged in enumerate(steps.diverged.tolist()):
            if diverged:
                self.waiting.cut(place)
            else:
                self.waiting.add(steps.transition(place), place)
        for place in np.flatnonzero(steps.ended).tolist():
            self._begin_at(place, steps.following, steps.infos)

    def update(self, step: int) -> Metrics:
        """Update the learner from one batch after environment step `step`; return metrics, empty if no update is due."""
        sampling = self.sampling
        if not sampling.is_due(step) or not len(self.replay):
            return {}
        self.has_learnt = True
        if self.branches is not None:
            real = [memory for memory in (self.replay, self.offline) if isinstance(memory, ReplayBuffer | RecordedReplay)]
            self.stopwatch.time("imagine", partial(self.branches.renew, step, real))
        rows = sampling.batch_size * sampling.updates_per_step
        batch = self.sampler.sample(rows, sampling.n_step, sampling.discount)
        if self.relabelling is None:
            return self._counted(step, self.learner.update(batch))
        time = self.stopwatch.time
        found = time("score", self.relabelling.update)
        return found | self._counted(step, self.learner.update(time("score", partial(self.relabelling.relabel, batch))))

    def _counted(self, step: int, metrics: Metrics) -> Metrics:
        """Add the number of updates and the size of the memory to the learner's metrics, unless they are empty."""
        updates = float(self.sampling.updates(step))
        imagined = {} if self.branches is None else self.branches.metrics
        return metrics and {**metrics, "train/updates": updates, "replay/size": float(len(self.replay)), **imagined}

    @override
    def state_dict(self) -> StateDict:
        return {
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "offline": {} if self.offline is None else self.offline.state_dict(),
            **({} if self.branches is None else {"branches": self.branches.state_dict()}),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        if self.offline is not None:
            self.offline.load_state_dict(state["offline"])
        if self.branches is not None:
            self.branches.load_state_dict(state["branches"])

    def waiting_state(self) -> StateDict:
        """Return the state of the steps that wait for their rewards, to be saved.

        Empty if rewards are not computed in the training.
        """
        return {} if self.waiting is None else self.waiting.state_dict()

    def load_waiting_state(self, state: StateDict, episode: EpisodeUnderWay | None) -> bool:
        """Restore the steps that wait for a reward; return False if their rewards may differ from an uninterrupted training."""
        if self.waiting is None:
            return True
        self.waiting.load_state_dict(state, episode)
        return self.waiting.rewards.repeats_itself


def branches_of(learner: Learner, sampling: Sampling, seed: int) -> Branches | None:
    """Return the branches that the sampling asks for, or None; raises InvalidSetting for a learner that cannot have any."""
    if not sampling.worlds.share:
        return None
    from robo_rl.worlds.branches import Branches, BringsBranches  # imports torch, which listing commands do not need

    worlds = sampling.worlds
    make = worlds.make_branches if isinstance(worlds, BringsBranches) else Branches
    return make(learner.policy, sampling, seed)


def recorded_replay(spec: EnvironmentSpec, episodes: Sequence[Episode], sampling: Sampling, seed: int) -> RecordedReplay:
    """Return a replay memory of recorded episodes: mapped from disk if they are stored as rows there, else in RAM."""
    if isinstance(episodes, ReplayableEpisodes):
        return episodes.replay(seed, sampling.extras, spec)
    require_room(episodes, sampling.capacity)
    return RecordedReplay.of(spec, episodes, seed, extras=sampling.extras)


def require_room(episodes: Sequence[Episode], capacity: int, parts: int = 1) -> None:
    """Raise InvalidSetting if the episodes do not fit into a memory of `capacity` rows.

    parts: number of equal parts of the memory, over which the episodes are distributed in turn.
    """
    rows = [0] * parts
    for number, episode in enumerate(episodes):
        rows[number % parts] += len(episode) + 1
    if max(rows) > capacity // parts:
        raise InvalidSetting(
            "The recorded episodes do not fit into the replay memory.",
            got=f"{max(rows) * parts} rows",
            allowed=f"replay.capacity of {capacity}",
            fix="raise learner.replay.capacity",
        )


def _buffer(spec: EnvironmentSpec, sampling: Sampling, seed: int, environments: int = 1) -> ReplayBuffer:
    storage = storage_in(sampling.folder)
    return ReplayBuffer(spec, sampling.capacity, seed, storage, sampling.extras, environments)
