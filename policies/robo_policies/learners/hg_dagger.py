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
    """Settings group `replay` of HG-DAgger: memory of the corrections."""

    capacity: int = 200_000
    """Largest number of rows (steps) in the memory; the oldest are overwritten."""


@dataclass(frozen=True)
class HGDAggerConfig(BCSettings):
    """Settings of HG-DAgger: those of behaviour cloning, and the memory of corrections."""

    needs = Needs((OFFLINE, OFFLINE_THEN_CORRECTED), BCSettings.needs.spaces)

    replay: Corrections = Corrections()
    """Memory of the corrections."""

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, keeps_corrections=True)
