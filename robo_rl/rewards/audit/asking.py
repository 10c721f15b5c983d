"""Whom an audit asks, and about which spoilt clips."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from robo_rl.reward_protocols import RewardModel
from robo_rl.rewards.audit.controls import (
    BlankPictures,
    Control,
    HiddenRewards,
    Loitering,
    Reversed,
    ShuffledTime,
    WrongText,
    pictures_in,
)
from robo_rl.rewards.audit.evidence import AskedModel, Shape, Subject
from robo_rl.rewards.audit.measures import agreeing
from robo_rl.rewards.pictures import PictureReward
from robo_rl.types import Episode

PICTURE_CONTROLS: tuple[Callable[[], Control], ...] = (BlankPictures, ShuffledTime, Reversed, Loitering)


def asked(model: RewardModel, shape: Shape) -> AskedModel:
    """Returns a model as an audit asks it: one that pays differences of a level of its own is asked for the level, too."""
    pays_differences = getattr(model, "mode", "level") != "level"
    return AskedModel(model, shape, _with(model, mode="level") if pays_differences else None)


def reads_pictures(model: RewardModel, episode: Episode) -> bool:
    """Returns whether a model looks at pictures: it says so, or its labels of an episode change when they are blackened."""
    if isinstance(model, PictureReward):
        return model.looks_at_pictures
    subject = AskedModel(model)
    black = BlankPictures().apply(episode, np.random.default_rng(0))
    return bool(pictures_in(episode)) and agreeing(subject.judge(episode), subject.judge(black)) < 1


def controls_of(subject: Subject, *, sees: bool) -> list[tuple[Control, Subject]]:
    """Returns the spoilt clips that a reward is asked about, and whom to ask: pictures are spoilt where it `sees` them."""
    controls = [HiddenRewards(), *(kind() for kind in PICTURE_CONTROLS if sees)]
    return [(control, subject) for control in controls]


def wrongly_told(model: RewardModel, text: str, shape: Shape) -> tuple[Control, Subject]:
    """Returns the control with the wrong text; a model that was told an instruction of its own is told none."""
    told = _with(model, instruction="") if getattr(model, "instruction", "") else model
    return WrongText(text), asked(told, shape)


def _with(model: RewardModel, **settings: Any) -> RewardModel:
    """Returns a model with other settings; the model itself where it has none of that name."""
    if not dataclasses.is_dataclass(model) or isinstance(model, type):
        return model
    names = {field.name for field in dataclasses.fields(model)}
    changed: RewardModel = replace(model, **settings) if names >= settings.keys() else model
    return changed
