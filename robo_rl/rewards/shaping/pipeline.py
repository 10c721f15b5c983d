"""Several rewards as one: each is shaped and weighted, their sum is shaped again, and every intermediate value is logged.

    reward of a step = weight * last stage( ... first stage( sum over sources of weight * stages of the source(its reward) ) )

The environment's own reward is always logged as `of_environment`; it counts only if it is named as a source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.programs.runner import UsedProgram, UsesPrograms
from robo_rl.rewards.shaping.stages import STAGES, Potential, Stage
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import StepQueue, Steps, StepScores
from robo_rl.settings import settings_as
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, Labels, Metrics

Stages = tuple[tuple[str, Stage], ...]
OWN = "environment"
"""Name of the source that is the environment's own reward."""


@dataclass(frozen=True)
class RewardSource:
    """One of the rewards that a pipeline sums up: model, weight and stages."""

    name: str
    """Name of the source in the log."""
    model: RewardModel | None
    """Reward model; None for the environment's own reward."""
    weight: float
    """Factor by which the reward is multiplied after its stages."""
    stages: Stages
    """Stages that transform this reward, in order, with their names in the log."""


@dataclass(frozen=True)
class SourceSettings:
    """One source of a reward pipeline as a recipe writes it: reward, weight and stages."""

    reward: str = ""
    """Name of a reward model (`robo-rl reward list`)."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the reward model, by name."""
    environment: bool = False
    """True for the environment's own reward instead of a model."""
    weight: float = 1.0
    """Factor by which the reward is multiplied after its stages."""
    stages: tuple[Any, ...] = ()
    """Stages of this source only, in order."""
    name: str = ""
    """Name in the log; empty for the name of the reward."""

    def __post_init__(self) -> None:
        require_allowed(self, {"weight": (bool(np.isfinite(self.weight)), "a finite number")})
        if bool(self.reward) == self.environment or (self.environment and self.settings):
            raise InvalidSetting(
                "A source is a reward model or the environment's own reward.",
                got=f"reward {self.reward!r}, environment {self.environment}, settings {dict(self.settings)}",
                allowed="{reward: NAME, settings: {...}} or {environment: true}",
            )


@dataclass(frozen=True)
class StageSettings:
    """One stage of a reward pipeline as a recipe writes it: name and settings."""

    stage: str
    """Name of a stage, a key of robo_rl.rewards.shaping.stages.STAGES."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the stage, by name."""


def read_sources(settings: Sequence[Any]) -> tuple[RewardSource, ...]:
    """Make the sources of a pipeline from their settings; raises UnknownName or InvalidSetting with the key that is wrong."""
    sources: list[RewardSource] = []
    for number, each in enumerate(settings):
        key = f"sources[{number}]"
        source: SourceSettings = settings_as(SourceSettings, each, source=key)
        name = source.name or (OWN if source.environment else source.reward)
        if any(other.name == name for other in sources):
            raise InvalidSetting(f"Two sources are called {name!r}.", got=name, fix=f"give {key} another `name`")
        sources.append(RewardSource(name, _model(source, key), source.weight, read_stages(source.stages, key)))
    return tuple(sources)


def read_stages(settings: Sequence[Any], key: str) -> Stages:
    """Make the stages of a pipeline, with their names in the log, from their settings.

    key: key of the list in messages. Raises UnknownName or InvalidSetting with the key that is wrong.
    """
    stages = []
    for number, each in enumerate(settings):
        source = f"{key}: stages[{number}]"
        named: StageSettings = settings_as(StageSettings, each, source=source)
        if named.stage not in STAGES:
            raise UnknownName("stage", named.stage, STAGES)
        stage: Stage = settings_as(STAGES[named.stage], named.settings, source=f"{source}, {named.stage}")
        stages.append((f"{number + 1}_{named.stage}", stage))
    return tuple(stages)


def _model(settings: SourceSettings, key: str) -> RewardModel | None:
    if settings.environment:
        return None
    model: RewardModel = settings_as(load("rewards", settings.reward), settings.settings, source=f"{key}: {settings.reward}")
    if getattr(model, "learns_in_a_run", False):
        raise InvalidSetting(
            f"{key}: the reward {settings.reward} is learned from whole episodes of a run, and cannot be one of several.",
            allowed="a reward that labels steps (robo-rl reward list)",
            fix=f"name it alone: reward: {{name: {settings.reward}, ...}}",
        )
    return model


BESIDE = "of_environment"
"""Name in the log of the environment's own reward, also if it does not count."""
Terms = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class RewardPipeline(StepReward, UsesPrograms):
    """Reward that is the sum of several rewards, each shaped and weighted; the sum is shaped again."""

    name: ClassVar[str] = "pipeline"
    sources: tuple[Mapping[str, Any], ...]
    """List of {reward: NAME, settings: {...}, weight: 1, stages: [...], name: ...}, or {environment: true, ...} for the
    environment's own reward."""
    stages: tuple[Mapping[str, Any], ...] = ()
    """Stages of the sum, in order; a list of {stage: NAME, settings: {...}}."""
    every: int = 256
    """Steps per call while a policy acts; does not influence the rewards."""

    def __post_init__(self) -> None:
        require_allowed(self, {"every": (self.every >= 1, "1 or more")})
        if not self.parts:
            raise InvalidSetting("A pipeline has no source.", got="sources: []", allowed="one reward or more")
        _ = self.shaping

    @cached_property
    def parts(self) -> tuple[RewardSource, ...]:
        """The sources, built from their settings; raises InvalidSetting or UnknownName with the key that is wrong."""
        return read_sources(self.sources)

    @cached_property
    def shaping(self) -> Stages:
        """Stages of the summed reward, with their names in the log."""
        return read_stages(self.stages, "the pipeline")

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of all sources, weights and stages."""
        sources = [[part.model and part.model.identity, part.weight, _identities(part.stages)] for part in self.parts]
        return self.name, hash_of(json.dumps([sources, _identities(self.shaping)], sort_keys=True).encode())

    @property
    def repeats_itself(self) -> bool:
        """True if every source gives the same rewards for the same steps."""
        return all(model.repeats_itself for _, model in self._models())

    def score_episode(self, episode: Episode) -> StepScores:
        """Return the rewards of all steps of a recorded episode; sources may label whole episodes."""
        labels = [None if part.model is None else part.model.label(episode) for part in self.parts]
        place = Place.recorded(episode)
        for stage, at in self._stages(place):
            stage.require(at)
        return self._mixed(Steps.of(episode), place, [None if each is None else StepScores(each, {}) for each in labels])

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the shaped sum of the rewards of all sources, with every intermediate value as a term."""
        given: dict[str, StepScores] = {}
        for name, model in self._models():
            found = model.score_steps(steps, place.within(name))
            given[name] = replace(found, labels=Labels.finite(found.labels.values, found.labels.valid))
        counts = place.memory.setdefault("missing", {})
        for name, found in given.items():
            counts[name] = counts.get(name, 0) + int((~found.valid).sum())
        place.memory["steps"] = place.memory.get("steps", 0) + len(steps)
        ends = np.zeros(len(steps), np.bool_)
        for found in given.values():
            ends |= False if found.ends is None else found.ends
        ended = replace(steps, terminated=steps.terminated | ends)
        mixed = self._mixed(ended, place, [given.get(part.name) for part in self.parts])
        terms = {f"{name}/{term}": values for name, found in given.items() for term, values in found.terms.items()}
        returns = {f"{name}/model_return": found.total for name, found in given.items()}
        return StepScores(mixed.labels, {**returns, **terms, **mixed.terms}, ends)

    def _mixed(self, steps: Steps, place: Place, given: Sequence[StepScores | None]) -> StepScores:
        """Return the shaped sum of rewards, with every intermediate value as a term.

        given: scores of each source; None for the environment's own reward.
        """
        total, terms = Labels(np.zeros(len(steps)), np.ones(len(steps), np.bool_)), {BESIDE: steps.rewards}
        own = Labels.finite(steps.rewards, dtype=np.float64)
        for part, each in zip(self.parts, given, strict=True):
            labels = own if each is None else Labels.finite(each.labels.values, each.valid, dtype=np.float64)
            terms[part.name] = labels.or_nan
            labels = _through(part.stages, steps, labels, place, f"{part.name}/", terms)
            total = Labels.finite(total.values + part.weight * labels.values, total.valid & labels.valid, dtype=np.float64)
        return StepScores(_through(self.shaping, steps, total, place, "", terms), terms)

    # needs of sources and stages

    def require(self, place: Place) -> None:
        """Raise InvalidSetting if a source or stage cannot be used in this place, or a source labels only whole episodes."""
        for stage, at in self._stages(place):
            stage.require(at)
        for name, model in self._models():
            model.require(place.within(name))

    def require_demonstrations(self) -> None:
        """Raise InvalidSetting if a source cannot reward demonstrations."""
        for _, model in self._models():
            model.require_demonstrations()

    @override
    def start(self, place: Place) -> None:
        for name, model in self._models():
            model.start(place.within(name))

    @override
    def entries(self, place: Place) -> Sequence[str]:
        of_models = [entry for name, model in self._models() for entry in model.entries(place.within(name))]
        of_stages = [entry for stage, at in self._stages(place) for entry in stage.entries(at)]
        return [*dict.fromkeys((*of_models, *of_stages))]

    def is_due(self, waiting: StepQueue) -> bool:
        """Return True once enough steps wait for a call of the pipeline, or for a call of one of its sources."""
        return len(waiting) >= self.every or any(model.is_due(waiting) for _, model in self._models())

    @override
    def hidden(self) -> Sequence[str]:
        return [entry for _, model in self._models() for entry in model.hidden()]

    def facts(self, place: Place) -> Mapping[str, str | float]:
        """Return the facts that a run records: `discount`, if it is known."""
        return {} if place.discount is None else {"discount": place.discount}

    def metrics(self, place: Place) -> Metrics:
        """Return the metrics of all sources, with the names of the sources as prefix."""
        found, missing = {}, place.memory.get("missing", {})
        for name, model in self._models():
            found[f"reward/{name}/missing"] = missing.get(name, 0) / max(place.memory.get("steps", 0), 1)
            more = model.metrics(place.within(name))
            found |= {f"reward/{name}/{tag.removeprefix('reward/')}": value for tag, value in more.items()}
        return found

    @override
    def require_recorded(self, spec: EnvironmentSpec) -> None:
        for part in self.parts:
            if part.model is not None:
                part.model.require_recorded(spec)
        for stage, at in self._stages(Place(spec)):
            if isinstance(stage, Potential):
                stage.runner.view(at.view, at.name)

    def programs(self, place: Place) -> Sequence[UsedProgram]:
        """Return the programs of sources and potentials, marked as parts of the reward only."""
        used: list[UsedProgram] = []
        for name, model in self._models():
            if isinstance(model, UsesPrograms):
                used += model.programs(place.within(name))
        for stage, at in self._stages(place):
            if isinstance(stage, Potential):
                used.append(UsedProgram(stage.runner, stage.runner.view(at.view, at.name), is_reward=False))
        return [program._replace(is_reward=False) for program in used]

    def _models(self) -> Iterator[tuple[str, StepReward]]:
        """Yield name and model of each source that has one.

        Raises InvalidSetting for a model that labels only whole episodes.
        """
        for part in self.parts:
            if part.model is not None and not isinstance(part.model, StepReward):
                raise InvalidSetting(
                    f"The source {part.name} of the pipeline cannot give rewards while a policy acts.",
                    got=f"{type(part.model).__name__}, which looks at pictures or at whole episodes",
                    allowed="a reward of steps, such as program",
                    fix="label a dataset with the pipeline (robo-rl label), or leave the source out",
                )
            if part.model is not None:
                yield part.name, part.model

    def _stages(self, place: Place) -> Iterator[tuple[Stage, Place]]:
        for prefix, stages in (("", self.shaping), *((f"{part.name}/", part.stages) for part in self.parts)):
            for name, stage in stages:
                yield stage, place.within(f"{prefix}{name}")


def _through(stages: Stages, steps: Steps, labels: Labels, place: Place, prefix: str, terms: Terms) -> Labels:
    """Return the labels after all stages, and write those after each stage into `terms`."""
    for name, stage in stages:
        found = stage.apply(steps, labels, place.within(f"{prefix}{name}"))
        labels = Labels.finite(found.values, found.valid, dtype=np.float64)
        terms[f"{prefix}{name}"] = labels.or_nan
    return labels


def _identities(stages: Stages) -> list[Any]:
    return [[name, stage.identity] for name, stage in stages]
