"""What the parts promise each other. Small structural interfaces; implementations never inherit from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import gymnasium

from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.stopwatch import Stopwatch
from robo_rl.types import ActionSource, Array, Batch, Episode, Executed, Metrics, RewardLabels, StateDict, Transition


@runtime_checkable
class Stateful(Protocol):
    """Can be saved and restored so that it goes on exactly as it would have."""

    def state_dict(self) -> StateDict:
        """Returns everything that later behaviour depends on, random generators included."""
        ...

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Chooses actions for environments of one spec."""

    @property
    def environment_spec(self) -> EnvironmentSpec:
        """What the policy observes and commands; another environment is refused."""
        ...

    def reset(self) -> None:
        """Forget the episode before."""
        ...

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Returns an action as ActionSpec describes it: (A,) float32 in [-1, 1], or an int64 scalar."""
        ...


@runtime_checkable
class TransferablePolicy(Policy, Protocol):
    """A policy that another process can act with, as it is after each update."""

    def parameters(self) -> StateDict:
        """Returns copies of all that `act` follows from, random generators excepted."""
        ...

    def load_parameters(self, parameters: StateDict) -> None:
        """Acts from now on as the policy did whose `parameters` these are."""
        ...


@runtime_checkable
class Learner(Stateful, Protocol):
    """Improves a policy from batches; never sees an environment."""

    @property
    def policy(self) -> Policy:
        """The policy being trained; acting with it sees every update at once."""
        ...

    def update(self, batch: Batch) -> Metrics:
        """Takes the gradient steps of one training step; returns metrics, empty where they are not due."""
        ...


class TrainingObserver(Protocol):
    """Is told what happens in training; writes logs, evaluates, saves checkpoints."""

    def on_episode(self, step: int, *, episode_return: float, length: int, success: bool | None, stop_reason: str) -> None:
        """An episode of training ended at environment step `step`."""
        ...

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """A learner reported metrics."""
        ...

    def on_step(self, step: int, training: Training) -> None:
        """Step `step` is complete; the state of `training` is consistent and may be saved now."""
        ...


@runtime_checkable
class Training(Stateful, Protocol):
    """A training under way: a learner, its data and how far it got."""

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        ...

    @property
    def step(self) -> int:
        """Steps taken so far: of the environment, or updates where there is none."""
        ...

    @property
    def resumed(self) -> str | None:
        """None for a fresh training; after `load_state_dict` "exact", or "warm" where what follows may differ."""
        ...

    @property
    def stopwatch(self) -> Stopwatch:
        """Shares out the time since training began; an observer charges its own to "log", "evaluation", "checkpoint"."""
        ...

    def run(self, observer: TrainingObserver) -> None:
        """Trains from the present step to the last."""
        ...


@runtime_checkable
class SavesItself(Protocol):
    """A training of which another process has a part: it writes its checkpoints itself."""

    def save(self, step: int, parts: dict[str, StateDict]) -> None:
        """Has a checkpoint of a step written, with these parts in it; raises OSError where the one before was not."""
        ...


class DelayedRewards(Stateful, Protocol):
    """Rewards that a model gives the steps of N environments: many at once, some time after the steps, and for some never."""

    @property
    def is_due(self) -> bool:
        """True once enough wait to be scored."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Scalars such as the model's mean return over recent episodes."""
        ...

    def restart(self) -> None:
        """Forgets what waits: all environments are about to begin an episode."""
        ...

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode; `observation` holds what the model looks at."""
        ...

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step that led to `observation`, the last one of its episode if that ended.

        action: as it was executed. reward: the environment's own, for a reward that adds to it or decomposes what an episode
        returned, and says so; no other reads it.
        """
        ...

    def score(self) -> tuple[Array, Array, Array]:
        """Returns the rewards of the steps added since the last call, which are known, and which ended the task, (K,) each.

        In the order of the steps. One with which the task ended, as the model sees it, is to be learnt from as terminated; what
        follows it, until the environment begins anew, is not known.

        Raises RewardUnavailable where the model has given no usable answer for long.
        """
        ...


@runtime_checkable
class Relabelling(DelayedRewards, Protocol):
    """Rewards of one environment that change as they are learned: no reward is stored, each batch gets those of the moment.

    What `score` returns, and what the replay memory then holds in the place of rewards, are the places of the steps in a memory
    of its own. Only a loop that relabels what it samples can learn from them; others refuse them (`robo_rl.waiting`).
    """

    def reserve(self, steps: int) -> None:
        """Makes room for the newest `steps` steps; called once, before everything else."""
        ...

    def update(self) -> Metrics:
        """Learns from what whole episodes returned; returns metrics, empty where they are not due."""
        ...

    def relabel(self, batch: Batch) -> Batch:
        """Returns a batch of single steps with rewards in the place of places."""
        ...


@runtime_checkable
class DelayedVectorRewards(DelayedRewards, Protocol):
    """Rewards that are shown a step of all environments at once, where one after the other would take too long."""

    def add_all(
        self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Every environment took a step: what `add` is told, as arrays (N, ...), which stay the caller's."""
        ...


@runtime_checkable
class UnrepeatableRewards(Protocol):
    """Rewards that may follow from when answers come, and not from the steps alone."""

    @property
    def repeats_itself(self) -> bool:
        """False where the same steps may get other rewards the next time: resuming is then warm."""
        ...


class OnlineRewards(Protocol):
    """A reward of a model that a policy learns from while it acts."""

    @property
    def identity(self) -> Mapping[str, str | float]:
        """What the rewards follow from: names, hashes of weights and words, factors; a run goes on with no other."""
        ...

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec without what is drawn for the reward alone: what a policy sees, and what is kept to learn from."""
        ...

    def running(self, environments: int) -> DelayedRewards:
        """Returns what scores so many environments under way."""
        ...

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yields a recorded episode as a policy of `spec` would have lived it, with these rewards, cut where one is missing."""
        ...


class LearnerConfig(Protocol):
    """What an entry point of `robo_rl.learners` names: a frozen dataclass of settings that can build its learner."""

    def build(self, spec: EnvironmentSpec, seed: int) -> Learner:
        """Returns a fresh learner for an environment, fully determined by the seed."""
        ...


@runtime_checkable
class VectorFactory(Protocol):
    """Makes environments of one task, one by one or many in one object."""

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Returns a fresh environment."""
        ...

    def make_vector(self, num_envs: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Returns `num_envs` fresh environments with an `environment_spec`, in the mode AutoresetMode.SAME_STEP."""
        ...


@runtime_checkable
class SelfTrainedConfig(Protocol):
    """Settings of a learner that brings its own training loop, such as Stable-Baselines3's or that of PPO.

    Where the factory is a VectorFactory too, as that of a recipe is, the loop may ask it for many environments at once.
    """

    def training(
        self,
        environment_factory: Callable[[], gymnasium.Env[Any, Any]],
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        initial_policy: Policy | None = None,
        reward: OnlineRewards | None = None,
    ) -> Training:
        """Returns a training at step 0 that learns from as many environments as it asks the factory for.

        With a `reward` the learner never sees that of the environment, which is only reported.
        """
        ...

    def restored_policy(
        self, environment_factory: Callable[[], gymnasium.Env[Any, Any]], *, seed: int, state: StateDict
    ) -> Policy:
        """Returns the policy of a saved training; asks for no demonstrations, because nothing is learnt any more."""
        ...


@runtime_checkable
class EnvironmentFamily(Protocol):
    """What an entry point of `robo_rl.environments` names: several environments that share one wrapper."""

    def names(self) -> Iterable[str]:
        """Returns the task names, without making any; raises MissingExtra where the simulator is not installed."""
        ...

    def make(self, name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
        """Returns a fresh environment that has an `environment_spec`; raises UnknownName."""
        ...


class Supervisor(Protocol):
    """Stands between a policy and an environment: a person, a guard or a scripted expert."""

    def reset(self) -> None:
        """A new episode begins."""
        ...

    def override(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        """Returns the action to execute, and who chose it."""
        ...


class TrainingSupervisor(Supervisor, Stateful, Protocol):
    """A supervisor of training episodes, saved with the training so that it goes on exactly."""

    @property
    def metrics(self) -> Metrics:
        """Scalars such as the share of steps that it took over."""
        ...

    def begin(self) -> None:
        """An episode of the past is told again: `count` follows for each of its steps, and nobody is asked."""
        ...

    def count(self, source: ActionSource) -> None:
        """Counts a step by who chose it."""
        ...


class EpisodeJournal(Protocol):
    """Is told of training episodes step by step, so that a process that dies loses at most the running one."""

    def begin(self, number: int, observation: Observation, *, seed: int, instruction: str | None) -> None:
        """Training episode `number` begins."""
        ...

    def step(self, transition: Transition) -> None:
        """It went on."""
        ...


class RewardModel(Protocol):
    """Labels recorded episodes. Its settings are its fields, so that a file can name them."""

    @property
    def identity(self) -> tuple[str, str]:
        """Its name and a hash of all that its labels follow from, such as weights: their `model` and `weights_hash`."""
        ...

    def label(self, episode: Episode) -> RewardLabels:
        """Returns one value per step, and which of them are missing."""
        ...


@runtime_checkable
class RewardModelOfMany(Protocol):
    """A reward model that labels many episodes faster than one after the other, and is asked in vain at little cost."""

    def label_all(self, episodes: Iterable[Episode]) -> Iterator[RewardLabels]:
        """Yields what `label` returns for each episode, in their order."""
        ...


@runtime_checkable
class OnlineRewardModel(RewardModel, Protocol):
    """A reward model that a policy can learn from while it acts, though it does not look at pictures."""

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> OnlineRewards:
        """Returns what gives its rewards in an environment of that spec, times `weight`.

        discount: the learner's, where it has one. Raises InvalidSetting for an environment that it cannot judge.
        """
        ...


class Robot(Protocol):
    """A real robot, or a stand-in behind the same protocol."""

    spec: EnvironmentSpec

    def connect(self) -> None:
        """Opens the link; nothing is opened in a constructor."""
        ...

    def observe(self) -> Observation:
        """Returns the newest measurement."""
        ...

    def apply(self, action: Array) -> Executed:
        """Commands an action that answers the newest `observe`; returns the one that was executed, and why it differs.

        Raises RobotStopped where nothing may move until a person re-arms, RobotUnavailable where the link is lost.
        """
        ...

    def pause(self) -> None:
        """Holds still until the next action, without anything being wrong."""
        ...

    def stop(self) -> None:
        """Stops motion; may be called at any time, from any thread, any number of times; never raises."""
        ...

    def close(self) -> None:
        """Closes the link."""
        ...
