"""Person in the loop: a person takes over within an episode and hands back; who chose each action is recorded.

HG-DAgger (Kelly et al. 2019, arXiv:1810.02890) calls this a human-gated policy: only the person decides when to intervene.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import Observation
from robo_rl.types import ActionSource, Array, Metrics, StateDict

RECENT = 100  # episodes in human/intervention_rate, as in rollout/success_rate


class Human(Stateful, Protocol):
    """Interface of a person who supervises a policy with a keyboard, gamepad or other device, or of a simulated person."""

    @property
    def source(self) -> ActionSource:
        """Source of the newest action of `command`: HUMAN, or GUARD if the device was lost and the robot is held still."""

    def reset(self) -> None:
        """Prepare for a new episode, in which the policy acts until the person takes over."""

    def command(self, observation: Observation, proposed: Array) -> Array | None:
        """Return the action to execute instead of the proposed one, or None to let the policy act.

        Called once per control period. Consecutive actions form one intervention; the first None ends it.
        """


class PersonInTheLoop:
    """Supervisor of training episodes that executes a person's commands, and counts interventions and the person's time."""

    def __init__(self, human: Human, control_period: float | None) -> None:
        """Prepare for the first episode.

        Args:
            human: The person.
            control_period: [s] of one action, for the person's time; None counts 1 s per action.
        """
        self.human = human
        self._period = 1.0 if control_period is None else control_period
        self.steps = self.interventions = 0
        """Steps that the person commanded, and the contiguous stretches that they form, in all episodes."""
        self._is_acting = False
        self._recent: deque[list[int]] = deque(maxlen=RECENT)  # per episode: steps, and those of the person

    @property
    def seconds(self) -> float:
        """Time for which the person commanded, in all episodes [s]."""
        return self.steps * self._period

    @property
    def metrics(self) -> Metrics:
        """Share of steps commanded by the person in the newest 100 episodes; interventions and seconds in all episodes."""
        taken, commanded = (sum(episode[which] for episode in self._recent) for which in (0, 1))
        return {
            "human/intervention_rate": commanded / taken if taken else 0.0,
            "human/interventions": float(self.interventions),
            "human/seconds": self.seconds,
        }

    def reset(self) -> None:
        """Prepare for a new episode, in which the policy acts until the person takes over."""
        self.human.reset()
        self.begin()

    def begin(self) -> None:
        """Prepare for the replay of a recorded episode, and count it as a new episode."""
        self._is_acting = False
        self._recent.append([0, 0])

    def override(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        """Return the person's action and its source; while the person does not act, the proposed action and POLICY."""
        commanded = self.human.command(observation, proposed)
        source = ActionSource.POLICY if commanded is None else self.human.source
        self.count(source)
        return proposed if commanded is None else commanded, source

    def count(self, source: ActionSource) -> None:
        """Count a step of a replayed episode by who chose its action."""
        acts = source is ActionSource.HUMAN
        self._recent[-1][0] += 1
        self._recent[-1][1] += acts
        self.steps += acts
        self.interventions += acts and not self._is_acting
        self._is_acting = acts

    def state_dict(self) -> StateDict:
        """Return the state of the person and the counts; valid also during an intervention."""
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
