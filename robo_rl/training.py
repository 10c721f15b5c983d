"""The training loops: act and learn step by step, or learn from recorded episodes alone.

Both are `Stateful`: restored in a fresh process they go on bit for bit, because every episode is determined by its seed and
its actions, and every generator is part of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from robo_rl.errors import InvalidSetting, SimulationFailed
from robo_rl.memory import storage_in
from robo_rl.mixed_replay import BothMemories, CorrectedReplay, SymmetricReplay
from robo_rl.protocols import EpisodeJournal, Learner, Policy, TrainingObserver, TrainingSupervisor
from robo_rl.recorded import RecordedReplay, ReplayableEpisodes
from robo_rl.replay import ReplayBuffer
from robo_rl.reward_protocols import DelayedRewards
from robo_rl.rollout import RandomPolicy, RecordedRollout, Rollout
from robo_rl.sampling import Sampler, Sampling, StepMemory
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.stopwatch import Stopwatch
from robo_rl.types import DIVERGED, Array, Episode, Metrics, StateDict, Transition
from robo_rl.waiting import WaitingSteps, relabelling

MOST_DIVERGED = 10  # episodes among the first hundred, later one in ten: beyond that the model or the policy is at fault


def episode_seed(seed: int, index: int) -> int:
    """Returns the reset seed of training episode `index`, in [2^30, 2^31): apart from every evaluation seed."""
    word = int(np.random.SeedSequence([seed, index]).generate_state(1)[0])
    return (word & (2**30 - 1)) | 2**30


class OnlineTraining:
    """Off-policy training in an environment: one step, some updates, until `steps` steps are taken.

    Demonstrations go into a second buffer that fills `sampling.offline_fraction` of each batch, or into the same replay
    where that fraction is 0; where it is 1 the own steps are not learnt from, which only `sampling.keeps_corrections` makes
    sense of. Those of a dataset stay on disk (ReplayableEpisodes); checkpoints then do not repeat them.

    A supervisor, such as a person in the loop, acts in training episodes alone: evaluation knows nothing of it.

    With `rewards` of a model the learner never sees those of the environment, which are only reported. What the environment
    draws for them beyond the spec of the policy is not kept in the replay. Rewards that are learned meanwhile are given to each
    batch anew (`robo_rl.reward_protocols.Relabelling`).
    """

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        learner: Learner,
        sampling: Sampling,
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        supervisor: TrainingSupervisor | None = None,
        rewards: DelayedRewards | None = None,
    ) -> None:
        spec = learner.policy.environment_spec
        self.environment, self.learner, self.sampling = environment, learner, sampling
        self.steps, self.seed, self.supervisor = steps, seed, supervisor
        storage = storage_in(sampling.replay_folder)
        self.replay = ReplayBuffer(spec, sampling.replay_capacity, seed, storage, sampling.returns_discount)
        self.offline: RecordedReplay | CorrectedReplay | None = None
        self.sampler: Sampler = self.replay
        self.memory: StepMemory = self.replay
        if sampling.offline_fraction > 0:
            self.offline = self._offline(spec, demonstrations)
            self.sampler = self.offline
            if sampling.offline_fraction < 1:
                self.sampler = SymmetricReplay(self.replay, self.offline, sampling.offline_fraction)
        else:
            _fill(self.replay, demonstrations)
        self.waiting = None if rewards is None else WaitingSteps(self.memory, rewards)
        self.relabelling = relabelling(rewards, sampling)
        self.random = RandomPolicy(spec, seed)
        self.beginner: Policy | None = None
        """Acts until learning starts; None for at random."""
        self.stopwatch = Stopwatch()
        self.step = 0
        self.episodes = 0
        self.diverged = 0
        self.resumed: str | None = None
        """"exact" or "warm" after `load_state_dict`."""
        self.keep_episode: Callable[[Episode], None] | None = None
        """Is given every finished episode, whose metadata say `training_episode`, counted from 0, and `training_step`, at which
        it ended. An exact resume gives those since the checkpoint again."""
        self.journal: EpisodeJournal | None = None
        """Is told of every step as soon as it was taken."""
        self.recorded: Callable[[int], Episode | None] = _nothing_recorded
        """Returns the training episode of a number where it was lived before a crash: it is learnt from in the place of a new
        one, so that what a robot did is lost with no checkpoint. Only for environments that do not replay."""
        self._rollout: Rollout | RecordedRollout | None = None
        self._lived = 0  # steps of the running episode that were learnt from before a crash

    def _offline(self, spec: EnvironmentSpec, demonstrations: Sequence[Episode]) -> RecordedReplay | CorrectedReplay:
        """Returns the memory of the recorded episodes, with the person's corrections where the learner wants them there."""
        recorded = _recorded(spec, demonstrations, self.sampling, self.seed + 1)
        if self.supervisor is None or not self.sampling.keeps_corrections:
            return recorded
        storage = storage_in(self.sampling.replay_folder)
        corrections = ReplayBuffer(spec, self.sampling.replay_capacity, self.seed + 2, storage, self.sampling.returns_discount)
        self.memory = BothMemories(self.replay, corrections)
        return CorrectedReplay(recorded, corrections, self.seed + 3)

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        return self.learner.policy

    @property
    def replays(self) -> bool:
        """Whether the environment repeats itself with the same actions; a robot does not, and goes through nothing twice."""
        return bool(getattr(self.environment.unwrapped, "replays", True))

    def run(self, observer: TrainingObserver) -> None:
        """Trains from the present step to the last."""
        time = self.stopwatch.time
        self.stopwatch.start()
        while self.step < self.steps:
            self._make_ready(observer)
            transition = time("simulate", self._act)
            self.step += 1
            self._remember(transition)
            if self.step >= self.sampling.learning_starts:
                metrics = time("update", self._learn)
                if metrics:
                    time("log", partial(observer.on_metrics, self.step, metrics))
            if self._rollout is not None and self._rollout.done:
                self._finish(self._rollout, observer)
            time("log", partial(observer.on_step, self.step, self))

    def _make_ready(self, observer: TrainingObserver) -> None:
        """Does what is due before a step, which is nothing here."""

    def _act(self) -> Transition:
        if self._rollout is None:
            lived = self._lived_before()
            self._rollout = self._begun() if lived is None else lived
            if self.waiting is not None:
                self.waiting.begin(self._rollout)
        transition = self._rollout.step()
        if self.journal is not None and isinstance(self._rollout, Rollout):
            self.journal.step(transition)
        return transition

    def _begun(self) -> Rollout:
        seed = episode_seed(self.seed, self.episodes)
        rollout = Rollout(self.environment, _Explorer(self), seed=seed, supervisor=self.supervisor)
        if self.journal is not None:
            self.journal.begin(self.episodes, rollout.observation, seed=seed, instruction=rollout.instruction)
        return rollout

    def _lived_before(self) -> RecordedRollout | None:
        """Returns the rest of the next episode where it was recorded, None where there is nothing left to tell."""
        while (episode := self.recorded(self.episodes)) is not None and self._lived >= len(episode):
            self.episodes, self._lived = self.episodes + 1, 0
        lived, self._lived = self._lived, 0
        return None if episode is None else RecordedRollout(episode, lived, self.supervisor)

    def _remember(self, transition: Transition) -> None:
        memory = self.memory if self.waiting is None else self.waiting
        if transition.info.get("stop_reason") == DIVERGED:  # a bad transition teaches nothing
            memory.cut()
        else:
            memory.add(transition)

    def _learn(self) -> Metrics:
        sampling = self.sampling
        if not len(self.replay):
            return {}
        rows = sampling.batch_size * sampling.updates_per_step
        batch = self.sampler.sample(rows, sampling.n_step, sampling.discount, sampling.chunk)
        if self.relabelling is None:
            return self.learner.update(batch)
        time = self.stopwatch.time
        found = time("score", self.relabelling.update)
        return found | self.learner.update(time("score", partial(self.relabelling.relabel, batch)))

    def _finish(self, rollout: Rollout | RecordedRollout, observer: TrainingObserver) -> None:
        episode = rollout.episode()
        if self.keep_episode is not None:
            facts = {"training_episode": self.episodes, "training_step": self.step}
            self.keep_episode(replace(episode, metadata={**episode.metadata, **facts}))
        self._rollout = None
        self.episodes += 1
        self.diverged += episode.stop_reason == DIVERGED
        observer.on_episode(
            self.step,
            episode_return=episode.undiscounted_return,
            length=len(episode),
            success=episode.success,
            stop_reason=episode.stop_reason,
        )
        if self.waiting is not None:
            observer.on_metrics(self.step, self.waiting.rewards.metrics)
        if self.supervisor is not None:
            observer.on_metrics(self.step, self.supervisor.metrics)
        if metrics := getattr(self.environment.unwrapped, "metrics", None):  # such as those of a robot's control loop
            observer.on_metrics(self.step, metrics)
        if self.diverged > max(MOST_DIVERGED, self.episodes // 10):
            raise SimulationFailed(
                f"The simulation diverged in {self.diverged} of {self.episodes} episodes, the last at step {self.step}.",
                allowed=f"at most {MOST_DIVERGED}, or one in ten",
                fix="look at the model's time step and actuator limits, and at the actions of the policy",
            )

    def state_dict(self) -> StateDict:
        """Returns learner, replay, the running episode, generators and counters."""
        return {
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "offline": {} if self.offline is None else self.offline.state_dict(),
            "training": {
                "step": self.step,
                "episodes": self.episodes,
                "diverged": self.diverged,
                "random": self.random.state_dict(),
                "rollout": None if self._rollout is None else self._rollout.state_dict(),
                "supervisor": {} if self.supervisor is None else self.supervisor.state_dict(),
                "waiting": {} if self.waiting is None else self.waiting.state_dict(),
                "seconds": self.stopwatch.state_dict(),
            },
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores a training; replays the running episode and says in `resumed` whether that was exact."""
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        if self.offline is not None:
            self.offline.load_state_dict(state["offline"])
        training = state["training"]
        self.step, self.episodes, self.diverged = training["step"], training["episodes"], training["diverged"]
        self.random.load_state_dict(training["random"])
        self.stopwatch.load_state_dict(training["seconds"])
        self.resumed = "exact" if self.replays else "warm"
        self._rollout = None
        if self.supervisor is not None:
            self.supervisor.load_state_dict(training["supervisor"])
        if training["rollout"] is not None and not self.replays:  # a robot is not sent through its motions again
            self.memory.cut()
            self._lived = len(training["rollout"]["actions"])
        elif training["rollout"] is not None:
            rollout = Rollout.resume(self.environment, _Explorer(self), training["rollout"], supervisor=self.supervisor)
            if rollout.exact:
                self._rollout = rollout
            else:
                self.resumed = "warm"
                self.memory.cut()
                self.episodes += 1
        if self.waiting is not None:
            self.waiting.load_state_dict(training["waiting"], self._rollout)
            self.resumed = self.resumed if self.waiting.rewards.repeats_itself else "warm"


class OfflineTraining:
    """Training from recorded episodes alone: `steps` updates, no environment; raises InvalidSetting without episodes."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        learner: Learner,
        sampling: Sampling,
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode],
    ) -> None:
        self.learner, self.sampling, self.steps = learner, sampling, steps
        if not demonstrations:
            raise InvalidSetting(
                "Offline learning needs recorded episodes.", got="none", fix="set demonstrations.episodes in the recipe"
            )
        self.replay = _recorded(spec, demonstrations, sampling, seed)
        self.stopwatch = Stopwatch()
        self.step = 0
        self.resumed: str | None = None

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        return self.learner.policy

    def run(self, observer: TrainingObserver) -> None:
        """Takes the remaining updates."""
        time = self.stopwatch.time
        self.stopwatch.start()
        while self.step < self.steps:
            self.step += 1
            metrics = time("update", self._learn)
            if metrics:
                time("log", partial(observer.on_metrics, self.step, metrics))
            time("log", partial(observer.on_step, self.step, self))

    def _learn(self) -> Metrics:
        sampling = self.sampling
        batch = self.replay.sample(sampling.batch_size, sampling.n_step, sampling.discount, sampling.chunk)
        return self.learner.update(batch)

    def state_dict(self) -> StateDict:
        """Returns learner, data and counters."""
        training = {"step": self.step, "seconds": self.stopwatch.state_dict()}
        return {"learner": self.learner.state_dict(), "replay": self.replay.state_dict(), "training": training}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores a training exactly."""
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        self.step = state["training"]["step"]
        self.stopwatch.load_state_dict(state["training"]["seconds"])
        self.resumed = "exact"


class _Explorer:
    """Acts as the beginner does until learning starts, then samples from the policy being trained."""

    def __init__(self, training: OnlineTraining) -> None:
        self._training = training

    @property
    def environment_spec(self) -> EnvironmentSpec:
        return self._training.policy.environment_spec

    def reset(self) -> None:
        self._training.policy.reset()

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        training = self._training
        policy = training.policy if training.step >= training.sampling.learning_starts else training.beginner or training.random
        return training.stopwatch.time("infer", partial(policy.act, observation, deterministic=deterministic))


def _nothing_recorded(episode: int) -> None:
    del episode


def _recorded(spec: EnvironmentSpec, episodes: Sequence[Episode], sampling: Sampling, seed: int) -> RecordedReplay:
    """Returns what samples from the episodes: where they lie on disk, or in RAM."""
    if isinstance(episodes, ReplayableEpisodes):
        return episodes.replay(seed, sampling.returns_discount, spec)
    _require_room(episodes, sampling.replay_capacity)
    return RecordedReplay.of(spec, episodes, seed, returns_discount=sampling.returns_discount)


def _fill(replay: ReplayBuffer, episodes: Sequence[Episode]) -> None:
    _require_room(episodes, replay.capacity)
    for episode in episodes:
        replay.add_episode(episode)


def _require_room(episodes: Sequence[Episode], capacity: int) -> None:
    rows = sum(len(episode) + 1 for episode in episodes)
    if rows > capacity:
        raise InvalidSetting(
            "The recorded episodes do not fit into the replay memory.",
            got=f"{rows} rows",
            allowed=f"replay_capacity of {capacity}",
            fix="raise learner.replay_capacity",
        )
