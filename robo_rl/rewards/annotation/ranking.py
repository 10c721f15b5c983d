"""ONI's ranking (as Motif's): a network learns which of two captions is better, by Bradley and Terry.

P(second is better) = exp r(second) / (exp r(first) + exp r(second))
r_llm(o) = z(o) where z(o) > epsilon, else 0, with z the network's r(o), standardised over the steps that were taken
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from robo_rl.rewards.annotation.annotator import Label
from robo_rl.rewards.annotation.desk import Query
from robo_rl.rewards.annotation.network import CaptionFitter, Fit
from robo_rl.types import Labels, Metrics, StateDict

TRIES = 8  # draws of a pair until one was not compared yet


class Ranking:
    """A reward from comparisons of captions; implements `robo_rl.rewards.annotation.kinds.CaptionRewards`.

    Differs from the paper: mean and deviation are those of the present network over the captions of all steps so far, because a
    running mean would hold what earlier networks said.
    """

    def __init__(self, fit: Fit, *, threshold: float, pairs: int, most_labels: int) -> None:
        """threshold: the paper's epsilon, in deviations. pairs: asked at a time. most_labels: beyond that nothing is asked."""
        self._fitter, self._threshold, self._pairs, self._most = CaptionFitter(fit), threshold, pairs, most_labels
        self._random = np.random.default_rng(fit.seed)
        self._table: dict[Query, float] = {}
        self._visits: Counter[str] = Counter()
        self._known: dict[str, float] = {}

    @property
    def metrics(self) -> Metrics:
        """The loss of the last fit."""
        return self._fitter.metrics

    def wanted(self, visits: Mapping[str, int]) -> Sequence[Query]:
        """Returns pairs that were not compared yet: each new caption with a known one last, random ones before."""
        new = [caption for caption in visits if caption not in self._visits]
        self._visits.update(visits)
        if len(self._table) >= self._most or len(self._visits) < 2:
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

    def learn(self, labels: Sequence[Label]) -> None:
        """Enters comparisons; fits the network to all of them where there are enough new ones."""
        self.restore(labels)
        if len(self._table) < self._most and self._fitter.is_due(len(self._table)):
            captions = [*dict.fromkeys(caption for pair in self._table for caption in pair)]
            place = {caption: number for number, caption in enumerate(captions)}
            pairs = torch.tensor([[place[caption] for caption in pair] for pair in self._table])  # (P, 2)
            shares, targets = self._fitter.network.shares(captions), torch.tensor([*self._table.values()])
            self._fitter.fit(len(targets), lambda rows: self._loss_of(shares, pairs[rows], targets[rows]))
            self._known.clear()

    def _loss_of(self, shares: Tensor, pairs: Tensor, targets: Tensor) -> Tensor:
        """Returns the loss of pairs (B, 2) of captions; a caption is evaluated once, however many pairs it is in."""
        chosen, places = torch.unique(pairs, return_inverse=True)
        first, second = self._fitter.network(shares[chosen])[places].unbind(1)
        return ranking_loss(first, second, targets)

    def values(self, captions: Sequence[str]) -> Labels:
        """Returns standardised rewards, 0 up to the threshold; all are missing before the first fit."""
        if not self._fitter.is_fitted or not captions:
            return Labels.missing(len(captions))
        new = [caption for caption in dict.fromkeys([*self._visits, *captions]) if caption not in self._known]
        self._known.update(zip(new, self._fitter.outputs(new).tolist(), strict=True))
        rewards = np.array([self._known[caption] for caption in captions])
        mean, deviation = self._moments()
        standardised = (rewards - mean) / deviation
        return Labels(np.where(standardised > self._threshold, standardised, 0.0), np.ones(len(captions), np.bool_))

    def _moments(self) -> tuple[float, float]:
        """Returns mean and deviation of the network's rewards over the steps so far."""
        counts = np.fromiter(self._visits.values(), np.float64)
        rewards = np.array([self._known[caption] for caption in self._visits])
        mean = float(np.average(rewards, weights=counts)) if len(counts) else 0.0
        variance = float(np.average((rewards - mean) ** 2, weights=counts)) if len(counts) else 1.0
        return mean, max(variance**0.5, 1e-6)

    def restore(self, labels: Sequence[Label]) -> None:
        """Enters comparisons."""
        self._table.update({label.query: label.value for label in labels})

    def state_dict(self) -> StateDict:
        """Returns network, visits, what it said, and the generator of pairs."""
        generator = self._random.bit_generator.state
        # known rewards too: a network's last bits depend on how many captions are evaluated at once
        known = {"visits": dict(self._visits), "known": dict(self._known)}
        return {"fitter": self._fitter.state_dict(), "random": _plain(generator), **known}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._fitter.load_state_dict(state["fitter"])
        self._visits = Counter(state["visits"])
        self._random.bit_generator.state = state["random"]
        self._known = dict(state["known"])


def ranking_loss(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean cross-entropy of comparisons; rewards (B,) of both, labels (B,): 0 first, 1 second, 0.5 neither."""
    return nn.functional.binary_cross_entropy_with_logits(second - first, labels)


def _plain(state: Mapping[str, object]) -> StateDict:
    return {name: _plain(value) if isinstance(value, Mapping) else value for name, value in state.items()}
