"""Interfaces of policies, learners, environments and robots (typing.Protocol): a class needs the methods, no inheritance."""

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
    """Interface of objects whose state can be saved and restored, so that they continue exactly."""

    def state_dict(self) -> StateDict:
        """Return everything that later behaviour depends on, including random generators."""

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""


class Stateless(Stateful):
    """Base class for objects that usually have no state to save; a subclass with state overrides both methods."""

    @override
    def state_dict(self) -> StateDict:
        return {}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        del state


@runtime_checkable
class Policy(Protocol):
    """Interface of a policy, which chooses actions in environments of one spec."""

    @property
    def environment_spec(self) -> EnvironmentSpec:
        """Spec of the policy's observations and actions; an environment with another spec is rejected.

        Entries of the environment that the policy does not read may be missing; such entries are not stored in the replay
        memory.
        """

    def reset(self) -> None:
        """Prepare for a new episode: forget the episode before."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return an action as ActionSpec describes it: (A,) float32 in [-1, 1], or an int64 scalar.

        Args:
            observation: Entry -> array, as `environment_spec` describes it.
            deterministic: True for the most likely or mean action, False for a sampled one.
        """


@runtime_checkable
class BatchedPolicy(Policy, Protocol):
    """Interface of a policy without memory that can act in many environments at once."""

    def act_all(self, observations: Mapping[str, Array]) -> Array:
        """Return one sampled action per environment, (N, A) or (N,), as `act` would sample it.

        observations: name -> (N, ...), one row for each environment.
        """


@runtime_checkable
class TransferablePolicy(Policy, Protocol):
    """Interface of a policy whose parameters can be copied to another process, which then acts while the learner goes on."""

    def parameters(self) -> StateDict:
        """Return copies of everything that actions depend on, except for random generators."""

    def load_parameters(self, parameters: StateDict) -> None:
        """Replace the parameters by those that `parameters` of another policy returned."""


@runtime_checkable
class Learner(Stateful, Protocol):
    """Interface of a learner, which improves a policy from batches of transitions; it never gets an environment."""

    @property
    def policy(self) -> Policy:
        """The policy being trained; it uses the newest parameters after every `update`."""

    def update(self, batch: Batch) -> Metrics:
        """Take the gradient steps of one training step; return metrics for the log, empty if none are due."""


@runtime_checkable
class ObservingLearner(Learner, Protocol):
    """Interface of a learner that must see every step of its own episodes, such as to sum up costs of whole episodes."""

    def observe(self, transition: Transition) -> None:
        """Receive the next step; called for every step in the order in which they were taken."""


class TrainingObserver(Protocol):
    """Interface of the callbacks of a training loop, with which it writes logs, evaluates and saves checkpoints."""

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
        """Receive an episode that ended at environment step `step`, to log it.

        Args:
            step: Environment steps so far.
            episode_return: Undiscounted sum of rewards.
            length: Steps of the episode.
            success: True or False if the environment reports success, None otherwise.
            stop_reason: As `Episode.stop_reason`.
            episode: The whole episode, if the training records it.
            costs: Name of a constraint cost -> its sum, from trainings that do not record whole episodes.
            place: Number of the environment, and how many environments run side by side.
        """

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Receive the learner's metrics after environment step `step`, to log them."""

    def on_step(self, step: int, training: Training) -> None:
        """Receive the news that step `step` is complete; the state of `training` is consistent now, so that it may be saved."""


@runtime_checkable
class Training(Stateful, Protocol):
    """Interface of a training loop with all that it holds: a learner, its data and its progress."""

    @property
    def policy(self) -> Policy:
        """The policy being trained."""

    @property
    def step(self) -> int:
        """Environment steps so far, or updates so far if no environment is used."""

    @property
    def resumed(self) -> str | None:
        """None for a fresh training, else "exact", or "warm" if later steps may differ from an uninterrupted training."""

    @property
    def stopwatch(self) -> Stopwatch:
        """Clock that adds up the time of each activity.

        The observer charges its own to "log", "evaluation" and "checkpoint".
        """

    def run(self, observer: TrainingObserver) -> None:
        """Train from the present step to the last step."""


@runtime_checkable
class SavesItself(Protocol):
    """Interface of a training that writes its checkpoints itself, because a part of it runs in another process."""

    def save(self, step: int, parts: dict[str, StateDict]) -> None:
        """Request a checkpoint of step `step`; raises OSError if the checkpoint before it could not be written.

        parts: name -> state of parts that the caller adds to the checkpoint.
        """


@runtime_checkable
class VectorFactory(Protocol):
    """Interface of what makes environments of one task, singly or as one vector environment."""

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Return a fresh single environment."""

    def make_vector(self, num_envs: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Return a vector environment with an `environment_spec`, in the mode AutoresetMode.SAME_STEP."""


@runtime_checkable
class EnvironmentFamily(Protocol):
    """Interface of a group of environments from one source, such as a simulator, named by an entry point.

    The entry points are those of `robo_rl.environments`.
    """

    def names(self) -> Iterable[str]:
        """Return the names of the environments without making any; raises MissingExtra if the simulator is not installed."""

    def make(self, name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment that has an `environment_spec`; raises UnknownName for an unknown name."""


class FrozenEncoder(Protocol):
    """Interface of an image encoder that is not trained.

    An entry point of `robo_rl.encoders` makes it from a folder and device.
    """

    digest: str
    """Hex digits that identify the weights: encoders with different weights have different ones."""

    def size(self, spec: EnvironmentSpec) -> int:
        """Return the number F of features in an environment of this spec.

        Raises InvalidSetting if the encoder cannot read its pictures.
        """

    def encode(self, observations: Mapping[str, Array]) -> Array:
        """Return features (B, F) float32 of B observations, name -> (B, ...); pictures are uint8 (B, H, W, 3) RGB."""


class TextEncoder(Protocol):
    """Interface of a sentence encoder that is not trained; an entry point of `robo_rl.text_encoders` makes it."""

    digest: str
    """Hex digits that identify the weights: encoders with different weights have different ones."""
    size: int
    """Number F of features."""

    def encode(self, texts: Sequence[str]) -> Array:
        """Return features (N, F) float32 of N texts; raises InvalidSetting for a text that is too long."""


class Supervisor(Protocol):
    """Interface of what may replace a policy's action before its execution: a person, a guard or a scripted expert."""

    def reset(self) -> None:
        """Prepare for a new episode."""

    def override(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        """Return the action to execute, and its source; (`proposed`, POLICY) leaves the policy in control."""


class TrainingSupervisor(Supervisor, Stateful, Protocol):
    """Interface of a supervisor of training episodes whose state is saved with the training for an exact resume."""

    @property
    def metrics(self) -> Metrics:
        """Scalars for the log, such as the share of steps in which the supervisor acted."""

    def begin(self) -> None:
        """Prepare for the replay of a recorded episode: `count` is called for each of its steps instead of `override`."""

    def count(self, source: ActionSource) -> None:
        """Count a step of a replayed episode by who chose its action."""


class EpisodeRecorder(Protocol):
    """Interface of a recorder of training episodes, step by step; a killed process then loses at most the running episode."""

    def begin(self, number: int, observation: Observation, *, seed: int, instruction: str | None) -> None:
        """Begin to record training episode `number`, counted from 0, with its first observation."""

    def step(self, transition: Transition) -> None:
        """Record the next step of the running episode."""

    def keep(self, episode: Episode) -> None:
        """Store the ended episode.

        Its metadata hold `training_episode`, its number, and `training_step`, the step at which it ended.

        After an exact resume the episodes since the checkpoint are stored again.
        """

    def recorded(self, number: int) -> Episode | None:
        """Return training episode `number` if it was stored before a crash, else None.

        A stored episode is replayed, not played anew.
        """


class Robot(Protocol):
    """Interface of a real robot, or of a simulated one that is used in the same way."""

    spec: EnvironmentSpec

    def connect(self) -> None:
        """Open the connection; the constructor must not open it."""

    def observe(self) -> Observation:
        """Return the newest measurement."""

    def apply(self, action: Array) -> Executed:
        """Command an action (A,) in [-1, 1] that was chosen from the newest measurement of `observe`.

        Returns:
            The executed action, and the reasons for any difference from the commanded one.

        Raises:
            RobotStopped: No motion is allowed until a person re-arms the robot.
            RobotUnavailable: The connection is lost.
        """

    def pause(self) -> None:
        """Hold still until the next action, as a normal pause and not because of a fault."""

    def stop(self) -> None:
        """Stop all motion. May be called at any time, from any thread, repeatedly; never raises."""

    def close(self) -> None:
        """Close the connection."""
