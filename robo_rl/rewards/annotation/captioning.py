"""Captions of steps, and labels of captions with the training steps at which they arrived, now or in an earlier run.

A captioner knows its simulator; a reward does not, and finds the captioner by an entry point in `robo_rl.captioners`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.annotation.annotator import Annotator, Label
from robo_rl.rewards.annotation.caption_rewards import CaptionRewards
from robo_rl.rewards.annotation.questions import Query
from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.runs.checkpoints import load_checkpoint
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Metrics, StateDict

LOOK = "look"
"""Name under which the looks of a captioner are stored in place of observations."""


class Captioner(Protocol):
    """Describes steps in words; equal words mean equal events. It knows neither success nor reward."""

    def require(self, spec: EnvironmentSpec) -> None:
        """Raise InvalidSetting for an environment that it cannot describe."""

    def look(self, observations: Mapping[str, Array]) -> Array:
        """Return looks (N, ...): the part of N observations, name -> (N, ...), that captions need, as a small new array."""

    def captions(self, before: Array, actions: Array, after: Array) -> Sequence[str]:
        """Return the descriptions of K steps, from looks before and after them and the actions (K, ...)."""


class Described(NamedTuple):
    """K steps in words, in their order."""

    captions: Sequence[str]
    """(C,) the distinct ones, in the order of their last occurrences."""
    numbers: npt.NDArray[np.int64]
    """(K,) index of each step's caption"""
    occurrences: npt.NDArray[np.int64]
    """(K,) occurrences of this caption in the episode so far, this one included: 1 for the first."""


def described(captioner: Captioner, steps: Steps, counts: dict[str, dict[str, int]], *, says_task: bool) -> Described:
    """Describe steps in words, and count how often each description has occurred in its episode.

    Args:
        captioner: What describes the steps.
        steps: K steps of one or more environments.
        counts: Number of the environment, as text -> caption -> occurrences in its running episode; updated in place.
        says_task: True to put the instruction of the episode before each caption.

    Returns:
        The captions of the K steps, and their occurrences.
    """
    looks = [side[LOOK] if LOOK in side else captioner.look(side) for side in (steps.before, steps.after)]
    captions = captioner.captions(looks[0], steps.actions, looks[1])
    if says_task:
        pairs = zip(steps.instructions, captions, strict=True)
        captions = [f"Task: {task}. {caption}" if task else caption for task, caption in pairs]
    last = {caption: step for step, caption in enumerate(captions)}
    distinct = sorted(last, key=lambda caption: last[caption])
    place = {caption: number for number, caption in enumerate(distinct)}
    numbers = np.array([place[caption] for caption in captions], np.int64)
    return Described(distinct, numbers, _counted(steps, captions, counts))


def _counted(steps: Steps, captions: Sequence[str], counts: dict[str, dict[str, int]]) -> npt.NDArray[np.int64]:
    """Return (K,): how often the caption of each step has occurred in its episode, this step included."""
    found, running = [], [counts.get(str(index), {}) for index in range(int(steps.index.max(initial=-1)) + 1)]
    for index, caption, begins in zip(steps.index.tolist(), captions, steps.begins.tolist(), strict=True):
        if begins:
            running[index] = {}
        episode = running[index]
        episode[caption] = times = episode.get(caption, 0) + 1
        found.append(times)
    counts.update(zip(map(str, range(len(running))), running, strict=True))
    return np.array(found, np.int64)


RECORD = "arrivals"
"""Key of the recorded arrivals in the state of the rewards, and so in a checkpoint."""


class Arrival(NamedTuple):
    """A label, and the training step from which on it counts."""

    step: int
    label: Label

    def saved(self) -> list[Any]:
        """Return plain values."""
        return [self.step, list(self.label.query), self.label.value]

    @classmethod
    def restored(cls, saved: Sequence[Any]) -> Arrival:
        """Return the arrival of saved plain values."""
        step, query, value = saved
        return cls(step, Label(tuple(query), value))


class RecordedAnnotator:
    """Gives the labels of a record at their steps; implements `robo_rl.rewards.annotation.annotator.Annotator`."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._arrivals, self._given = arrivals, 0

    @property
    def metrics(self) -> Metrics:
        """Labels given so far."""
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
    """r_llm of annotated captions, and the record of the labels' arrivals.

    A caption without a label has no bonus, is queried and is counted as missing; it never becomes a label of 0.
    """

    def __init__(self, kind: CaptionRewards, annotator: Annotator) -> None:
        self._kind, self._annotator = kind, annotator
        self._arrivals: list[Arrival] = []
        self._step = self._missing = 0
        self._seen: set[str] = set()

    @property
    def metrics(self) -> Metrics:
        """Share of steps whose caption had no label, and the numbers of the annotator and the network."""
        found = {"reward/missing": self._missing / max(self._step, 1), "annotation/captions": float(len(self._seen))}
        return found | self._annotator.metrics | self._kind.metrics

    def looked_up(self, words: Described, steps: int) -> npt.NDArray[np.float64]:
        """Return r_llm of that many steps, 0 without a label, and request labels.

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
