"""Settings of learners that imitate recorded episodes of an expert and act in the environment (GAIL, IQ-Learn)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import override

from robo_policies.learners.sac import SACSettings
from robo_policies.networks.settings import Network
from robo_rl.errors import require_allowed
from robo_rl.extras import FromExpert
from robo_rl.protocols.contract import STEPS, Feature, Needs
from robo_rl.protocols.sampling import Replay, Sampling


@dataclass(frozen=True)
class ImitationNetwork(Network):
    """Settings group `network` of GAIL and IQ-Learn: adds the standardisation of observations to the sizes of the networks."""

    normalization_rows: int = 10_000
    """Number of first observations whose mean and deviation standardise all later ones; 0 for no standardisation."""


@dataclass(frozen=True)
class ImitationReplay(Replay):
    """Settings group `replay` of GAIL and IQ-Learn: adds the share of demonstrations in each batch."""

    offline_fraction: float = 0.5
    """Share of each batch that comes from demonstrations."""


@dataclass(frozen=True)
class ImitationSettings(SACSettings):
    """Settings common to GAIL and IQ-Learn, which imitate an expert and use no reward of the environment.

    They choose the expert's episodes. The policy is trained by SAC, whose fields are inherited.
    """

    needs = Needs(STEPS, excludes=dict.fromkeys((Feature.REWARD, Feature.RELABELLED), "leave reward out"))

    experts: str = "all"
    """Recorded episodes that count as the expert's: all, success, "source NAME" or "return X" (robo_rl.extras.FromExpert)."""
    network: ImitationNetwork = ImitationNetwork()
    """Sizes of the networks, and how they are computed."""
    replay: ImitationReplay = ImitationReplay()
    """Settings of the replay memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"replay.n_step": (self.replay.n_step == 1, "1: rewards are of single steps")}
        shares = 0.0 < self.replay.offline_fraction < 1.0
        require_allowed(self, allowed | {"replay.offline_fraction": (shares, "between 0 and 1")})

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(FromExpert(self.experts),))
