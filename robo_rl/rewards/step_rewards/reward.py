"""Base class of rewards of steps, which label recorded episodes and reward a policy while it acts."""

from __future__ import annotations

from typing_extensions import override

from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.step_rewards.online_scoring import OnlineReward
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.scorer import StepScorer
from robo_rl.rewards.step_rewards.steps import Steps, StepScores
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, Labels, RewardLabels


class StepReward(StepScorer, RewardModel):
    """Base class of rewards of single steps: a subclass defines `name` and `score_steps`; its fields are the settings."""

    def score_episode(self, episode: Episode) -> StepScores:
        """Return the rewards of all steps of a recorded episode, and all intermediate values."""
        return self.score_steps(Steps.of(episode), Place.recorded(episode))

    @override
    def label(self, episode: Episode) -> RewardLabels:
        labels = self.score_episode(episode).labels if len(episode) else Labels.missing(0)
        return Labels.finite(labels.values, labels.valid).by(self.identity)

    @override
    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> OnlineReward:
        return OnlineReward(self, spec, weight=weight, discount=discount)
