"""MOREC over MOPO: SAC on recorded steps and on branches whose steps are chosen among candidates by their plausibility.

Luo et al. 2024, arXiv:2310.05422, section 4. N branches, K candidates, S elements of a state, A of an action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_papers.morec.plausibility import GameConfig, Plausibility
from robo_policies.learners.sac import SAC, SACSettings
from robo_rl.errors import require_allowed
from robo_rl.protocols.components import Policy
from robo_rl.protocols.contract import CONTINUOUS_ONLY, OFFLINE, Needs
from robo_rl.protocols.sampling import Sampling, Worlds
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import StateDict
from robo_rl.worlds.branches import Branches
from robo_rl.worlds.fitting import load_arrays
from robo_rl.worlds.imagining import Draw, Imagination, Imagined
from robo_rl.worlds.steps import Steps

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class MORECWorlds(Worlds):
    """Settings group `worlds` of MOREC: judges choose each imagined step among several drawn ones."""

    share: float = 0.95
    """Share of every batch that is imagined."""
    horizon: int = 20
    """Steps of a branch, unless it is stopped before; the paper has up to 100."""
    every: int = 500
    """Updates from one set of branches to the next."""
    penalty: float = 1.0
    """Deviations of reward that a disagreement of the members by one deviation costs (MOPO's lambda)."""
    candidates: int = 10
    """Next states that are drawn for each step; 1 chooses nothing."""
    temperature: float = 0.1
    """Temperature of the softmax choice among the candidates by their scores."""
    least_score: float = 0.6
    """A branch is stopped, as truncated, where the chosen score is below; 0.6 is a chance of 0.45 to be real."""
    game: GameConfig = GameConfig()
    """Game in which the judges are learned."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "candidates": (self.candidates >= 1, "1 or more"),
            "temperature": (self.temperature > 0, "above 0"),
            "least_score": (self.least_score >= 0, "0 or more; 0 stops no branch"),
        }
        require_allowed(self, allowed, group=self.group)

    def make_branches(self, policy: Policy, sampling: Sampling, seed: int) -> PlausibleBranches:
        """Return branches with an empty memory."""
        return PlausibleBranches(policy, sampling, seed, self)


@dataclass(frozen=True)
class MORECConfig(SACSettings):
    """Settings of MOREC; those of SAC with a world."""

    needs = Needs((OFFLINE,), CONTINUOUS_ONLY)

    worlds: MORECWorlds = MORECWorlds()
    """World that is learned from the recorded steps, and branches in it."""

    @property
    def sampling(self) -> Sampling:
        """Requirements of the training loop."""
        return replace(Sampling.of(self), offline_fraction=1.0)

    def build(self, spec: EnvironmentSpec, seed: int) -> SAC:
        """Return a fresh learner."""
        return SAC(spec, self, seed)


class PlausibleBranches(Branches):
    """Branches whose steps are chosen among candidates, and that stop where even the chosen one is not plausible."""

    def __init__(self, policy: Policy, sampling: Sampling, seed: int, worlds: MORECWorlds) -> None:
        super().__init__(policy, sampling, seed)
        self._worlds = worlds
        self.plausibility = Plausibility(self.spec.observation.size, self.spec.action.size, worlds.game, seed)

    @override
    def _fit(self, steps: Steps) -> float:
        self.plausibility.fit(steps)
        return super()._fit(steps)

    @override
    def _step(self, imagination: Imagination, states: Floats, actions: Floats) -> tuple[Imagined, npt.NDArray[np.bool_]]:
        drawn = candidates(imagination, states, actions, self._worlds.candidates, self._random)
        scores = np.stack([self.plausibility.scores(states, actions, each.states) for each in drawn])
        chosen = choice(scores, self._worlds.temperature, self._random)
        found = pick(drawn, chosen)
        return found, scores[chosen, np.arange(len(states))] < self._worlds.least_score

    @override
    def state_dict(self) -> StateDict:
        arrays = {name: values.detach().clone() for name, values in self.plausibility.state_dict().items()}
        return {**super().state_dict(), "plausibility": arrays}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        load_arrays(self.plausibility, state["plausibility"])


def candidates(
    imagination: Imagination, states: Floats, actions: Floats, count: int, random: np.random.Generator
) -> list[Imagined]:
    """Draw `count` candidates of a step for states (N, S) and actions (N, A)."""
    return [imagination.step(states, actions, Draw.of(random, imagination.dynamics, len(states))) for _ in range(count)]


def choice(scores: Floats, temperature: float, random: np.random.Generator) -> npt.NDArray[np.intp]:
    """Draw the place (N,) of a candidate for each step with the softmax of its scores (K, N) over the temperature."""
    weights = np.exp((scores - scores.max(0)) / temperature).astype(np.float64).cumsum(0)
    below: npt.NDArray[np.intp] = (weights <= random.random(scores.shape[1]) * weights[-1]).sum(0)
    return below


def pick(drawn: list[Imagined], chosen: npt.NDArray[np.intp]) -> Imagined:
    """Return the chosen candidates (N,) of the drawn ones."""
    rows = np.arange(len(chosen))
    return Imagined(*(np.stack(parts)[chosen, rows] for parts in zip(*drawn, strict=True)))
