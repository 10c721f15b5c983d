"""Protocols of policies, learners, environments and robots: small and structural, no inheritance needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import gymnasium
from typing_extensions import override

from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.stopwatch import Stopwatch
from robo_rl.types import ActionSource, Array, Batch, Episode, Executed, Metrics, StateDict, Transition


@runtime_checkable
class Stateful(Protocol):
    """Object that can be saved, and restored to continue exactly."""

    def state_dict(self) -> StateDict:
        """Return everything that later behaviour depends on, random generators included."""

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""


class Stateless(Stateful):
    """Base of parts of which most remember nothing; one that does overrides both methods."""

    @override
    def state_dict(self) -> StateDict:
        return {}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        del state


@runtime_checkable
class Policy(Protocol):
    """Chooses actions for environments of one spec."""

    @property
    def environment_spec(self) -> EnvironmentSpec:
        """Spec of the policy's observations and actions; an environment with another spec is rejected.

        It may lack entries of the environment that the policy does not read: those are not stored in the replay either.
        """

    def reset(self) -> None:
        """Forget the episode before."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return an action as ActionSpec describes it: (A,) float32 in [-1, 1], or an int64 scalar."""


@runtime_checkable
class BatchedPolicy(Policy, Protocol):
    """A policy without memory, which can act in many environments at once."""

    def act_all(self, observations: Mapping[str, Array]) -> Array:
        """Return random actions (N, ...) for observations name -> (N, ...), as `act` draws each of them."""


@runtime_checkable
class TransferablePolicy(Policy, Protocol):
    """A policy that another process can act with, as it is after each update."""

    def parameters(self) -> StateDict:
        """Return copies of all that `act` follows from, random generators excepted."""

    def load_parameters(self, parameters: StateDict) -> None:
        """Act from now on with these parameters of another policy."""


@runtime_checkable
class Learner(Stateful, Protocol):
    """Improves a policy from batches; never sees an environment."""

    @property
    def policy(self) -> Policy:
        """The policy being trained; acting with it sees every update at once."""

    def update(self, batch: Batch) -> Metrics:
        """Take the gradient steps of one training step; return metrics, empty if they are not due."""


@runtime_checkable
class ObservingLearner(Learner, Protocol):
    """Learner that reads more of its own steps than batches hold, such as the costs of whole episodes."""

    def observe(self, transition: Transition) -> None:
        """Take note of a step, in the order in which they were taken."""


class TrainingObserver(Protocol):
    """Callbacks of a training: writes logs, evaluates, saves checkpoints."""

    def on_episode(
        self,
        step: int,
        *,
        episode_return: float,
        length: int,
        success: bool | None,
        stop_reason: str,
        episode: Episode | None = None,
        costs: Mapping[str, float] = MappingProxyType({}),
        place: tuple[int, int] = (0, 1),
    ) -> None:
        """An episode of training ended at environment step `step`; episode: as a whole, if the training has it.

        costs: sums of its constraint costs, of a training that has no whole episodes. place: number of the environment that it
        ran in, and how many run side by side.
        """

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """A learner reported metrics."""

    def on_step(self, step: int, training: Training) -> None:
        """Step `step` is complete; the state of `training` is consistent and may be saved now."""


@runtime_checkable
class Training(Stateful, Protocol):
    """A training under way: a learner, its data and how far it got."""

    @property
    def policy(self) -> Policy:
        """The policy being trained."""

    @property
    def step(self) -> int:
        """Steps taken so far: of the environment, or updates if there is none."""

    @property
    def resumed(self) -> str | None:
        """None for a fresh training; after `load_state_dict` "exact", or "warm" if later steps may differ."""

    @property
    def stopwatch(self) -> Stopwatch:
        """Shares out the time since training began; an observer charges its own to "log", "evaluation", "checkpoint"."""

    def run(self, observer: TrainingObserver) -> None:
        """Train from the present step to the last."""


@runtime_checkable
class SavesItself(Protocol):
    """Training with a part in another process: it writes its checkpoints itself."""

    def save(self, step: int, parts: dict[str, StateDict]) -> None:
        """Requests a checkpoint of a step with these parts; raises OSError if the one before could not be written."""


@runtime_checkable
class VectorFactory(Protocol):
    """Makes environments of one task, one by one or many in one object."""

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment."""

    def make_vector(self, num_envs: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Return `num_envs` fresh environments with an `environment_spec`, in the mode AutoresetMode.SAME_STEP."""


@runtime_checkable
class EnvironmentFamily(Protocol):
    """Family of environments that share one wrapper; an entry point of `robo_rl.environments` names it."""

    def names(self) -> Iterable[str]:
        """Return the task names, without making any; raises MissingExtra if the simulator is not installed."""

    def make(self, name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment that has an `environment_spec`; raises UnknownName."""


class FrozenEncoder(Protocol):
    """Encoder of pictures that is not trained; an entry point of `robo_rl.encoders` makes it from a folder and a device."""

    digest: str
    """Hex digits that distinguish encoders with other weights."""

    def size(self, spec: EnvironmentSpec) -> int:
        """Return the number F of features in an environment; raises InvalidSetting if it cannot read its observations."""

    def encode(self, observations: Mapping[str, Array]) -> Array:
        """Return features (B, F) float32 of observations (B, ...), uint8 pictures among them."""


class TextEncoder(Protocol):
    """Encoder of sentences that is not trained; an entry point of `robo_rl.text_encoders` makes it."""

    digest: str
    """Hex digits that distinguish encoders with other weights."""
    size: int
    """Number F of features."""

    def encode(self, texts: Sequence[str]) -> Array:
        """Return features (N, F) float32 of texts; raises InvalidSetting for one that is too long."""


class Supervisor(Protocol):
    """Stands between a policy and an environment: a person, a guard or a scripted expert."""

    def reset(self) -> None:
        """A new episode begins."""

    def override(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        """Return the action to execute, and its source."""


class TrainingSupervisor(Supervisor, Stateful, Protocol):
    """A supervisor of training episodes, saved with the training for an exact resume."""

    @property
    def metrics(self) -> Metrics:
        """Scalars such as the share of steps that it took over."""

    def begin(self) -> None:
        """A recorded episode is replayed: `count` follows for each of its steps, and `override` is not called."""

    def count(self, source: ActionSource) -> None:
        """Counts a step by the source of its action."""


class EpisodeRecorder(Protocol):
    """Records training episodes step by step, so that a process that dies loses at most the running one."""

    def begin(self, number: int, observation: Observation, *, seed: int, instruction: str | None) -> None:
        """Training episode `number` begins."""

    def step(self, transition: Transition) -> None:
        """A step of it was taken."""

    def keep(self, episode: Episode) -> None:
        """It has ended; its metadata say `training_episode`, counted from 0, and `training_step`, at which it ended.

        An exact resume keeps those since the checkpoint again.
        """

    def recorded(self, number: int) -> Episode | None:
        """Return training episode `number` if it was recorded before a crash; it replaces a new rollout."""


class Robot(Protocol):
    """A real robot, or a stand-in behind the same protocol."""

    spec: EnvironmentSpec

    def connect(self) -> None:
        """Open the link; nothing is opened in a constructor."""

    def observe(self) -> Observation:
        """Return the newest measurement."""

    def apply(self, action: Array) -> Executed:
        """Commands an action that answers the newest `observe`; returns the executed one, and the reasons for any difference.

        Raises RobotStopped if nothing may move until a person re-arms, RobotUnavailable if the link is lost.
        """

    def pause(self) -> None:
        """Hold still until the next action, without anything being wrong."""

    def stop(self) -> None:
        """Stop motion; may be called at any time, from any thread, any number of times; never raises."""

    def close(self) -> None:
        """Close the link."""
