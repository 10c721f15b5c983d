"""Labels of captions with the training steps at which they arrived, now or in an earlier run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robo_papers.oni.annotator import Annotator, Label
from robo_papers.oni.caption_rewards import CaptionRewards
from robo_papers.oni.questions import Query
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.step_rewards.captions import Described
from robo_rl.runs.checkpoints import load_checkpoint
from robo_rl.types import Metrics, StateDict

RECORD = "arrivals"
"""Key of the recorded arrivals in the state of the rewards, and so in a checkpoint."""


class Arrival(NamedTuple):
    """A label, and the training step from which on it counts in the reward."""

    step: int
    label: Label

    def saved(self) -> list[Any]:
        """Return label and step as plain values, to save them."""
        return [self.step, list(self.label.query), self.label.value]

    @classmethod
    def restored(cls, saved: Sequence[Any]) -> Arrival:
        """Return the arrival that was saved as plain values: step, query and label."""
        step, query, value = saved
        return cls(step, Label(tuple(query), value))


class RecordedAnnotator:
    """Annotator that gives the labels of an earlier run at the same steps; implements `robo_papers.oni.annotator.Annotator`."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._arrivals, self._given = arrivals, 0

    @property
    def metrics(self) -> Metrics:
        """Number of labels given so far, for the log."""
        return {"annotation/labels": float(self._given)}

    def submit(self, queries: Sequence[Query]) -> None:
        """Ignore the queries: all labels are recorded."""

    def arrived(self, step: int) -> list[Label]:
        """Return the labels up to `step` that were not given yet."""
        begin = self._given
        while self._given < len(self._arrivals) and self._arrivals[self._given].step <= step:
            self._given += 1
        return [arrival.label for arrival in self._arrivals[begin : self._given]]

    def state_dict(self) -> StateDict:
        """Return the number of labels given."""
        return {"given": self._given}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self._given = state["given"]


def record_of(run: Path) -> list[Arrival]:
    """Return the arrivals up to the newest checkpoint of a run; raise InvalidSetting if it has none."""
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
    """Yield every record in the state of a training; its place in the state depends on the loop."""
    if isinstance(node, Mapping):
        if RECORD in node:
            yield node[RECORD]
        for child in node.values():
            yield from _records(child)


class AnnotatedCaptions:
    """Computes the intrinsic reward r_llm of captions from their labels, and records when labels arrived.

    A caption without a label has no bonus, is queried and is counted as missing; it never becomes a label of 0.
    """

    def __init__(self, kind: CaptionRewards, annotator: Annotator) -> None:
        self._kind, self._annotator = kind, annotator
        self._arrivals: list[Arrival] = []
        self._step = self._missing = 0
        self._seen: set[str] = set()

    @property
    def metrics(self) -> Metrics:
        """Share of steps whose caption had no label, and the figures of annotator and network, for the log."""
        found = {"reward/missing": self._missing / max(self._step, 1), "annotation/captions": float(len(self._seen))}
        return found | self._annotator.metrics | self._kind.metrics

    def looked_up(self, words: Described, steps: int) -> npt.NDArray[np.float64]:
        """Return the intrinsic rewards r_llm of `steps` steps, 0 for captions without a label, and request labels.

        Labels are taken in once for these steps: a record of them gives labels at the same places again.
        """
        self._step += steps
        if labels := self._annotator.arrived(self._step):
            self._arrivals += [Arrival(self._step, label) for label in labels]
            self._kind.learn(labels)
        visits = np.bincount(words.numbers, minlength=len(words.captions)).tolist()
        self._seen.update(words.captions)
        self._annotator.submit(self._kind.wanted(dict(zip(words.captions, visits, strict=True))))
        found = self._kind.values(words.captions)
        self._missing += int((~found.valid)[words.numbers].sum())
        llm: npt.NDArray[np.float64] = np.where(found.valid, found.values, 0.0)[words.numbers]
        return llm

    def state_dict(self) -> StateDict:
        """Return labels with the steps at which they took effect, and all other state of later rewards."""
        return {
            RECORD: [arrival.saved() for arrival in self._arrivals],
            "kind": self._kind.state_dict(),
            "annotator": self._annotator.state_dict(),
            "counts": [self._step, self._missing],
            "seen": sorted(self._seen),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self._arrivals = [Arrival.restored(saved) for saved in state[RECORD]]
        self._kind.restore([arrival.label for arrival in self._arrivals])
        self._kind.load_state_dict(state["kind"])
        self._step, self._missing = state["counts"]
        self._seen = set(state["seen"])
        self._annotator.load_state_dict(state["annotator"])
