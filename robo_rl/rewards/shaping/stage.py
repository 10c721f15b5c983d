"""What a stage promises a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.protocols import Stateful
from robo_rl.rewards.programs.abstraction import EnvAbstraction
from robo_rl.rewards.steps import Steps

Values = npt.NDArray[np.float64]
Known = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Place:
    """Where a stage works: in an environment with a learner, or on recorded episodes."""

    view: EnvAbstraction
    """All columns that there are."""
    name: str
    """Of the environment, for errors."""
    discount: float | None
    """The learner's; None where there is no learner."""
    is_recorded: bool = False
    """Whether episodes are labelled one by one, in any order."""

    def discount_for(self, stage: str, setting: float | None) -> float:
        """Returns the discount of a stage that needs the learner's; raises InvalidSetting for another, and for none."""
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


class RunningStage(Stateful, Protocol):
    """A stage at work on the steps of N environments, in their order."""

    @property
    def entries(self) -> tuple[str, ...]:
        """Entries of the observation that it looks at."""
        ...

    def apply(self, steps: Steps, values: Values, known: Known) -> tuple[Values, Known]:
        """Returns the rewards of K steps as this stage has them, and which are known; writes into neither argument."""
        ...

    def restart(self) -> None:
        """All environments are about to begin an episode."""
        ...


class Stage(Protocol):
    """Settings of a stage: a frozen dataclass."""

    @property
    def identity(self) -> dict[str, Any]:
        """Plain values that the rewards follow from."""
        ...

    def running(self, place: Place) -> RunningStage:
        """Returns the stage at work; raises InvalidSetting where it cannot work in that place."""
        ...


class Stateless:
    """What a stage need not say that remembers and looks at nothing."""

    @property
    def entries(self) -> tuple[str, ...]:
        """None."""
        return ()

    def restart(self) -> None:
        """Has nothing to forget."""

    def state_dict(self) -> dict[str, Any]:
        """Returns nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Has nothing to restore."""
