"""SAC for the mean reward of a step, without a discount: relative value iteration.

Hisaki and Ono 2024, "RVI-SAC: Average Reward Off-Policy Deep Reinforcement Learning", arXiv:2408.01972. B rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.parts import Learned
from robo_policies.learners.sac import SAC, Objective, SACSettings
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict


@dataclass(frozen=True)
class SACAverageConfig(SACSettings):
    """Settings of SAC for the mean reward of a step, without a discount (RVI-SAC: Hisaki and Ono 2024, arXiv:2408.01972).

    Its own field sets the running mean of values that stands for the mean reward.
    """

    discount: float = 1.0
    """Always 1, because there is no discount."""
    rate_step: float = 0.005
    """Weight of the newest batch in the running mean of values, which stands for the mean reward of a step (kappa)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"discount": (self.discount == 1.0, "1: the mean reward has no discount")}
        allowed["replay.n_step"] = (self.replay.n_step == 1, "1: the mean reward is taken off once for each step")
        require_allowed(self, allowed | {"rate_step": (0.0 < self.rate_step <= 1.0, "above 0, at most 1")})

    def build(self, spec: EnvironmentSpec, seed: int) -> SACAverage:
        """Build an untrained learner for the spec of an environment; its networks are initialised from `seed`."""
        return SACAverage(spec, self, seed)


class MeanReward(Objective):
    """Objective of SAC that is the mean of reward and entropy over the steps: eq. 11 with f(Q) a running mean of values."""

    def __init__(self, rate_step: float) -> None:
        self._rate_step, self.rate = rate_step, torch.zeros(())
        """f(Q), an estimate of the mean of reward and entropy of a step."""

    @override
    def target(self, targets: Tensor, data: TensorBatch) -> Tensor:
        """Return r - f(Q) + min Q(s', a') - alpha log pi(a'|s'), (B,)."""
        self.rate = self.rate + self._rate_step * ((targets - data.rewards).mean() - self.rate)
        return targets - self.rate

    @override
    def state_dict(self) -> StateDict:
        return {"rate": float(self.rate.cpu())}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.rate = torch.tensor(float(state["rate"]))


class SACAverage(Learned):
    """Learner for tasks that do not end: SAC that maximises the mean of reward and entropy of a step."""

    def __init__(self, spec: EnvironmentSpec, config: SACAverageConfig, seed: int) -> None:
        self.objective = MeanReward(config.rate_step)
        self.sac = SAC(spec, config, seed, self.objective)
        self.parts = self.sac.parts

    def update(self, batch: Batch) -> Metrics:
        """Take one step of SAC; raises InvalidSetting for a step that terminated its episode."""
        if not batch.masks.all():
            raise InvalidSetting(
                "A mean over steps is for tasks that do not end.",
                got="a step that terminated its episode",
                allowed="episodes that the time limit ends",
                fix="take sac, or an environment whose episodes end by the time limit alone",
            )
        return self.parts.finish_update(self.sac.learn(self.parts.batch(batch)) | {"mean_reward": self.objective.rate})

    @override
    def state_dict(self) -> StateDict:
        return self.sac.state_dict()

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.sac.load_state_dict(state)
