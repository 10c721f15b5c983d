"""The person at the desk as learning code sees one: asked once in every control period for an action, or none."""

from __future__ import annotations

from typing import Any

import numpy as np

from robo_real.console.desk import Desk, Want
from robo_real.fingers import GRIP
from robo_real.remote import RemoteRobot
from robo_rl.spec.environment import ActionSpec, EnvironmentSpec, Observation
from robo_rl.types import ActionSource, Array, StateDict

OPERATOR = "operator"
"""Why a person stopped the arm, or ended an episode as no success."""
LOST = "operator_lost"
"""Why the arm holds, and then an episode is stopped: the person was lost."""

SOURCES = {Want.POLICY: ActionSource.POLICY, Want.PERSON: ActionSource.HUMAN}


class Still:
    """Knows the action that moves nothing: no displacement, and the fingers sent where they were sent last.

    Not where they are measured: fingers around a thing that were sent no further would let go of it.
    """

    def __init__(self, action: ActionSpec) -> None:
        self._spec = action
        self.grip: float | None = None
        """In [-1, 1], where the fingers were sent last; None before the first step of an episode."""
        self.why = ""
        """Why nothing is to move in the present control period, where the desk says so and not the person"""

    def reset(self) -> None:
        """A new episode begins."""
        self.grip, self.why = None, ""

    def note(self, executed: Array) -> None:
        """An action was executed."""
        if GRIP in self._spec.names:
            self.grip = float(executed[self._spec.names.index(GRIP)])

    def action(self, observation: Observation) -> Array:
        """Returns an action (A,) that moves nothing."""
        spec = self._spec
        physical: Any = np.clip(np.zeros(spec.size), spec.low, spec.high)
        if GRIP in spec.names and GRIP in observation:
            physical[spec.names.index(GRIP)] = float(observation[GRIP][0])
        action: Array = np.clip(spec.to_normalized(physical), -1.0, 1.0).astype(np.float32)
        if self.grip is not None:
            action[spec.names.index(GRIP)] = self.grip
        return action

    def with_fingers(self, action: Array, observation: Observation) -> Array:
        """Return an action (A,) with the fingers left where they are."""
        if GRIP not in self._spec.names:
            return action
        found, index = action.copy(), self._spec.names.index(GRIP)
        found[index] = self.action(observation)[index]
        return found


class ConsoleHuman:
    """A person behind a page: takes over while they hold the dead-man switch."""

    def __init__(self, desk: Desk, robot: RemoteRobot, still: Still) -> None:
        self._desk, self._robot, self._still = desk, robot, still
        self.source = ActionSource.POLICY
        """who chose the newest action; GUARD where the arm holds because the person was lost, or stopped it"""

    def reset(self) -> None:
        """A new episode begins."""
        self.source = ActionSource.POLICY
        self._desk.begin()

    def command(self, observation: Observation, proposed: Array) -> Array | None:
        """Returns the person's action, None if the policy is left to act; where the person was lost, an action that holds.

        It stops the robot where the person stopped it or stays lost; the next step then ends the episode.
        """
        wish = self._desk.wish()
        self.source, self._still.why = SOURCES.get(wish.want, ActionSource.GUARD), ""
        if wish.want is Want.POLICY:
            return None
        if wish.want is Want.PERSON:
            self._robot.enable()
            return wish.action if wish.moves_fingers else self._still.with_fingers(wish.action, observation)
        self._still.why = LOST if self._desk.is_lost else OPERATOR
        if wish.want is Want.STOP:
            self._robot.stop(self._desk.stopper)
            self._desk.stop_arrived()
        return self._still.action(observation)

    def state_dict(self) -> StateDict:
        """A person has no state that could be saved."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Nothing to restore."""


class HoldStill:
    """A policy for when there is none: waits for the person."""

    def __init__(self, spec: EnvironmentSpec, still: Still) -> None:
        self._spec, self._still = spec, still

    @property
    def environment_spec(self) -> EnvironmentSpec:
        """Of the robot."""
        return self._spec

    def reset(self) -> None:
        """Nothing to forget."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Returns an action that moves nothing."""
        return self._still.action(observation)
