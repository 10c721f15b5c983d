"""Imagined episodes (branches) in a world model that is learned beside a policy: MBPO's part of off-policy training.

Janner et al. 2019, "When to Trust Your Model: Model-Based Policy Optimization", arXiv:1906.08253, algorithm 2. Every few steps
an ensemble of dynamics is fitted further to the real steps, and the policy acts in it for a few steps from real states. N
branches side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import BatchedPolicy, Policy, Stateful
from robo_rl.protocols.sampling import Sampling
from robo_rl.replay.imagined import ImaginedBuffer
from robo_rl.types import ActionSource, Batch, Metrics, StateDict, VectorTransition
from robo_rl.worlds.dynamics import Dynamics, DynamicsConfig
from robo_rl.worlds.fitting import LEAST_STEPS, DynamicsFit, load_arrays
from robo_rl.worlds.imagining import Draw, Imagination, Imagined
from robo_rl.worlds.steps import Steps, arrays_of, coded, require_predictable


class RealSteps(Protocol):
    """Interface of a replay memory of real steps."""

    def __len__(self) -> int:
        """Number of steps."""

    def transitions(self, most: int, random: np.random.Generator) -> Batch:
        """Return all single steps that are stored; of more than `most` a random choice."""


@runtime_checkable
class BringsBranches(Protocol):
    """Settings of worlds (`robo_rl.protocols.sampling.Worlds`) that bring branches of their own kind."""

    def make_branches(self, policy: Policy, sampling: Sampling, seed: int) -> Branches:
        """Return branches with an empty memory."""


class Branches(Stateful):
    """Fits a world model to real steps, and keeps steps that the policy takes in it, in a memory of their own."""

    def __init__(self, policy: Policy, sampling: Sampling, seed: int) -> None:
        """Make an empty memory; raises InvalidSetting for observations, or a policy, that branches cannot have."""
        self.spec, self.settings = policy.environment_spec, sampling.worlds
        self._is_recorded = sampling.offline_fraction == 1.0  # so that no real steps come
        self._error = np.nan
        require_predictable(self.spec)
        if sampling.extras:
            got = ", ".join(type(extra).__name__ for extra in sampling.extras)
            raise InvalidSetting("Imagined steps have no extras.", got=got, fix="set worlds.share to 0")
        if not isinstance(policy, BatchedPolicy):
            what, allowed = "The policy cannot act in many branches at once.", "a policy without memory, with act_all"
            raise InvalidSetting(what, got=type(policy).__name__, allowed=allowed, fix="set worlds.share to 0")
        self._policy: BatchedPolicy = policy
        chosen = self.settings
        rows = chosen.branches * (2 * chosen.horizon) * chosen.kept
        self.memory = ImaginedBuffer(self.spec, rows, seed, environments=chosen.branches)
        self.config = DynamicsConfig(chosen.hidden, chosen.members, chosen.elites, seed=seed)
        self._dynamics: Dynamics | None = None
        self._random = np.random.default_rng([seed, 1])
        self._due = self._fits = 0
        self.metrics: Metrics = {}

    def renew(self, step: int, memories: Sequence[RealSteps]) -> None:
        """Fit the world and branch anew if that is due after a step; to recorded steps alone it is fitted once.

        memories: of the real steps, those of the policy first.

        memories: replay memories of real steps, those of the policy first. Raises NonFiniteUpdate if the fit diverges.
        """
        if step < self._due or len(memories[0]) < LEAST_STEPS:
            return
        filled = [memory.transitions(self.settings.steps, self._random) for memory in memories if len(memory)]
        parts = [Steps.of_batch(self.spec, batch) for batch in filled]
        self._due = step + self.settings.every
        if self._dynamics is None or not self._is_recorded:
            self._error = self._fit(Steps.joined(parts))
        self._branch(parts[0].states)
        self.metrics = {
            "world/held_out_error": self._error,
            "world/fits": float(self._fits),
            "world/imagined": float(len(self.memory)),
        }

    def _fit(self, steps: Steps) -> float:
        """Go on with the fit of the world, and return the mean held-out error of its members."""
        if self.settings.shuffles_actions:
            steps = steps.with_shuffled_actions(self._random)
        fit = DynamicsFit(steps, replace(self.config, seed=self.config.seed + self._fits), self._dynamics)
        self._dynamics = fit.run(most_updates=self.settings.updates)
        self._fits += 1
        return float(fit.errors.mean())

    def _branch(self, begins: npt.NDArray[np.float32]) -> None:
        """Let the policy act in the world from real states (M, S); where a branch ends another one begins."""
        assert self._dynamics is not None
        count, imagination = self.settings.branches, Imagination(self.spec, self._dynamics, self.settings.penalty)
        states = begins[self._random.integers(len(begins), size=count)]
        observations = arrays_of(self.spec, states)
        for place in range(count):
            self.memory.begin({name: values[place] for name, values in observations.items()}, place)
        for step in range(self.settings.horizon):
            actions = self._policy.act_all(observations)
            found, stopped = self._step(imagination, states, coded(self.spec, actions))
            diverged = ~(np.isfinite(found.states).all(1) & np.isfinite(found.rewards))
            terminated = found.ends & ~diverged
            truncated = diverged | (~terminated & (stopped | (step == self.settings.horizon - 1)))
            over = terminated | truncated
            others = begins[self._random.integers(len(begins), size=count)]
            states = np.where(over[:, None], others, found.states)
            following = arrays_of(self.spec, states)
            self.memory.add_all(
                VectorTransition(
                    observations,
                    actions,
                    found.rewards,
                    arrays_of(self.spec, found.states),
                    following,
                    terminated,
                    truncated,
                    diverged,
                    actions,
                    np.full(count, ActionSource.IMAGINED, np.int8),
                    {},
                )
            )
            observations = following

    def _step(
        self, imagination: Imagination, states: npt.NDArray[np.float32], actions: npt.NDArray[np.float32]
    ) -> tuple[Imagined, npt.NDArray[np.bool_]]:
        """Return imagined steps after actions (N, A) in states (N, S), and which branches (N,) go no further."""
        found = imagination.step(states, actions, Draw.of(self._random, imagination.dynamics, len(states)))
        return found, np.zeros(len(states), np.bool_)

    @override
    def state_dict(self) -> StateDict:
        dynamics = {} if self._dynamics is None else self._dynamics.state_dict()
        return {
            "memory": self.memory.state_dict(),
            "dynamics": {name: values.detach().cpu().clone() for name, values in dynamics.items()},
            "random": self._random.bit_generator.state,
            "due": self._due,
            "fits": self._fits,
            "error": self._error,
            "metrics": dict(self.metrics),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.memory.load_state_dict(state["memory"])
        self._dynamics = None
        if state["dynamics"]:
            self._dynamics = Dynamics(self.spec.observation.size, self.spec.action.size, self.config)
            load_arrays(self._dynamics, state["dynamics"])
        self._random.bit_generator.state = state["random"]
        self._due, self._fits = int(state["due"]), int(state["fits"])
        self._error = float(state["error"])
        self.metrics = {name: float(value) for name, value in state["metrics"].items()}
