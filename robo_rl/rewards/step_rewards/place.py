"""Context in which a reward of steps is used: environment, discount of the learner, and memory of earlier steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Stateful
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction, recorded_spec
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, StateDict

Part = TypeVar("Part", bound=Stateful)


class Memory(dict[str, Any]):
    """Memory of a reward between its calls: plain values by name, and parts that save their own state.

    It is saved with the run. A reward must forget values of an episode itself when a step begins the next one (`Steps.begins`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[str, Stateful] = {}
        self._saved: dict[str, StateDict] = {}

    def part(self, name: str, make: Callable[[], Part]) -> Part:
        """Return the part with this name; it is made on first use, and restored if a checkpoint with it was loaded."""
        if name not in self._parts:
            self._parts[name] = made = make()
            if name in self._saved:
                made.load_state_dict(self._saved.pop(name))
        part: Any = self._parts[name]
        return part  # type: ignore[no-any-return]

    def state_dict(self) -> StateDict:
        """Return copies of all values, and the state of all parts."""
        parts = self._saved | {name: part.state_dict() for name, part in self._parts.items()}
        return {"values": copy.deepcopy(dict(self)), "parts": parts}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the value of `state_dict`; a part that does not exist yet is restored when it is made."""
        self.clear()
        self.update(state["values"])
        self._saved = dict(state["parts"])
        for name, part in self._parts.items():
            if name in self._saved:
                part.load_state_dict(self._saved.pop(name))


@dataclass(frozen=True)
class Place:
    """Context in which steps are rewarded: spec of the running environment or recorded episode, discount, memory."""

    spec: EnvironmentSpec
    """Spec of the environment, with entries that only the reward reads; for a recorded episode only names and shapes are
    known."""
    discount: float | None = None
    """Discount of the learner; None without a learner."""
    weight: float = 1.0
    """Factor of the rewards; `score_steps` applies it only if `StepScorer.is_weighted`."""
    is_recorded: bool = False
    """True if recorded episodes are labelled, one by one and in any order; False if an environment runs."""
    memory: Memory = field(default_factory=Memory, compare=False, repr=False)
    """Memory of the reward between calls."""

    @classmethod
    def recorded(cls, episode: Episode) -> Place:
        """Return the place of a recorded episode: there is no running training, and the spec is read from the episode."""
        return cls(recorded_spec(episode), is_recorded=True)

    @property
    def name(self) -> str:
        """Name of the environment or episode for error messages."""
        return "the recorded episode" if self.is_recorded else self.spec.name

    @cached_property
    def view(self) -> EnvAbstraction:
        """All columns that a reward program can read, including pictures."""
        return EnvAbstraction.of(self.spec, images=True)

    def within(self, name: str) -> Place:
        """Return the context for a part of a composed reward, such as a stage: with its own memory, and with weight 1."""
        return replace(self, memory=self.memory.part(name, Memory), weight=1.0)

    def discount_for(self, stage: str, setting: float | None) -> float:
        """Return the discount that a stage shall use; a discount in its settings must equal the learner's.

        Args:
            stage: Name of the stage in error messages.
            setting: Discount in the settings of the stage; None if it has none.

        Raises:
            InvalidSetting: The setting differs from the learner's discount, or neither is known.
        """
        if setting is not None and self.discount is not None and setting != self.discount:
            raise InvalidSetting(
                f"The stage {stage} has another discount than the learner.",
                got=setting,
                allowed=f"{self.discount}, the learner's",
                fix=f"leave out discount of the stage {stage}",
            )
        found = setting if self.discount is None else self.discount
        if found is None:
            raise InvalidSetting(
                f"The stage {stage} needs the discount of the learner, and none is known here.",
                got=f"no discount ({self.name})",
                fix=f"set discount of the stage {stage} to that of the learner which will use the rewards",
            )
        return found
