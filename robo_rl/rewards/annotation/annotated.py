"""Captions and their labels, which arrive some time later."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robo_rl.rewards.annotation.annotator import Annotator
from robo_rl.rewards.annotation.captioning import Described
from robo_rl.rewards.annotation.kinds import CaptionRewards
from robo_rl.rewards.annotation.recorded import RECORD, Arrival
from robo_rl.types import Metrics, StateDict


class AnnotatedCaptions:
    """r_llm of captions as far as they are annotated, and the record of when labels arrived.

    A caption without a label has no bonus, is asked about and is counted as missing; it never becomes a label of 0.
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
        """Return r_llm of so many steps, 0 without a label, and ask for labels.

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
        """Return labels with the steps at which they took effect, and everything else that later rewards depend on."""
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
