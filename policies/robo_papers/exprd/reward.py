"""The reward `exprd`: designed for an environment whose model is known, before the first step or for a learner as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np

from robo_papers.exprd.designer import Design, Designer, ExpRDSettings, Table
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import Steps, StepScores
from robo_rl.types import Array, Labels


@dataclass(frozen=True)
class DesignedReward(StepReward):
    """A reward in few states that shows a learner early which action is best, and changes none of the best actions (EXPRD)."""

    name: ClassVar[str] = "exprd"

    states: int = 3
    """States that are paid beside those of the task's own reward."""
    environment: str = ""
    """Environment whose model counts; empty for that of the run. Recorded episodes do not know theirs."""
    design: ExpRDSettings = field(default_factory=ExpRDSettings)
    """Discount, bound, horizons, sparsity."""
    adapts_every: int = 0
    """Steps between designs for the learner as its latest steps show it (EXPADARD); 0 for one design, before the first step."""
    arguments: tuple[tuple[str, int], ...] = ()
    """Arguments of the environment that its model depends on, as pairs, such as [[mdp_seed, 3]]."""

    def __post_init__(self) -> None:
        require_allowed(self, {name: (getattr(self, name) >= 0, "0 or more") for name in ("states", "adapts_every")})

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for an environment without a known model."""
        self.table(place)

    def start(self, place: Place) -> None:
        """Design the reward."""
        self.table(place)

    def table(self, place: Place) -> Table:
        """Return the reward (S, A) that is paid at present."""
        if "table" not in place.memory:
            place.memory["table"] = self._designed(place)[1].rewards
        table: Table = place.memory["table"]
        return table

    def _designed(self, place: Place) -> tuple[Designer, Design]:
        return designed(self.environment or place.spec.name, self.arguments, self.states, self.design)

    def pairs(self, steps: Steps) -> tuple[Array, Array]:
        """Return the states that were left and the actions that were taken, (K,) each."""
        return np.asarray(steps.before["state"]).argmax(-1), np.asarray(steps.actions, np.int64)

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the designed reward of each state and action."""
        pairs = self.pairs(steps)
        found = self.table(place)[pairs]
        if self.adapts_every:
            self._adapt(pairs, place)
        return StepScores(Labels.finite(found, dtype=np.float64), {})

    def _adapt(self, pairs: tuple[Array, Array], place: Place) -> None:
        """Take in the learner's steps, and design the reward for it if it is time; older steps count half at each design."""
        memory = place.memory
        taken = memory.setdefault("taken", np.zeros_like(self.table(place)))
        np.add.at(taken, pairs, 1.0)
        memory["since"] = memory.get("since", 0) + len(pairs[0])
        if memory["since"] < self.adapts_every:
            return
        designer, design = self._designed(place)
        memory["table"] = designer.adapted(design.states, *seen_policy(taken))
        memory["taken"], memory["since"] = 0.5 * taken, 0


@cache
def designed(
    name: str, arguments: tuple[tuple[str, int], ...], states: int, settings: ExpRDSettings
) -> tuple[Designer, Design]:
    """Return the design for the model of an environment; raises InvalidSetting if it has none."""
    given: dict[str, Any] = dict(arguments)
    environment = make_environment(name, **given)
    model: Any = environment.get_wrapper_attr("simulation") if environment.has_wrapper_attr("simulation") else None
    environment.close()
    if not hasattr(model, "moves"):
        raise InvalidSetting(
            "A reward is designed for an environment whose model is known.",
            got=name,
            allowed="tabular/FourRooms-v0, or another one whose simulation has `moves` and `rewards`",
            fix="take such an environment, or another reward (`robo-rl reward list`)",
        )
    paid = np.flatnonzero(model.rewards.any(1)).tolist()
    designer = Designer(model.moves, model.rewards, settings)
    return designer, designer.grown(paid, states)


def seen_policy(taken: Table) -> tuple[Table, Table]:
    """Return the policy (S, A) and the share of steps in each state (S,), given counts (S, A); each action counts 0.1 more."""
    smoothed = taken + 0.1
    return smoothed / smoothed.sum(1, keepdims=True), taken.sum(1) / max(taken.sum(), 1.0)
