"""Console operator as a human supervisor for learning code: one action, or none, per control period."""

from __future__ import annotations

from contextlib import suppress

from typing_extensions import override

from robo_real.arm_spec import GRIP, hold_action
from robo_real.console.operator_state import DecisionKind, OperatorState
from robo_real.remote_robot import RemoteRobot
from robo_real.shadow import Commands, Source
from robo_rl.errors import RobotError
from robo_rl.spec.environment import ActionSpec, EnvironmentSpec, Observation
from robo_rl.types import ActionSource, Array, StateDict

OPERATOR = "operator"
"""Reason of a hold after a stop by the operator, and stop reason of an episode that they ended without success"""
LOST = "operator_lost"
"""Reason of a hold, and stop reason of an episode, after contact with the operator was lost"""

SOURCES = {DecisionKind.POLICY: ActionSource.POLICY, DecisionKind.PERSON: ActionSource.HUMAN}


class HoldAction:
    """Action that moves nothing: no displacement, and the last commanded opening of the gripper.

    The measured opening cannot take its place: a gripper around an object would let the object go.
    """

    def __init__(self, action: ActionSpec) -> None:
        self._spec = action
        self.grip: float | None = None
        """last commanded opening in [-1, 1]; None before the first step of an episode"""
        self.why = ""
        """OPERATOR or LOST if the arm holds in the present control period because of a stop or a loss of contact; else empty"""

    def reset(self) -> None:
        """Forget the gripper command of the last episode."""
        self.grip, self.why = None, ""

    def note(self, executed: Array) -> None:
        """Remember the gripper command of an executed action (A,)."""
        if GRIP in self._spec.names:
            self.grip = float(executed[self._spec.names.index(GRIP)])

    def action(self, observation: Observation) -> Array:
        """Return the action (A,) in [-1, 1] that keeps the hand in place and repeats the last commanded gripper opening."""
        action = hold_action(self._spec, observation)
        if self.grip is not None:
            action[self._spec.names.index(GRIP)] = self.grip
        return action

    def with_gripper_held(self, action: Array, observation: Observation) -> Array:
        """Return a copy of an action (A,) in [-1, 1] whose gripper element repeats the last commanded opening.

        Before the first step of an episode it is the observed opening. Without a gripper the action itself is returned.
        """
        if GRIP not in self._spec.names:
            return action
        found, index = action.copy(), self._spec.names.index(GRIP)
        found[index] = self.action(observation)[index]
        return found


class ConsoleHuman:
    """Human of a supervisor: the operator at the console, who takes over while the dead-man switch is held."""

    def __init__(self, operator_state: OperatorState, robot: RemoteRobot, hold_action: HoldAction) -> None:
        self._operator_state, self._robot, self._hold_action = operator_state, robot, hold_action
        self.source = ActionSource.POLICY
        """source of the newest action; GUARD if the arm holds after a loss of contact or a stop"""

    def reset(self) -> None:
        """Start a new episode."""
        self.source = ActionSource.POLICY
        self._operator_state.begin()

    def command(self, observation: Observation, proposed: Array) -> Array | None:
        """Return the action that overrides the policy in this control period.

        Also stops the robot if the operator has stopped it, or contact was lost for too long. The next step then ends the
        episode.

        Args:
            observation: The newest observation.
            proposed: (A,) Action of the policy.

        Returns:
            The operator's action (A,); the action that holds the arm, after a loss of contact or a stop; None to let the
            policy act.
        """
        decision = self._operator_state.decision()
        self.source, self._hold_action.why = SOURCES.get(decision.kind, ActionSource.GUARD), ""
        if decision.kind is DecisionKind.POLICY:
            return None
        if decision.kind is DecisionKind.PERSON:
            with suppress(RobotError):  # the step that follows ends the episode with the reason
                self._robot.enable()
            action = decision.action
            return action if decision.moves_gripper else self._hold_action.with_gripper_held(action, observation)
        self._hold_action.why = LOST if self._operator_state.is_lost else OPERATOR
        if decision.kind is DecisionKind.STOP:
            self._robot.stop(self._operator_state.stopper)
            self._operator_state.confirm_stop()
        return self._hold_action.action(observation)

    def state_dict(self) -> StateDict:
        """Return an empty state, since a person has no state to save."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Do nothing: a person has no state to restore."""


class PersonCommands(Commands):
    """Commands of the operator in a shadow run; while they do not take over, the arm holds."""

    name: Source = "person"

    def __init__(self, human: ConsoleHuman, hold_action: HoldAction) -> None:
        self._human, self._hold_action = human, hold_action

    @override
    def reset(self, seed: int, observation: Observation) -> None:
        self._human.reset()

    @override
    def command(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        commanded = self._human.command(observation, proposed)
        if commanded is None:
            self._human.source = ActionSource.SCRIPT
            return self._hold_action.action(observation), ActionSource.SCRIPT
        return commanded, self._human.source


class HoldPolicy:
    """Policy that holds the arm, for a console without a policy."""

    def __init__(self, spec: EnvironmentSpec, hold_action: HoldAction) -> None:
        self._spec, self._hold_action = spec, hold_action

    @property
    def environment_spec(self) -> EnvironmentSpec:
        """Spec of the robot."""
        return self._spec

    def reset(self) -> None:
        """Do nothing: the policy has no state."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return an action (A,) that moves nothing."""
        return self._hold_action.action(observation)
