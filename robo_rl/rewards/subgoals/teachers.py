"""Who lists the subgoals of a level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from robo_rl.errors import UnknownName
from robo_rl.rewards.subgoals.language import LanguageTeacher
from robo_rl.rewards.subgoals.level import Level, Subgoal
from robo_rl.rewards.subgoals.noise import NoisyTeacher
from robo_rl.rewards.subgoals.planner import PerfectTeacher
from robo_rl.settings import settings_as


class Teacher(Protocol):
    """Lists subgoals; the same for the same level, so that a training can be repeated. Asked in training only."""

    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Returns subgoals in the order in which they are to be reached; none where it has no usable answer."""

    def close(self) -> None:
        """Frees what it holds; may be called again."""


TEACHERS: dict[str, Any] = {"perfect": PerfectTeacher, "noisy": NoisyTeacher, "llm": LanguageTeacher}


def read_teacher(name: str, settings: Mapping[str, Any]) -> Teacher:
    """Returns a teacher by its name; raises UnknownName or InvalidSetting naming the setting."""
    if name not in TEACHERS:
        raise UnknownName("teacher", name, TEACHERS)
    teacher: Teacher = settings_as(TEACHERS[name], settings, source=f"the teacher {name}")
    return teacher
