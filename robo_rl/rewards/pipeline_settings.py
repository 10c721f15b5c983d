"""The sources and stages of a pipeline as a recipe writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robo_rl.discovery import load
from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.reward_protocols import RewardModel
from robo_rl.rewards.shaping import STAGES
from robo_rl.rewards.shaping.stage import Stage
from robo_rl.settings import settings_as

Stages = tuple[tuple[str, Stage], ...]
OWN = "environment"
"""Name of the environment's own reward as a source."""


@dataclass(frozen=True)
class Source:
    """A reward that counts."""

    name: str
    model: RewardModel | None
    """None for the environment's own."""
    weight: float
    stages: Stages


@dataclass(frozen=True)
class SourceSettings:
    """A source as a recipe writes it."""

    reward: str = ""
    """A reward model (`robo-rl reward list`)."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the reward model."""
    environment: bool = False
    """The environment's own reward instead of a model's."""
    weight: float = 1.0
    """Factor after the stages."""
    stages: tuple[Any, ...] = ()
    """Of this source alone, in their order."""
    name: str = ""
    """In the log; empty for that of the reward."""

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
    """A stage as a recipe writes it."""

    stage: str
    """A name of robo_rl.rewards.shaping.STAGES."""
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_sources(told: Sequence[Any]) -> tuple[Source, ...]:
    """Returns the sources; raises UnknownName or InvalidSetting naming the key."""
    sources: list[Source] = []
    for number, each in enumerate(told):
        where = f"sources[{number}]"
        settings: SourceSettings = settings_as(SourceSettings, each, source=where)
        name = settings.name or (OWN if settings.environment else settings.reward)
        if any(other.name == name for other in sources):
            raise InvalidSetting(f"Two sources are called {name!r}.", got=name, fix=f"give {where} a `name` of its own")
        sources.append(Source(name, _model(settings, where), settings.weight, read_stages(settings.stages, where)))
    return tuple(sources)


def read_stages(told: Sequence[Any], where: str) -> Stages:
    """Returns the stages with their names; raises UnknownName or InvalidSetting naming the key."""
    stages = []
    for number, each in enumerate(told):
        source = f"{where}: stages[{number}]"
        settings: StageSettings = settings_as(StageSettings, each, source=source)
        if settings.stage not in STAGES:
            raise UnknownName("stage", settings.stage, STAGES)
        stage: Stage = settings_as(STAGES[settings.stage], settings.settings, source=f"{source}, {settings.stage}")
        stages.append((f"{number + 1}_{settings.stage}", stage))
    return tuple(stages)


def _model(settings: SourceSettings, where: str) -> RewardModel | None:
    if settings.environment:
        return None
    model: RewardModel = settings_as(load("rewards", settings.reward), settings.settings, source=f"{where}: {settings.reward}")
    if getattr(model, "learns_in_a_run", False):
        raise InvalidSetting(
            f"{where}: the reward {settings.reward} is learned from whole episodes of a run, and cannot be one of several.",
            allowed="a reward that labels steps (robo-rl reward list)",
            fix=f"name it alone: reward: {{name: {settings.reward}, ...}}",
        )
    return model
