"""MOPO: Yu et al. 2020, "MOPO: Model-based Offline Policy Optimization", arXiv:2005.13239.

SAC learns from recorded steps, and from short branches in a world that is learned from them, in which a step costs reward
where the world does not know (`robo_rl.worlds`; algorithm 2 of the paper).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from robo_policies.learners.sac import SAC, SACSettings
from robo_rl.protocols.contract import CONTINUOUS_ONLY, OFFLINE, Needs
from robo_rl.protocols.sampling import Sampling, Worlds
from robo_rl.spec.environment import EnvironmentSpec

WORLDS = Worlds(share=0.95, horizon=5, every=500, branches=2000, kept=4, members=5, elites=3, updates=20_000, penalty=1.0)
"""World and branches of MOPO; the paper has penalties of 0.5 to 5, horizons of 1 and 5, 7 members, and half a million steps."""


@dataclass(frozen=True)
class MOPOConfig(SACSettings):
    """Settings of MOPO; those of SAC with a world."""

    needs = Needs((OFFLINE,), CONTINUOUS_ONLY)

    worlds: Worlds = WORLDS
    """World that is learned from the recorded steps, and branches in it. `penalty` is lambda; 0 trusts the world."""

    @property
    def sampling(self) -> Sampling:
        """Requirements of the training loop."""
        return replace(Sampling.of(self), offline_fraction=1.0)

    def build(self, spec: EnvironmentSpec, seed: int) -> SAC:
        """Return a fresh learner."""
        return SAC(spec, self, seed)
