"""Settings of learners that imitate an expert's recorded episodes while they practise in the environment."""

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
    """Networks of a learner that imitates."""

    normalization_rows: int = 10_000
    """Observations whose mean and deviation standardise the input; 0 leaves it as it is."""


@dataclass(frozen=True)
class ImitationReplay(Replay):
    """Replay memory of a learner that imitates."""

    offline_fraction: float = 0.5
    """Share of each batch that comes from demonstrations."""


@dataclass(frozen=True)
class ImitationSettings(SACSettings):
    """Settings common to GAIL and IQ-Learn, which learn from no reward; those of SAC are of the policy."""

    needs = Needs(STEPS, excludes=dict.fromkeys((Feature.REWARD, Feature.RELABELLED), "leave reward out"))

    experts: str = "all"
    """Recorded episodes of the expert: all, success, "source NAME" or "return X" (robo_rl.extras.FromExpert)."""
    network: ImitationNetwork = ImitationNetwork()
    """Networks."""
    replay: ImitationReplay = ImitationReplay()
    """Replay memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"replay.n_step": (self.replay.n_step == 1, "1: rewards are of single steps")}
        shares = 0.0 < self.replay.offline_fraction < 1.0
        require_allowed(self, allowed | {"replay.offline_fraction": (shares, "between 0 and 1")})

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(FromExpert(self.experts),))
