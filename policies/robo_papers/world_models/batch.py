"""A batch of imaginations of one world. N environments, S elements of a state, A of an action."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_papers.world_models.world import World
from robo_rl.types import StateDict
from robo_rl.worlds.imagining import Draw, Imagination
from robo_rl.worlds.steps import coded
from robo_sims.batched.environment import Array, BatchStep, SimulationBatch
from robo_sims.batched.generators import Generators

Starts = Literal["first", "any"]


class WorldBatch(SimulationBatch):
    """N imaginations; each draws from a generator of its own, so that seed and actions determine an episode."""

    def __init__(
        self, world: World, num_envs: int, *, starts: Starts = "first", horizon: int | None = None, penalty: float = 0.0
    ) -> None:
        """Make the imaginations.

        Args:
            world: Learned world.
            num_envs: Number of imaginations, N.
            starts: Whether episodes begin in first states of recorded episodes, or in any recorded ones ("any").
            horizon: Time limit [steps], by default the spec's.
            penalty: Deviations of reward that a disagreement of the members by one deviation costs.
        """
        self.world, self.num_envs = world, num_envs
        self.spec = replace(world.spec, max_steps=horizon or world.spec.max_steps)
        self.states = np.zeros((num_envs, world.states.shape[1]), np.float32)
        """(N, S) present states"""
        self._begins = world.firsts if starts == "first" else world.states
        self._imagination = Imagination(world.spec, world.dynamics, penalty)
        self._generators = Generators(num_envs)
        self._low, self._high = (np.asarray(limits, np.float64) for limits in (self.spec.action.low, self.spec.action.high))

    @override
    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        for index, seed in seeds.items():
            random = self._generators.seeded(index, seed)
            self.states[index] = self._begins[random.integers(len(self._begins))]
        return self.states[list(seeds)]

    @override
    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        found = self._imagination.step(self.states, self._actions(control), self._drawn(seeds))
        self.states = found.states
        if seeds:
            self.begin(seeds)
        success = found.successes if self.world.knows_success else None
        return BatchStep(self.states.copy(), found.rewards.astype(np.float64), found.ends, success=success)

    def _drawn(self, beginning: Collection[int]) -> Draw:
        """Return the draw of each environment from its own generator; those that begin an episode draw nothing."""
        dynamics = self.world.dynamics
        draw = Draw.none(dynamics, self.num_envs)
        for index in range(self.num_envs):
            if index not in beginning:
                own = Draw.of(self._generators.seeded(index, None), dynamics, 1)
                for name in Draw._fields:
                    getattr(draw, name)[index] = getattr(own, name)[0]
        return draw

    def _actions(self, control: Array) -> npt.NDArray[np.float32]:
        """Return physical actions as the world takes them."""
        if self.spec.action.is_discrete:
            return coded(self.spec, control)
        return ((control - self._low) / (self._high - self._low) * 2.0 - 1.0).astype(np.float32)

    @override
    def render(self) -> list[Array]:
        """Return an empty list: a batch of worlds draws nothing. A single `ImaginedEnv` can draw."""
        return []

    @override
    def state_dict(self) -> StateDict:
        return {"states": self.states.copy(), "generators": self._generators.states()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.states = np.array(state["states"])
        self._generators.restore(state["generators"])

    @override
    def close(self) -> None:
        """Do nothing: a batch of imagined worlds holds no resources."""
