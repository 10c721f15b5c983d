"""Person in the loop: takes over within an episode and gives back; executed actions and their sources are recorded.

HG-DAgger (Kelly et al. 2019, arXiv:1810.02890) calls it a human-gated policy: the person alone decides when to intervene.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import Observation
from robo_rl.types import ActionSource, Array, Metrics, StateDict

RECENT = 100  # episodes in human/intervention_rate, as in rollout/success_rate


class Human(Stateful, Protocol):
    """Person who supervises a policy, with a keyboard or a gamepad, or simulated."""

    @property
    def source(self) -> ActionSource:
        """Source of the newest action of `command`: HUMAN, or GUARD if the person was lost and it holds still."""

    def reset(self) -> None:
        """A new episode begins, in which the policy acts until the person takes over."""

    def command(self, observation: Observation, proposed: Array) -> Array | None:
        """Return the action that is executed instead of the proposed one, None if the policy is left to act.

        Called once in every control period. Consecutive actions are one intervention; the first None gives back.
        """


class PersonInTheLoop:
    """The supervisor of a training: executes the person's commands, counts interventions and the person's time."""

    def __init__(self, human: Human, control_period: float | None) -> None:
        """control_period: [s] that the person is busy with one action; 1 if time has no meaning."""
        self.human = human
        self._period = 1.0 if control_period is None else control_period
        self.steps = self.interventions = 0
        """Steps that the person commanded, and the contiguous stretches that they form, in all episodes."""
        self._is_acting = False
        self._recent: deque[list[int]] = deque(maxlen=RECENT)  # per episode: steps, and those of the person

    @property
    def seconds(self) -> float:
        """[s] for which the person commanded."""
        return self.steps * self._period

    @property
    def metrics(self) -> Metrics:
        """Share of commanded steps in the recent episodes, seconds and interventions so far."""
        taken, commanded = (sum(episode[which] for episode in self._recent) for which in (0, 1))
        return {
            "human/intervention_rate": commanded / taken if taken else 0.0,
            "human/interventions": float(self.interventions),
            "human/seconds": self.seconds,
        }

    def reset(self) -> None:
        """A new episode begins."""
        self.human.reset()
        self.begin()

    def begin(self) -> None:
        """Counts another episode."""
        self._is_acting = False
        self._recent.append([0, 0])

    def override(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        """Return the action to execute, and its source."""
        commanded = self.human.command(observation, proposed)
        source = ActionSource.POLICY if commanded is None else self.human.source
        self.count(source)
        return proposed if commanded is None else commanded, source

    def count(self, source: ActionSource) -> None:
        """Counts a step."""
        acts = source is ActionSource.HUMAN
        self._recent[-1][0] += 1
        self._recent[-1][1] += acts
        self.steps += acts
        self.interventions += acts and not self._is_acting
        self._is_acting = acts

    def state_dict(self) -> StateDict:
        """Return the person's state if it has one, and the counts; also in the middle of an intervention."""
        return {
            "human": self.human.state_dict(),
            "steps": self.steps,
            "interventions": self.interventions,
            "is_acting": self._is_acting,
            "recent": [list(episode) for episode in self._recent],
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        self.human.load_state_dict(state["human"])
        self.steps, self.interventions = int(state["steps"]), int(state["interventions"])
        self._is_acting = bool(state["is_acting"])
        self._recent = deque(([int(taken), int(own)] for taken, own in state["recent"]), maxlen=RECENT)
