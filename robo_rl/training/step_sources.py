"""Sources of the steps that an off-policy training learns from; here, an environment in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import gymnasium
import numpy as np

from robo_rl.environments.lasting import environment_metrics, lasting_state, load_lasting_state
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import BatchedPolicy, EpisodeRecorder, Policy, TrainingObserver, TrainingSupervisor
from robo_rl.protocols.planning import replan
from robo_rl.rollout.episode import RandomPolicy, RecordedRollout, Rollout
from robo_rl.spec.environment import Observation
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.delayed_rewards import EpisodeUnderWay
from robo_rl.training.episode_reports import EpisodeReports
from robo_rl.types import Array, Metrics, StateDict, Transition, VectorTransition


def batched(policy: Policy) -> BatchedPolicy:
    """Return the policy if it can act in many environments at once; raises InvalidSetting otherwise."""
    if isinstance(policy, BatchedPolicy) and not hasattr(policy, "replan"):
        return policy
    raise InvalidSetting(
        "The policy cannot act in many environments at once.",
        got=type(policy).__name__,
        allowed="a policy without memory that has act_all(observations) (robo_rl.protocols.components.BatchedPolicy)",
        fix="set environments to 1",
    )


def episode_seed(seed: int, index: int) -> int:
    """Return the reset seed of training episode `index`, in [2^30, 2^31); evaluation seeds lie outside of this range."""
    word = int(np.random.SeedSequence([seed, index]).generate_state(1)[0])
    return (word & (2**30 - 1)) | 2**30


class StepSink(Protocol):
    """Interface of what receives the starts of episodes from a source of steps."""

    def begin(self, episode: EpisodeUnderWay) -> None:
        """Begin an episode; a running episode is first cut at its last step."""

    def break_off(self) -> None:
        """Cut the running episode at its last step, because a resumed training does not continue it."""


Sink_contra = TypeVar("Sink_contra", contravariant=True)


class StepSource(Protocol[Sink_contra]):
    """Interface of a source of steps for a training loop: environments in which the policy acts, or a log of steps."""

    @property
    def taken(self) -> int:
        """Number of steps so far, those of all environments together."""

    @property
    def episode(self) -> EpisodeUnderWay | None:
        """Running episode; None between two episodes, or if its steps are not kept."""

    @property
    def replays(self) -> bool:
        """True if the same actions lead the environment through the same states."""

    @property
    def metrics(self) -> Metrics:
        """Scalars to report with each update."""

    @property
    def stride(self) -> int:
        """Number of steps per call of `step`: one for each environment."""

    def step(self, sink: Sink_contra) -> Transition | VectorTransition:
        """Step the environments once and return the outcome; if an episode begins, call `sink.begin` first."""

    def report(self, observer: TrainingObserver) -> bool:
        """Report the episodes that ended with the newest step to the observer; return False if none did."""

    def state_dict(self) -> StateDict:
        """Return everything that later steps depend on."""

    def load_state_dict(self, state: StateDict, sink: Sink_contra) -> str:
        """Continue from a saved state; return the kind of resume, "exact" or "warm"."""


class Explorer:
    """Policy that acts at random for the first `random_steps` steps, then as the policy being trained."""

    def __init__(self, policy: Policy, *, seed: int, random_steps: int, stopwatch: Stopwatch, taken: int = 0) -> None:
        """Start after `taken` steps of an earlier process."""
        self.environment_spec = policy.environment_spec
        self.reset, self.replan = policy.reset, partial(replan, policy)
        self.random = RandomPolicy(policy.environment_spec, seed + taken)
        self.taken = taken
        self._policy, self._random_steps, self._stopwatch = policy, random_steps, stopwatch

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Choose an action (A,) or () for one observation; the time counts as "infer" on the training's clock."""
        policy = self._policy if self.taken >= self._random_steps else self.random
        return self._stopwatch.time("infer", partial(policy.act, observation, deterministic=deterministic))

    def act_all(self, observations: Mapping[str, Array]) -> Array:
        """Choose actions (N, A) or (N,) for N environments; the time counts as "infer" on the training's clock.

        Raises InvalidSetting if the policy has a memory.
        """
        policy = self._policy if self.taken >= self._random_steps else self.random
        return self._stopwatch.time("infer", partial(batched(policy).act_all, observations))


class EnvironmentSteps:
    """Source of steps that acts in one environment: an explorer chooses actions, a supervisor may override them.

    The supervisor, such as a person, is active in training episodes only, never in evaluations. If a recorder has an episode
    from before a crash, and the environment cannot be replayed, that episode is used in place of a new one.
    """

    stride = 1

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        explorer: Explorer,
        *,
        seed: int,
        supervisor: TrainingSupervisor | None = None,
        recorder: EpisodeRecorder | None = None,
        episodes: int = 0,
    ) -> None:
        """Start after `episodes` episodes of an earlier process."""
        self.environment, self.supervisor = environment, supervisor
        self.reports = EpisodeReports(episodes)
        self._explorer, self._seed, self._recorder = explorer, seed, recorder
        self._rollout: Rollout | RecordedRollout | None = None
        self._learnt = 0  # steps of the running episode that were learnt from before a crash
        self._hold: Callable[[], None] | None = None
        if environment.has_wrapper_attr("hold"):
            self._hold = environment.get_wrapper_attr("hold")

    @property
    def taken(self) -> int:
        """Number of environment steps so far."""
        return self._explorer.taken

    @property
    def episodes(self) -> int:
        """Number of episodes so far."""
        return self.reports.episodes

    @property
    def episode(self) -> Rollout | RecordedRollout | None:
        """Running episode; None between two episodes."""
        return self._rollout

    @property
    def replays(self) -> bool:
        """True if the same actions lead the environment through the same states. False for a robot, which repeats no motion."""
        return bool(getattr(self.environment.unwrapped, "replays", True))

    @property
    def metrics(self) -> Metrics:
        """Empty: everything is reported at the end of an episode."""
        return {}

    @property
    def is_in_real_time(self) -> bool:
        """True if the environment runs in real time: it then has a method `hold`."""
        return self._hold is not None

    def step(self, sink: StepSink) -> Transition:
        """Take a step; raises InvalidAction and InvalidEpisode as `Rollout.step` does."""
        if self._rollout is None:
            recorded = self._recorded_rollout()
            self._rollout = self._start_rollout() if recorded is None else recorded
            sink.begin(self._rollout)
        transition = self._rollout.step()
        if self._recorder is not None and isinstance(self._rollout, Rollout):
            self._recorder.step(transition)
        self._explorer.taken += 1
        return transition

    def hold(self) -> None:
        """Hold the robot still, if the environment runs in real time."""
        if self._hold is not None:
            self._hold()

    def cut(self, reason: str, observer: TrainingObserver) -> None:
        """Cut the running episode with the stop reason `reason` and hold still, if the environment runs in real time."""
        if self._hold is not None and isinstance(self._rollout, Rollout):
            self._rollout.cut(reason)
            self.report(observer)
        self.hold()

    def report(self, observer: TrainingObserver) -> bool:
        """Report and record the episode if it has ended; return False if not. Raises SimulationFailed if too many diverged."""
        if self._rollout is None or not self._rollout.done:
            return False
        episode = self._rollout.episode()
        if self._recorder is not None:
            facts = {"training_episode": self.episodes, "training_step": self.taken}
            self._recorder.keep(replace(episode, metadata={**episode.metadata, **facts}))
        self._rollout = None
        self.reports.report(observer, self.taken, episode)
        if self.supervisor is not None:
            observer.on_metrics(self.taken, self.supervisor.metrics)
        if metrics := environment_metrics(self.environment):  # such as those of a robot's control loop
            observer.on_metrics(self.taken, metrics)
        return True

    def state_dict(self) -> StateDict:
        """Return the running episode, random generators and counters."""
        return {
            **self.reports.state_dict(),
            "random": self._explorer.random.state_dict(),
            "rollout": None if self._rollout is None else self._rollout.state_dict(),
            "supervisor": {} if self.supervisor is None else self.supervisor.state_dict(),
            "lasting": lasting_state(self.environment),
        }

    def load_state_dict(self, state: StateDict, sink: StepSink) -> str:
        """Restore the counters and replay the running episode; a robot is not moved, so that its resume is "warm"."""
        self._explorer.taken = state["step"]
        self.reports.load_state_dict(state)
        self._explorer.random.load_state_dict(state["random"])
        if self.supervisor is not None:
            self.supervisor.load_state_dict(state["supervisor"])
        load_lasting_state(self.environment, state["lasting"])
        self._rollout, saved = None, state["rollout"]
        if saved is None:
            return "exact" if self.replays else "warm"
        if not self.replays:
            self._learnt = len(saved["actions"])
        else:
            rollout = Rollout.resume(self.environment, self._explorer, saved, supervisor=self.supervisor)
            if rollout.exact:
                self._rollout = rollout
                return "exact"
            self.reports.episodes += 1
        sink.break_off()
        return "warm"

    def _start_rollout(self) -> Rollout:
        seed = episode_seed(self._seed, self.episodes)
        rollout = Rollout(self.environment, self._explorer, seed=seed, supervisor=self.supervisor)
        if self._recorder is not None:
            self._recorder.begin(self.episodes, rollout.observation, seed=seed, instruction=rollout.instruction)
        return rollout

    def _recorded_rollout(self) -> RecordedRollout | None:
        """Return the steps of the next episode that are not yet learned from, if it was recorded before a crash, else None."""
        if self._recorder is None:
            return None
        while (episode := self._recorder.recorded(self.episodes)) is not None and self._learnt >= len(episode):
            self.reports.episodes, self._learnt = self.episodes + 1, 0
        learnt, self._learnt = self._learnt, 0
        return None if episode is None else RecordedRollout(episode, learnt, self.supervisor)
