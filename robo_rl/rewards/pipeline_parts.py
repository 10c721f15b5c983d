"""The weights and stages of a pipeline at work on steps, whether these were recorded or are just taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robo_rl.rewards.programs.judging import Judged
from robo_rl.rewards.shaping.stage import Known, RunningStage, Values
from robo_rl.rewards.steps import Steps
from robo_rl.types import StateDict

BESIDE = "of_environment"
"""Term that holds the environment's own reward, whether it counts or not."""
RunningStages = tuple[tuple[str, RunningStage], ...]


class Given(NamedTuple):
    """What a source says of K steps; None for the environment's own reward."""

    values: Values
    known: Known


@dataclass(frozen=True)
class Line:
    """What happens to one source."""

    name: str
    weight: float
    stages: RunningStages


class Mixture:
    """All sources and stages; what the stages remember is its state."""

    def __init__(self, lines: Sequence[Line], stages: RunningStages) -> None:
        self._lines, self._stages = lines, stages

    @property
    def entries(self) -> tuple[str, ...]:
        """Entries of the observation that a stage looks at."""
        return tuple(dict.fromkeys(entry for stage in self._all() for entry in stage.entries))

    def of(self, steps: Steps, given: Sequence[Given | None]) -> Judged:
        """Returns the reward of K steps, with every value on the way to it: NaN where that is missing."""
        total, is_known, terms = np.zeros(len(steps)), np.ones(len(steps), np.bool_), {BESIDE: steps.rewards}
        own = Given(steps.rewards, np.isfinite(steps.rewards))
        for line, each in zip(self._lines, given, strict=True):
            values, known = own if each is None else each
            terms[line.name] = np.where(known, values, np.nan)
            values, known = _through(line.stages, steps, values, known, f"{line.name}/", terms)
            total, is_known = total + line.weight * values, is_known & known
        total, is_known = _through(self._stages, steps, total, is_known, "", terms)
        return Judged(np.where(is_known, total, np.nan), terms, is_known & np.isfinite(total))

    def restart(self) -> None:
        """All environments are about to begin an episode."""
        for stage in self._all():
            stage.restart()

    def _all(self) -> Iterator[RunningStage]:
        for line in self._lines:
            yield from (stage for _, stage in line.stages)
        yield from (stage for _, stage in self._stages)

    def state_dict(self) -> StateDict:
        """Returns what the stages remember."""
        return {str(number): stage.state_dict() for number, stage in enumerate(self._all())}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned, of the same stages."""
        for number, stage in enumerate(self._all()):
            stage.load_state_dict(state[str(number)])


def _through(
    stages: RunningStages, steps: Steps, values: Values, known: Known, prefix: str, terms: dict[str, Values]
) -> tuple[Values, Known]:
    """Returns what the stages make of values, and writes what each made of them into `terms`."""
    values = np.where(known, values, 0.0)
    for name, stage in stages:
        values, known = stage.apply(steps, values, known)
        values = np.where(known, values, 0.0)
        terms[f"{prefix}{name}"] = np.where(known, values, np.nan)
    return values, known
