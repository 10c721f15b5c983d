"""Rewards of captions from their labels: a table (retrieval), or a fitted network (classification, ranking)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_papers.oni.annotator import Label
from robo_papers.oni.network import CaptionFitter, Fit
from robo_papers.oni.questions import Query
from robo_rl.types import Labels, Metrics, StateDict

TRIES = 8  # draws of a pair until one was not compared yet


class CaptionRewards(ABC):
    """Base class of mappings from captions to the intrinsic reward r_llm, given the known labels."""

    def __init__(self) -> None:
        self._table: dict[Query, float] = {}

    @property
    @abstractmethod
    def metrics(self) -> Metrics:
        """Scalars of the labels, or of the last fit if there is one, for the log."""

    @abstractmethod
    def wanted(self, visits: Mapping[str, int]) -> Sequence[Query]:
        """Take in visits of captions, the newest last, and return the queries to send, the most important last."""

    @abstractmethod
    def values(self, captions: Sequence[str]) -> Labels:
        """Return the intrinsic rewards r_llm of V distinct captions."""

    def learn(self, labels: Sequence[Label]) -> None:
        """Store new labels, and learn from them."""
        self.restore(labels)

    def restore(self, labels: Sequence[Label]) -> None:
        """Store labels from before the state was saved; called before `load_state_dict`."""
        self._table.update({label.query: label.value for label in labels})

    def state_dict(self) -> StateDict:
        """Return everything but the labels, to save it."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:  # noqa: B027 - a table has no state but its labels
        """Restore what `state_dict` returned."""

    def _unlabelled(self, visits: Mapping[str, int]) -> Sequence[Query]:
        return [(caption,) for caption in visits if (caption,) not in self._table]


class Retrieval(CaptionRewards):
    """Mapping that looks up: r_llm of a caption is its label; a caption without a label has none."""

    @property
    def metrics(self) -> Metrics:
        """The share of labels that are 1, for the log."""
        return {"annotation/helpful": float(np.mean(list(self._table.values())))} if self._table else {}

    @override
    def wanted(self, visits: Mapping[str, int]) -> Sequence[Query]:
        return self._unlabelled(visits)

    def values(self, captions: Sequence[str]) -> Labels:
        """Return the labels of these captions; missing for captions without one."""
        valid = np.array([(caption,) in self._table for caption in captions], np.bool_)
        return Labels(np.array([self._table.get((caption,), 0.0) for caption in captions], np.float64), valid)


class FittedRewards(CaptionRewards):
    """Base class of mappings by a network that is fitted to the labels, and generalises to similar captions."""

    def __init__(self, fit: Fit, most_labels: int) -> None:
        """most_labels: number from which on no query is sent and no fit is made."""
        super().__init__()
        self._fitter, self._most = CaptionFitter(fit), most_labels
        self._known: dict[str, float] = {}

    @property
    def metrics(self) -> Metrics:
        """The loss of the network's last fit, for the log."""
        return self._fitter.metrics

    @property
    def _is_full(self) -> bool:
        return len(self._table) >= self._most

    def learn(self, labels: Sequence[Label]) -> None:
        """Store new labels; fit the network to all of them if there are enough new ones."""
        self.restore(labels)
        if not self._is_full and self._fitter.is_due(len(self._table)):
            self._fitter.fit(len(self._table), self._loss(torch.tensor([*self._table.values()])))
            self._known.clear()

    @abstractmethod
    def _loss(self, targets: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the loss of rows (B,) of the table, whose labels are `targets` (N,)."""

    @override
    def state_dict(self) -> StateDict:
        return {"fitter": self._fitter.state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._fitter.load_state_dict(state["fitter"])
        self._known.clear()


class Classification(FittedRewards):
    """Mapping by a network that learns which captions are labelled 1: r_llm is 1 if its probability exceeds eta, else 0."""

    def __init__(self, fit: Fit, *, threshold: float, most_labels: int) -> None:
        """threshold: the paper's eta."""
        super().__init__(fit, most_labels)
        self._threshold = threshold

    @property
    def metrics(self) -> Metrics:
        """The loss of the last fit, and the share of labels that the network agrees with."""
        if not self._fitter.is_fitted:
            return {}
        agrees = np.mean(self.values([caption for (caption,) in self._table]).values == [*self._table.values()])
        return {"annotation/agreement": float(agrees)} | super().metrics

    @override
    def wanted(self, visits: Mapping[str, int]) -> Sequence[Query]:
        return [] if self._is_full else self._unlabelled(visits)

    def _loss(self, targets: Tensor) -> Callable[[Tensor], Tensor]:
        network = self._fitter.network
        shares = network.shares([caption for (caption,) in self._table])
        return lambda rows: classification_loss(network(shares[rows]), targets[rows])

    def values(self, captions: Sequence[str]) -> Labels:
        """Return the rewards of V captions, 1 or 0 each by the fitted classifier; all are missing before the first fit."""
        if not self._fitter.is_fitted:
            return Labels.missing(len(captions))
        new = [caption for caption in captions if caption not in self._known]
        probabilities = 1 / (1 + np.exp(-np.clip(self._fitter.outputs(new), -50, 50)))
        self._known.update(zip(new, (probabilities > self._threshold).astype(float).tolist(), strict=True))
        return Labels(np.array([self._known[caption] for caption in captions], np.float64), np.ones(len(captions), np.bool_))


def classification_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of labels (B,) under sigmoid(logits) (B,)."""
    return nn.functional.binary_cross_entropy_with_logits(logits, labels)


class Ranking(FittedRewards):
    """Mapping by a network that learns which of two captions is better, by Bradley and Terry (as in Motif).

        P(second is better) = exp r(second) / (exp r(first) + exp r(second))
        r_llm(o) = z(o) if z(o) > epsilon, else 0, with z the network's r(o), standardised over the steps that were taken

    Differs from the paper: mean and deviation are those of the present network over the captions of all steps so far, because a
    running mean would hold rewards of earlier networks.
    """

    def __init__(self, fit: Fit, *, threshold: float, pairs: int, most_labels: int) -> None:
        """threshold: the paper's epsilon, in deviations. pairs: comparisons per request."""
        super().__init__(fit, most_labels)
        self._threshold, self._pairs = threshold, pairs
        self._random = np.random.default_rng(fit.seed)
        self._visits: Counter[str] = Counter()

    def wanted(self, visits: Mapping[str, int]) -> Sequence[Query]:
        """Return pairs that were not compared yet: random ones, then each new caption with a known one."""
        new = [caption for caption in visits if caption not in self._visits]
        self._visits.update(visits)
        if self._is_full or len(self._visits) < 2:
            return []
        captions = [*self._visits]
        fresh = [self._pair(caption, captions) for caption in new][-self._pairs :]
        others = [self._pair(None, captions) for _ in range(self._pairs - len(fresh))]
        return [*dict.fromkeys(pair for pair in [*others, *fresh] if pair is not None)]

    def _pair(self, first: str | None, captions: Sequence[str]) -> Query | None:
        for _ in range(TRIES):
            one = captions[int(self._random.integers(len(captions)))] if first is None else first
            two = captions[int(self._random.integers(len(captions)))]
            pair = (min(one, two), max(one, two))
            if one != two and pair not in self._table:
                return pair
        return None

    def _loss(self, targets: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the loss of pairs; a caption is evaluated once, however many pairs it is in."""
        network = self._fitter.network
        captions = [*dict.fromkeys(caption for pair in self._table for caption in pair)]
        place = {caption: number for number, caption in enumerate(captions)}
        pairs = torch.tensor([[place[caption] for caption in pair] for pair in self._table])  # (P, 2)
        shares = network.shares(captions)

        def loss(rows: Tensor) -> Tensor:
            chosen, places = torch.unique(pairs[rows], return_inverse=True)
            first, second = network(shares[chosen])[places].unbind(1)
            return ranking_loss(first, second, targets[rows])

        return loss

    def values(self, captions: Sequence[str]) -> Labels:
        """Return the standardised rewards of V captions by the fitted ranking, 0 up to the threshold.

        All are missing before the first fit.
        """
        if not self._fitter.is_fitted or not captions:
            return Labels.missing(len(captions))
        new = [caption for caption in dict.fromkeys([*self._visits, *captions]) if caption not in self._known]
        self._known.update(zip(new, self._fitter.outputs(new).tolist(), strict=True))
        rewards = np.array([self._known[caption] for caption in captions])
        mean, deviation = self._moments()
        standardised = (rewards - mean) / deviation
        return Labels(np.where(standardised > self._threshold, standardised, 0.0), np.ones(len(captions), np.bool_))

    def _moments(self) -> tuple[float, float]:
        """Return mean and deviation of the network's rewards over the steps so far."""
        counts = np.fromiter(self._visits.values(), np.float64)
        rewards = np.array([self._known[caption] for caption in self._visits])
        mean = float(np.average(rewards, weights=counts)) if len(counts) else 0.0
        variance = float(np.average((rewards - mean) ** 2, weights=counts)) if len(counts) else 1.0
        return mean, max(variance**0.5, 1e-6)

    @override
    def state_dict(self) -> StateDict:
        generator = self._random.bit_generator.state
        # known rewards too: a network's last bits depend on the number of captions per evaluation
        known = {"visits": dict(self._visits), "known": dict(self._known)}
        return {**super().state_dict(), "random": _plain(generator), **known}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._visits = Counter(state["visits"])
        self._random.bit_generator.state = state["random"]
        self._known = dict(state["known"])


def ranking_loss(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of comparisons, a scalar.

    first, second: rewards (B,) of both captions. labels: (B,) 0 if the first is better, 1 if the second is, 0.5 for neither.
    """
    return nn.functional.binary_cross_entropy_with_logits(second - first, labels)


def _plain(state: Mapping[str, object]) -> StateDict:
    return {name: _plain(value) if isinstance(value, Mapping) else value for name, value in state.items()}
