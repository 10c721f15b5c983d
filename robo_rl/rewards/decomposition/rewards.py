"""Rewards that recipes name: return decomposition, randomised return decomposition, and what runs both online."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.decomposition.decoder import DecoderConfig
from robo_rl.rewards.decomposition.draws import Drawing, EveryStep, RepeatedSteps, SomeSteps
from robo_rl.rewards.decomposition.inputs import StatesAndActions, StepInputs
from robo_rl.rewards.decomposition.running import RunningDecomposition
from robo_rl.rewards.identity import settings_hash
from robo_rl.rewards.programs.judging import Programmed, UsedProgram
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Episode, RewardLabels

Sampling = Literal["without replacement", "with replacement"]
DRAWINGS: dict[Sampling, type[SomeSteps] | type[RepeatedSteps]] = {
    "without replacement": SomeSteps,
    "with replacement": RepeatedSteps,
}
"""How steps are drawn, by the name in a recipe."""


@dataclass(frozen=True)
class DecomposedRewards:
    """Step rewards learned from the returns of a run; implements `robo_rl.reward_protocols.OnlineRewards`."""

    model: tuple[str, str]
    """Name and hash of what they follow from."""
    inputs: StepInputs
    drawing: Drawing
    decoder: DecoderConfig
    seed: int
    """Of first weights and draws."""
    weight: float = 1.0
    """Factor of the rewards."""

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Name, hashes and factor."""
        name, settings = self.model
        return {"model": name, "weights": settings, "weight": self.weight, **self.inputs.identity}

    @property
    def programs(self) -> Sequence[UsedProgram]:
        """Those that compute the inputs."""
        return self.inputs.programs if isinstance(self.inputs, Programmed) else ()

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec: nothing is drawn for this reward."""
        return spec

    def running(self, environments: int) -> RunningDecomposition:
        """Returns what learns and gives them; raises InvalidSetting for several environments."""
        if environments != 1:
            raise InvalidSetting(
                "A reward that is learned from returns is for one environment.",
                got=f"{environments} environments",
                allowed="a learner that acts in one and keeps single steps: sac",
                fix="set algorithm to sac",
            )
        return RunningDecomposition(self.inputs, self.drawing, self.decoder, seed=self.seed, weight=self.weight)

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Raises InvalidSetting: rewards that change cannot be written into recorded episodes."""
        raise InvalidSetting(
            f"The reward {self.model[0]} is learned from the returns of a run, and has none for recorded episodes.",
            got="demonstrations",
            fix="set demonstrations.episodes to 0, or use another reward",
        )


@dataclass(frozen=True)
class ReturnDecomposition:
    """RD: rewards of states and actions that add up to the returns of whole episodes, all steps in each update."""

    learns_in_a_run: ClassVar[bool] = True
    """There is nothing that a recorded dataset could be labelled with."""
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    """The network that is learned."""
    seed: int = 0
    """Of its first weights and of draws."""

    def __post_init__(self) -> None:
        require_allowed(self, {"seed": (self.seed >= 0, "0 or more")})

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings."""
        return "return-decomposition", settings_hash(self)

    def label(self, episode: Episode) -> RewardLabels:
        """Returns no label: nothing is learned yet."""
        return unlabelled(self.identity, episode)

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> DecomposedRewards:
        """Returns rewards that a run learns for itself, in any environment with float observations."""
        del discount
        return DecomposedRewards(self.identity, StatesAndActions(spec), EveryStep(), self.decoder, self.seed, weight)


@dataclass(frozen=True)
class RandomizedReturnDecomposition:
    """RRD: the same from some steps of each episode, drawn anew in every update (Ren et al. 2022)."""

    learns_in_a_run: ClassVar[bool] = True
    """There is nothing that a recorded dataset could be labelled with."""
    steps: int = 64
    """K"""
    sampling: Sampling = "without replacement"
    """An episode of K steps or fewer is then used whole; "with replacement" draws K however short it is."""
    unbiased: bool = True
    """Subtract what the mean of K steps varies by; without it rewards are pulled together."""
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    """The network that is learned."""
    seed: int = 0
    """Of its first weights and of draws."""

    def __post_init__(self) -> None:
        require_allowed(self, {"seed": (self.seed >= 0, "0 or more")})
        _ = self.drawing

    @property
    def drawing(self) -> Drawing:
        """What chooses the steps; raises InvalidSetting for a number of them that it cannot choose."""
        return DRAWINGS[self.sampling](self.steps, self.unbiased)

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings."""
        return "rrd", settings_hash(self)

    def label(self, episode: Episode) -> RewardLabels:
        """Returns no label: nothing is learned yet."""
        return unlabelled(self.identity, episode)

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> DecomposedRewards:
        """Returns rewards that a run learns for itself, in any environment with float observations."""
        del discount
        return DecomposedRewards(self.identity, StatesAndActions(spec), self.drawing, self.decoder, self.seed, weight)


def unlabelled(identity: tuple[str, str], episode: Episode) -> RewardLabels:
    """Returns labels that are all missing."""
    steps = len(episode)
    return RewardLabels(np.zeros(steps, np.float32), np.zeros(steps, np.bool_), *identity, prompt_hash="none")
