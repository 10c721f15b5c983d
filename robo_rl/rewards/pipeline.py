"""Several rewards as one: each is shaped and weighted, their sum is shaped again, and every value on the way is logged.

    reward of a step = weight * last stage( ... first stage( sum over sources of weight * stages of the source(its reward) ) )

The environment's own reward stands beside, as `of_environment`; it counts only where it is named as a source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.reward_protocols import DelayedRewards, OnlineRewardModel, OnlineRewards
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.online import lived
from robo_rl.rewards.pipeline_parts import Given, Line, Mixture, RunningStages
from robo_rl.rewards.pipeline_settings import Source, Stages, read_sources, read_stages
from robo_rl.rewards.programs.abstraction import EnvAbstraction
from robo_rl.rewards.programs.judging import Judged, ProgramJudge, Programmed, UsedProgram
from robo_rl.rewards.running_pipeline import RunningPipeline
from robo_rl.rewards.shaping.potential import Potential
from robo_rl.rewards.shaping.stage import Place
from robo_rl.rewards.steps import Steps
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Episode, RewardLabels


@dataclass(frozen=True)
class RewardPipeline:
    """Several rewards, each shaped and weighted, their sum shaped again."""

    sources: tuple[Mapping[str, Any], ...]
    """Each {reward: NAME, settings: {...}, weight: 1, stages: [...], name: ...}, or {environment: true, ...} for its own."""
    stages: tuple[Mapping[str, Any], ...] = ()
    """Of the sum, in their order; each {stage: NAME, settings: {...}}."""
    every: int = 256
    """Steps that are paid for in one call while a policy acts; without influence on the rewards."""

    def __post_init__(self) -> None:
        require_allowed(self, {"every": (self.every >= 1, "1 or more")})
        if not self.parts:
            raise InvalidSetting("A pipeline has no source.", got="sources: []", allowed="one reward or more")
        _ = self.shaping

    @cached_property
    def parts(self) -> tuple[Source, ...]:
        """The sources, made from their settings; raises InvalidSetting or UnknownName naming the key."""
        return read_sources(self.sources)

    @cached_property
    def shaping(self) -> Stages:
        """The stages of the sum, with their names."""
        return read_stages(self.stages, "the pipeline")

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of all sources, weights and stages."""
        sources = [[part.model and part.model.identity, part.weight, _told(part.stages)] for part in self.parts]
        return "pipeline", hash_of(json.dumps([sources, _told(self.shaping)], sort_keys=True).encode())

    def judged(self, episode: Episode) -> Judged:
        """Returns the reward of every step of a recorded episode, and every value on the way to it."""
        steps = Steps.of(episode)
        labels = [None if part.model is None else part.model.label(episode) for part in self.parts]
        given = [None if each is None else Given(each.values.astype(np.float64), each.valid) for each in labels]
        place = Place(EnvAbstraction.of_recording(episode), "a recorded episode", None, is_recorded=True)
        return self.mixture(place).of(steps, given)

    def label(self, episode: Episode) -> RewardLabels:
        """Returns the rewards; a step has no label where a source has none for it."""
        found = self.judged(episode)
        values = np.where(found.valid, found.total, 0.0).astype(np.float32)
        return RewardLabels(values, found.valid & np.isfinite(values), *self.identity, prompt_hash="none")

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> OnlinePipeline:
        """Returns what gives the rewards in an environment.

        Raises InvalidSetting for a source that labels whole episodes, and for a stage that cannot work there.
        """
        place = Place(EnvAbstraction.of(spec, images=True), spec.name, discount)
        self.mixture(place)  # what cannot work is refused here
        rewards = tuple(_online(part, spec, discount) for part in self.parts)
        return OnlinePipeline(self, rewards, place, weight)

    def mixture(self, place: Place) -> Mixture:
        """Returns weights and stages at work in a place."""
        lines = [Line(part.name, part.weight, _at_work(part.stages, place)) for part in self.parts]
        return Mixture(lines, _at_work(self.shaping, place))


@dataclass(frozen=True)
class OnlinePipeline:
    """A pipeline that pays a policy while it acts; implements `robo_rl.reward_protocols.OnlineRewards`."""

    model: RewardPipeline
    rewards: tuple[OnlineRewards | None, ...] = field(repr=False)
    """Of the sources, in their order; None for the environment's own."""
    place: Place = field(repr=False)
    weight: float = 1.0
    """Factor of the whole."""

    def __post_init__(self) -> None:
        require_allowed(self, {"weight": (bool(np.isfinite(self.weight)), "a finite number")})

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Name, hash of all parts, factor, discount."""
        name, parts = self.model.identity
        discount = {} if self.place.discount is None else {"discount": self.place.discount}
        return {"model": name, "weights": parts, "weight": self.weight, **discount}

    @property
    def programs(self) -> tuple[UsedProgram, ...]:
        """Those of the sources, and those of potentials; none of them alone is the reward."""
        rewards: list[Any] = [each for each in self.rewards if isinstance(each, Programmed)]
        sources: list[UsedProgram] = [program for each in rewards for program in each.programs]
        stages = [stage for stages in (self.model.shaping, *(part.stages for part in self.model.parts)) for _, stage in stages]
        potentials = [ProgramJudge(stage.program, stage.limits) for stage in stages if isinstance(stage, Potential)]
        used = [UsedProgram(judge, judge.view(self.place.view, self.place.name), is_reward=False) for judge in potentials]
        return *(program._replace(is_reward=False) for program in sources), *used

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec without what is drawn for one of the sources alone."""
        for reward in self.rewards:
            spec = spec if reward is None else reward.visible(spec)
        return spec

    def running(self, environments: int) -> DelayedRewards:
        """Returns what pays for the steps of so many environments under way."""
        names = [part.name for part in self.model.parts]
        sources = [None if reward is None else reward.running(environments) for reward in self.rewards]
        mixture = self.model.mixture(self.place)
        return RunningPipeline([*zip(names, sources, strict=True)], mixture, weight=self.weight, every=self.model.every)

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yields a recorded episode with the pipeline's rewards, cut where one is missing."""
        return lived(episode, self.running(1), spec)


def _at_work(stages: Stages, place: Place) -> RunningStages:
    return tuple((name, stage.running(place)) for name, stage in stages)


def _told(stages: Stages) -> list[Any]:
    return [[name, stage.identity] for name, stage in stages]


def _online(part: Source, spec: EnvironmentSpec, discount: float | None) -> OnlineRewards | None:
    """Returns what gives a source's rewards in an environment, None for the environment's own."""
    if part.model is None:
        return None
    if not isinstance(part.model, OnlineRewardModel):
        raise InvalidSetting(
            f"The source {part.name} of the pipeline cannot be asked while a policy acts.",
            got=f"{type(part.model).__name__}, which looks at pictures or at whole episodes",
            allowed="a reward of steps, such as program",
            fix="label a dataset with the pipeline (robo-rl label), or leave the source out",
        )
    return part.model.online(spec, weight=1.0, discount=discount)
