"""StepMix: conservative exploration that is optimistic only as late in an episode as the baseline's guarantee asks.

Li, Li, Yang, Shen and Shi 2023, "Near-optimal conservative exploration in reinforcement learning under episode-wise
constraints", arXiv:2306.06265. From memory of the paper; no official code was found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from robo_papers.stepmix.tabular import ConservativeConfig, EstimatedModel, Mixture, Table


@dataclass(frozen=True)
class StepMixConfig(ConservativeConfig):
    """Settings of StepMix."""

    @override
    def mixture(self, model: EstimatedModel, baseline: Table) -> Mixture:
        """Return the mixture of two neighbouring candidates that is optimistic earliest and still keeps the threshold.

        Candidate h follows the baseline before step h and the optimistic policy from there on.
        """
        optimistic, _ = model.optimistic()
        threshold, late = self.threshold(model, baseline), baseline
        if self.lower(model, baseline) < threshold:
            return Mixture(baseline, baseline, 0.0)
        for start in reversed(range(model.horizon)):
            early = np.concatenate((baseline[:start], optimistic[start:]))
            if (bound := self.lower(model, early)) < threshold:
                above = self.lower(model, late)
                return Mixture(late, early, (above - threshold) / (above - bound))
            late = early
        return Mixture(late, late, 0.0)
