"""HG-DAgger: Kelly et al. 2019, "HG-DAgger: Interactive Imitation Learning with Human Experts" (arXiv 1810.02890).

It clones demonstrations. Then the policy acts, a person takes over at will, and the person's actions are cloned too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import override

from robo_policies.learners.bc import BCSettings
from robo_rl.protocols.contract import OFFLINE, OFFLINE_THEN_CORRECTED, Needs
from robo_rl.protocols.sampling import Sampling


@dataclass(frozen=True)
class Corrections:
    """Settings group `replay` of HG-DAgger: size of the memory of steps in which a person acted (corrections)."""

    capacity: int = 200_000
    """Largest number of rows (steps) in the memory; the oldest are overwritten."""


@dataclass(frozen=True)
class HGDAggerConfig(BCSettings):
    """Settings of HG-DAgger (Kelly et al. 2019, arXiv 1810.02890): behaviour cloning of demonstrations and corrections.

    A correction is a step in which a person took over from the policy. Its own field sets the memory of corrections.
    """

    needs = Needs((OFFLINE, OFFLINE_THEN_CORRECTED), BCSettings.needs.spaces)

    replay: Corrections = Corrections()
    """Memory of the corrections."""

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, keeps_corrections=True)
