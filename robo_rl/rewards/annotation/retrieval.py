"""ONI's retrieval: a table of captions and their labels; r_llm(o) is the label of o."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robo_rl.rewards.annotation.annotator import Label
from robo_rl.rewards.annotation.desk import Query
from robo_rl.types import Labels, Metrics, StateDict


class Retrieval:
    """Labels by caption; implements `robo_rl.rewards.annotation.kinds.CaptionRewards`."""

    def __init__(self) -> None:
        self._table: dict[str, float] = {}

    @property
    def metrics(self) -> Metrics:
        """The share of labels that are 1."""
        return {"annotation/helpful": float(np.mean(list(self._table.values())))} if self._table else {}

    def wanted(self, visits: Mapping[str, int]) -> Sequence[Query]:
        """Returns the captions without a label."""
        return [(caption,) for caption in visits if caption not in self._table]

    def learn(self, labels: Sequence[Label]) -> None:
        """Enters labels."""
        self._table.update({caption: label.value for label in labels for caption in label.query})

    def values(self, captions: Sequence[str]) -> Labels:
        """Returns the labels, and which captions have one."""
        valid = np.array([caption in self._table for caption in captions], np.bool_)
        return Labels(np.array([self._table.get(caption, 0.0) for caption in captions], np.float64), valid)

    def restore(self, labels: Sequence[Label]) -> None:
        """Enters labels."""
        self.learn(labels)

    def state_dict(self) -> StateDict:
        """Nothing: the labels are all there is."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Nothing."""
