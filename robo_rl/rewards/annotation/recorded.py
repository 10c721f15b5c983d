"""Labels that take effect where they did in an earlier run: nothing is asked, and the parameters come out the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from robo_rl.checkpoints import load_checkpoint
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.annotation.annotator import Label
from robo_rl.rewards.annotation.desk import Query
from robo_rl.types import Metrics, StateDict

RECORD = "arrivals"
"""Key of a record in the state of the rewards, and so in a checkpoint."""


class Arrival(NamedTuple):
    """A label, and the step at which it took effect."""

    step: int
    label: Label

    def saved(self) -> list[Any]:
        """Returns plain values."""
        return [self.step, list(self.label.query), self.label.value]

    @classmethod
    def restored(cls, saved: Sequence[Any]) -> Arrival:
        """Returns what `saved` was called on."""
        step, query, value = saved
        return cls(step, Label(tuple(query), value))


class RecordedAnnotator:
    """Gives the labels of a record at their steps; implements `robo_rl.rewards.annotation.annotator.Annotator`."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._arrivals, self._given = arrivals, 0

    repeats_itself = True

    @property
    def metrics(self) -> Metrics:
        """Labels given so far."""
        return {"annotation/labels": float(self._given)}

    def submit(self, queries: Sequence[Query]) -> None:
        """Nothing is asked."""

    def arrived(self, step: int) -> list[Label]:
        """Returns the labels up to `step` that were not given yet."""
        begin = self._given
        while self._given < len(self._arrivals) and self._arrivals[self._given].step <= step:
            self._given += 1
        return [arrival.label for arrival in self._arrivals[begin : self._given]]

    def state_dict(self) -> StateDict:
        """Returns how many were given."""
        return {"given": self._given}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._given = state["given"]


def record_of(run: Path) -> list[Arrival]:
    """Returns the arrivals up to the newest checkpoint of a run; raises InvalidSetting where it has none."""
    if not (run / "checkpoints").is_dir():
        raise InvalidSetting(
            f"{run} is not a run.", got=str(run), allowed="a folder with checkpoints, as robo-rl train makes it"
        )
    found = next(_records(load_checkpoint(run / "checkpoints").parts), None)
    if found is None:
        raise InvalidSetting(
            f"The run {run.name} has no record of labels.",
            got="a run without annotation",
            allowed="one that was rewarded by oni-retrieval, oni-classification or oni-ranking",
        )
    return [Arrival.restored(saved) for saved in found]


def _records(node: Any) -> Iterator[list[Any]]:
    """Yields every record in the state of a training, whose loop decides where it lies."""
    if isinstance(node, Mapping):
        if RECORD in node:
            yield node[RECORD]
        for child in node.values():
            yield from _records(child)
