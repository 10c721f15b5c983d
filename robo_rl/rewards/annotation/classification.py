"""ONI's classification: a network learns which captions are labelled 1; r_llm(o) = 1 where its probability exceeds eta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from robo_rl.rewards.annotation.annotator import Label
from robo_rl.rewards.annotation.desk import Query
from robo_rl.rewards.annotation.network import CaptionFitter, Fit
from robo_rl.types import Labels, Metrics, StateDict


class Classification:
    """Labels that generalise to captions like theirs; implements `robo_rl.rewards.annotation.kinds.CaptionRewards`."""

    def __init__(self, fit: Fit, *, threshold: float, most_labels: int) -> None:
        """threshold: the paper's eta. most_labels: beyond that nothing is asked and nothing fitted any more."""
        self._fitter, self._threshold, self._most = CaptionFitter(fit), threshold, most_labels
        self._table: dict[str, float] = {}
        self._known: dict[str, float] = {}

    @property
    def metrics(self) -> Metrics:
        """The loss of the last fit, and the share of labels that the network agrees with."""
        if not self._fitter.is_fitted:
            return {}
        agrees = np.mean(self.values(list(self._table)).values == [*self._table.values()])
        return {"annotation/agreement": float(agrees)} | self._fitter.metrics

    def wanted(self, visits: Mapping[str, int]) -> Sequence[Query]:
        """Returns the captions without a label."""
        if len(self._table) >= self._most:
            return []
        return [(caption,) for caption in visits if caption not in self._table]

    def learn(self, labels: Sequence[Label]) -> None:
        """Enters labels; fits the network to all of them where there are enough new ones."""
        self.restore(labels)
        if len(self._table) < self._most and self._fitter.is_due(len(self._table)):
            shares, targets = self._fitter.network.shares([*self._table]), torch.tensor([*self._table.values()])
            self._fitter.fit(len(targets), lambda rows: classification_loss(self._fitter.network(shares[rows]), targets[rows]))
            self._known.clear()

    def values(self, captions: Sequence[str]) -> Labels:
        """Returns 1 or 0 of each caption; all are missing before the first fit."""
        if not self._fitter.is_fitted:
            return Labels.missing(len(captions))
        new = [caption for caption in captions if caption not in self._known]
        probabilities = 1 / (1 + np.exp(-np.clip(self._fitter.outputs(new), -50, 50)))
        self._known.update(zip(new, (probabilities > self._threshold).astype(float).tolist(), strict=True))
        return Labels(np.array([self._known[caption] for caption in captions], np.float64), np.ones(len(captions), np.bool_))

    def restore(self, labels: Sequence[Label]) -> None:
        """Enters labels."""
        self._table.update({caption: label.value for label in labels for caption in label.query})

    def state_dict(self) -> StateDict:
        """Returns the network's state."""
        return {"fitter": self._fitter.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._fitter.load_state_dict(state["fitter"])
        self._known.clear()


def classification_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean cross-entropy of labels (B,) under sigmoid(logits) (B,)."""
    return nn.functional.binary_cross_entropy_with_logits(logits, labels)
