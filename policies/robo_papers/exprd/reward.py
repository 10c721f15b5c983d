"""The reward `exprd`: designed for an environment whose model is known, once before the first step or again and again."""

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
    """Reward of EXPRD: paid in few states, shows a learner early which action is best, and keeps the best actions."""

    name: ClassVar[str] = "exprd"

    states: int = 3
    """Number of states in which the reward is paid, beside those of the task's own reward."""
    environment: str = ""
    """Name of the environment whose model counts; empty for that of the run. Recorded episodes do not know theirs."""
    design: ExpRDSettings = field(default_factory=ExpRDSettings)
    """Settings of the design: discount, bound, horizons, sparsity."""
    adapts_every: int = 0
    """Steps between designs that follow the learner's latest steps (EXPADARD); 0 for one design, before the first step."""
    arguments: tuple[tuple[str, int], ...] = ()
    """Arguments of the environment that its model depends on, as pairs, such as [[mdp_seed, 3]]."""

    def __post_init__(self) -> None:
        require_allowed(self, {name: (getattr(self, name) >= 0, "0 or more") for name in ("states", "adapts_every")})

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for an environment whose model is not known."""
        self.table(place)

    def start(self, place: Place) -> None:
        """Design the reward, before the first step of a run."""
        self.table(place)

    def table(self, place: Place) -> Table:
        """Return the designed reward (S, A) of each state and action, as it is paid at present."""
        if "table" not in place.memory:
            place.memory["table"] = self._designed(place)[1].rewards
        table: Table = place.memory["table"]
        return table

    def _designed(self, place: Place) -> tuple[Designer, Design]:
        return designed(self.environment or place.spec.name, self.arguments, self.states, self.design)

    def pairs(self, steps: Steps) -> tuple[Array, Array]:
        """Return the states in which the K steps began and the actions taken there, (K,) each."""
        return np.asarray(steps.before["state"]).argmax(-1), np.asarray(steps.actions, np.int64)

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the designed reward for state and action of each of the K steps."""
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
    """Design a reward for the model of an environment; return designer and design, the same at every call.

    Args:
        name: Name of the environment.
        arguments: Its arguments.
        states: Number of states in which the reward is paid.
        settings: Settings of the design.

    Raises:
        InvalidSetting: The environment has no known model.
    """
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
    """Estimate a learner's policy (S, A) and the share of its steps in each state (S,) from counts (S, A).

    Each action counts 0.1 more.
    """
    smoothed = taken + 0.1
    return smoothed / smoothed.sum(1, keepdims=True), taken.sum(1) / max(taken.sum(), 1.0)
