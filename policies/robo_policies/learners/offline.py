"""Settings common to learners from recorded data: optimiser, batch size, target networks and discount."""

from __future__ import annotations

from dataclasses import dataclass, replace

from robo_policies.networks.image_encoder import PictureNetwork
from robo_policies.networks.settings import LearnerSettings
from robo_rl.protocols.contract import CONTINUOUS_ONLY, DATA, Feature, Needs
from robo_rl.protocols.sampling import Sampling


@dataclass(frozen=True)
class OfflineNetwork(PictureNetwork):
    """Settings group `network` of learners from recorded data: adds the standardisation of observations to the sizes."""

    normalization_rows: int = 10_000
    """Number of first observations whose mean and deviation standardise all later ones; 0 for no standardisation, as most
    authors do."""


@dataclass(frozen=True)
class OfflineSettings(LearnerSettings):
    """Settings common to learners from recorded data (offline RL and imitation): learning rate, batch size, networks."""

    needs = Needs(DATA, CONTINUOUS_ONLY | {Feature.PICTURES})

    lr: float = 3e-4
    """Learning rate of Adam."""
    batch_size: int = 256
    """Recorded steps of one update."""
    network: OfflineNetwork = OfflineNetwork()
    """Sizes of the networks, and how they are computed."""

    @property
    def sampling(self) -> Sampling:
        """Settings that the training loop reads; every batch is drawn from recorded episodes alone."""
        return replace(Sampling.of(self), offline_fraction=1.0)


@dataclass(frozen=True)
class OfflineValueSettings(OfflineSettings):
    """Settings common to learners from recorded data with critics and target networks: discount, and speed of the targets."""

    tau: float = 0.005
    """Share of the online networks that enters the target networks at each update."""
    discount: float = 0.99
    """Weight of a reward one step later."""
