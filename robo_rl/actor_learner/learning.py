"""The learner's half of a training: steps come from a log, in the order in which another process took them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, Protocol

import gymnasium

from robo_rl.actor_learner.office import EVERY, Finished, Office
from robo_rl.checkpoints import has_checkpoint, load_checkpoint
from robo_rl.errors import RoboRLError
from robo_rl.protocols import Learner
from robo_rl.reward_protocols import DelayedRewards
from robo_rl.sampling import Sampling
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.training import OnlineTraining
from robo_rl.types import ActionSource, Array, Episode, Metrics, StateDict, Transition

OWN = ("learner", "replay", "offline", "training")
"""parts of a checkpoint that are the learner's"""
IDLE = 0.005  # [s] between two looks at the log where there is nothing new


class Beginning(Protocol):
    """An episode began in the other process."""

    @property
    def observation(self) -> Observation:
        """Its first observation."""
        ...


class Steps(Protocol):
    """What is read from the log; also an episode under way, as far as it was read."""

    @property
    def observation(self) -> Observation:
        """The newest."""
        ...

    @property
    def instruction(self) -> str | None:
        """Of the episode."""
        ...

    def following(self) -> Beginning | Transition | None:
        """Returns what comes next, None where nothing more is written yet."""
        ...

    def newest(self, count: int) -> list[Transition]:
        """Returns the last steps of the episode that were read."""
        ...

    def forget(self, step: int) -> None:
        """Steps before this one are not asked for any more."""
        ...


class LearningTraining(OnlineTraining):
    """Remembers and learns what `OnlineTraining` would from the same steps, bit for bit, also where it was killed meanwhile."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        learner: Learner,
        sampling: Sampling,
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        is_corrected: bool = False,
        rewards: DelayedRewards | None = None,
    ) -> None:
        """spec: of the environment, with what is drawn for the rewards. is_corrected: whether a person may take over."""
        person = AbsentPerson() if is_corrected else None
        data: dict[str, Any] = {"seed": seed, "demonstrations": demonstrations, "rewards": rewards}
        super().__init__(AbsentEnvironment(spec), learner, sampling, steps=steps, supervisor=person, **data)
        self.told: dict[str, StateDict] = {}
        """parts of a checkpoint that are the acting process's, as it last told them"""

    def learn_from(self, steps: Steps, office: Office) -> NoReturn:
        """Learns; raises Finished once the acting process says that there is nothing more, or is gone."""
        self._steps_taken, self._office = steps, office
        office.publish(self.step, self.policy)
        office.attend(self.step, self)  # what was asked for before the first step
        self.run(office)  # type: ignore[arg-type]
        while True:
            office.attend(self.step, self, IDLE)

    def _act(self) -> Transition:
        while not isinstance(found := self._steps_taken.following(), Transition):
            if found is None:
                self._office.attend(self.step, self, IDLE)
            else:
                self._begin(found.observation)
        return found

    def _begin(self, observation: Observation) -> None:
        """An episode begins, and that before is over."""
        if self.waiting is None:
            self.memory.begin(observation)
            return
        if len(self.waiting):
            self.waiting.cut()
        self.waiting.begin(self._steps_taken)

    def load_from(self, parts: dict[str, StateDict], steps: Steps) -> None:
        """Restores a checkpoint, exactly; `steps` goes on behind its last one."""
        own = dict(parts)
        waiting = own["training"]["waiting"]
        self.told = {name: own.pop(name) for name in parts if name not in OWN}
        kept, self.waiting = self.waiting, None  # what waits lies in the log
        self.load_state_dict(own)
        self.waiting = kept
        if self.waiting is not None:
            self.waiting.load_state_dict(waiting, steps)


@dataclass
class AbsentEnvironment(gymnasium.Env[Any, Any]):
    """Stands for the environment, which is in the other process."""

    environment_spec: EnvironmentSpec

    def reset(self, **arguments: Any) -> NoReturn:
        """Never called."""
        raise NotImplementedError

    def step(self, action: Any) -> NoReturn:
        """Never called."""
        raise NotImplementedError


class AbsentPerson:
    """Stands for the person, whose steps come with the others."""

    metrics: Metrics = {}  # noqa: RUF012

    def reset(self) -> None:
        """Never called."""

    def override(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        """Never called."""
        raise NotImplementedError

    def begin(self) -> None:
        """Never called."""

    def count(self, source: ActionSource) -> None:
        """Never called."""

    def state_dict(self) -> StateDict:
        """Returns nothing: the person's state is the acting process's."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Nothing to restore."""


def learn(
    training: LearningTraining,
    connection: Connection,
    checkpoints: Path,
    steps_from: Callable[[int], Steps],
    *,
    every: int = EVERY,
) -> int:
    """Goes on from the newest checkpoint and learns from the log to its end; returns the exit status of the process.

    steps_from: returns the log from behind a step on. every: steps between two versions of the parameters.
    """
    checkpoint = load_checkpoint(checkpoints) if has_checkpoint(checkpoints) else None
    steps = steps_from(0 if checkpoint is None else checkpoint.step)
    office = Office(connection, checkpoints, steps.forget, every=every)
    try:
        if checkpoint is not None:
            training.load_from(checkpoint.parts, steps)
        training.learn_from(steps, office)
    except Finished:
        return 0
    except RoboRLError as error:
        office.fail(error)
        return 1
    return 0
