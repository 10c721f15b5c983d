"""Settings common to learners from recorded data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from robo_policies.networks.image_encoder import PictureNetwork
from robo_policies.networks.settings import LearnerSettings
from robo_rl.protocols.contract import CONTINUOUS_ONLY, DATA, Feature, Needs
from robo_rl.protocols.sampling import Sampling


@dataclass(frozen=True)
class OfflineNetwork(PictureNetwork):
    """Settings group `network` of a learner from recorded data."""

    normalization_rows: int = 10_000
    """Number of first observations whose mean and deviation standardise all later ones; 0 for no standardisation, as most
    authors do."""


@dataclass(frozen=True)
class OfflineSettings(LearnerSettings):
    """Settings of a learner from recorded data."""

    needs = Needs(DATA, CONTINUOUS_ONLY | {Feature.PICTURES})

    lr: float = 3e-4
    """Learning rate of Adam."""
    batch_size: int = 256
    """Recorded steps of one update."""
    network: OfflineNetwork = OfflineNetwork()
    """Networks."""

    @property
    def sampling(self) -> Sampling:
        """Requirements of the training loop."""
        return replace(Sampling.of(self), offline_fraction=1.0)


@dataclass(frozen=True)
class OfflineValueSettings(OfflineSettings):
    """Settings of a learner from recorded data that has critics with targets."""

    tau: float = 0.005
    """Share of the online networks that enters the target networks at each update."""
    discount: float = 0.99
    """Weight of a reward one step later."""
