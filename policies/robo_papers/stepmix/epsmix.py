"""EpsMix: plays the optimistic policy with the largest probability that keeps the baseline's guarantee.

Li, Li, Yang, Shen and Shi 2023, arXiv:2306.06265, the simpler of its two algorithms. From memory of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from robo_papers.stepmix.tabular import ConservativeConfig, EstimatedModel, Mixture, Table


@dataclass(frozen=True)
class EpsMixConfig(ConservativeConfig):
    """Settings of EpsMix."""

    @override
    def mixture(self, model: EstimatedModel, baseline: Table) -> Mixture:
        """Return baseline and optimistic policy, the second as often as the lower bounds allow."""
        optimistic, _ = model.optimistic()
        threshold, safe = self.threshold(model, baseline), self.lower(model, baseline)
        bold = self.lower(model, optimistic)
        if safe < threshold:
            return Mixture(baseline, baseline, 0.0)
        return Mixture(baseline, optimistic, 1.0 if bold >= threshold else (safe - threshold) / (safe - bold))
