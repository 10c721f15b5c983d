"""The wrapper `teacher_starts`: training episodes begin in the middle of a teacher's recorded ones (`TeacherStarts`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium
from typing_extensions import override

from robo_datasets.dataset import Dataset
from robo_rl.environments.starts import StartRule, TeacherStarts
from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting
from robo_rl.types import Episode


@dataclass(frozen=True)
class TeacherStartsWrapper(StartRule, EnvironmentWrapper):
    """Begin a share of the training episodes in states of a teacher; evaluations begin as the task says."""

    in_evaluations = False

    dataset: str = ""
    """Folder of the teacher's episodes (`robo-rl record`); must be set."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> TeacherStarts:
        if not self.dataset:
            raise InvalidSetting("The starts have no teacher.", got="dataset ''", fix="name a dataset of `robo-rl record`")
        dataset = Dataset(Path(self.dataset))
        return TeacherStarts(environment, _episodes(dataset.path, len(dataset)), self, dataset.spec)


@lru_cache(maxsize=1)
def _episodes(path: Path, count: int) -> list[Episode]:
    """Return the episodes of a dataset, read once for all environments of a training; count: of the dataset, which may grow."""
    dataset = Dataset(path)
    return [dataset.read(entry) for entry in dataset.entries()[:count]]
