"""Rewards of episodes that recipes name: their return at the end, return decomposition, randomised return decomposition."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.decomposition.decoder import DecoderConfig
from robo_rl.rewards.decomposition.draws import Drawing, EveryStep, RepeatedSteps, SomeSteps
from robo_rl.rewards.decomposition.learned import Decomposition, StatesAndActions, StepInputs
from robo_rl.rewards.place import Place
from robo_rl.rewards.step_reward import StepReward
from robo_rl.rewards.steps import StepQueue, Steps, StepScores
from robo_rl.types import Episode, Labels, Metrics, RewardLabels


@dataclass(frozen=True)
class EpisodicReward(StepReward):
    """Withholds the environment's reward until the episode ends."""

    name: ClassVar[str] = "episodic"

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the return at the last step and 0 before it; a return that is not finite is missing."""
        totals, values, ended = place.memory.setdefault("totals", {}), np.zeros(len(steps)), steps.ended
        for row, index in enumerate(map(str, steps.index.tolist())):
            before = 0.0 if steps.begins[row] else totals[index]
            totals[index] = before + float(steps.rewards[row])
            values[row] = totals[index] if ended[row] else 0.0
        return StepScores(Labels.finite(values, dtype=np.float64), {})

    def is_due(self, waiting: StepQueue) -> bool:
        """Return True at once: what a step is paid is known when it is taken."""
        return len(waiting) > 0

    def entries(self, place: Place) -> tuple[str, ...]:
        """Return none."""
        return ()


Sampling = Literal["without replacement", "with replacement"]
DRAWINGS: dict[Sampling, type[SomeSteps] | type[RepeatedSteps]] = {
    "without replacement": SomeSteps,
    "with replacement": RepeatedSteps,
}
"""How steps are drawn, by the name in a recipe."""


@dataclass(frozen=True, kw_only=True)
class DecomposedReward(StepReward):
    """Step rewards learned from the returns of a run."""

    learns_in_a_run: ClassVar[bool] = True
    is_weighted: ClassVar[bool] = True
    remedy: ClassVar[str] = (
        "look at the returns of the environment, and at what the program makes of its states, then resume the run"
    )
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    """The network that is learned."""
    seed: int = 0
    """Of its first weights and of draws."""

    def __post_init__(self) -> None:
        require_allowed(self, {"seed": (self.seed >= 0, "0 or more")})
        _ = self.drawing

    @property
    @abstractmethod
    def drawing(self) -> Drawing:
        """Sampler of the steps; raises InvalidSetting for a number of them that it cannot sample."""

    def inputs(self, place: Place) -> StepInputs:
        """Return what the decoder sees of a step; raise InvalidSetting without float observations."""
        return StatesAndActions(place.spec)

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for an environment without inputs."""
        self.inputs(place)

    def require_demonstrations(self) -> None:
        """Raise InvalidSetting: rewards that change cannot be written into recorded episodes."""
        raise InvalidSetting(
            f"The reward {self.name} is learned from the returns of a run, and has none for recorded episodes.",
            got="demonstrations",
            fix="set demonstrations.episodes to 0, or use another reward",
        )

    def entries(self, place: Place) -> Sequence[str]:
        """Return those that the inputs are made of."""
        return self.inputs(place).entries

    def is_due(self, waiting: StepQueue) -> bool:
        """Return False until the episode ends: before that its return is unknown."""
        return False

    def facts(self, place: Place) -> Mapping[str, str | float]:
        """Return what the inputs follow from."""
        return self.inputs(place).identity

    def label(self, episode: Episode) -> RewardLabels:
        """Return no label: nothing is learned yet."""
        return Labels.missing(len(episode)).by(self.identity)

    def relabelling(self, place: Place) -> Decomposition:
        """Return the decoder and its episodes."""

        def make() -> Decomposition:
            return Decomposition(self.inputs(place), self.drawing, self.decoder, seed=self.seed, weight=place.weight)

        return place.memory.part("decomposition", make)

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the places of the steps; those of an episode that is not whole have none."""
        return StepScores(Labels.finite(self.relabelling(place).places(steps)), {})

    def metrics(self, place: Place) -> Metrics:
        """Return what the decoder paid for recent episodes."""
        return self.relabelling(place).metrics


@dataclass(frozen=True)
class ReturnDecomposition(DecomposedReward):
    """RD: rewards of states and actions that add up to the returns of whole episodes, all steps in each update."""

    name: ClassVar[str] = "return-decomposition"

    @property
    def drawing(self) -> Drawing:
        """All steps."""
        return EveryStep()


@dataclass(frozen=True, kw_only=True)
class DrawnSteps:
    """Settings of rewards that are learned from some steps of each episode, drawn anew in every update (Ren et al. 2022)."""

    steps: int = 64
    """K"""
    sampling: Sampling = "without replacement"
    """An episode of K steps or fewer is then used whole; "with replacement" draws K however short it is."""
    unbiased: bool = True
    """Subtract what the mean of K steps varies by; without it rewards are pulled together."""

    @property
    def drawing(self) -> Drawing:
        """Sampler of the steps."""
        return DRAWINGS[self.sampling](self.steps, self.unbiased)


@dataclass(frozen=True)
class RandomizedReturnDecomposition(DrawnSteps, DecomposedReward):
    """RRD: the same from some steps of each episode."""

    name: ClassVar[str] = "rrd"
