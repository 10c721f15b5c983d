"""Settings common to learners from whole episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
from typing_extensions import override

from robo_policies.learners.episodic import EpisodeActor
from robo_policies.learners.own_loop import OwnLoop
from robo_policies.networks.regression_actors import CategoricalActor, GaussianActor
from robo_policies.networks.settings import LearnerSettings, Network
from robo_rl.errors import require_allowed
from robo_rl.protocols.contract import EPISODES, Feature, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.episodic import EpisodicTraining, Player, Plays


@dataclass(frozen=True)
class EpisodeNetwork(Network):
    """Settings group `network` of learners from whole episodes: hidden layers and the standardisation of observations."""

    hidden: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of the policy."""
    normalization_rows: int = 10_000
    """Number of first observations whose mean and deviation standardise the input. 0: the input is not standardised."""


@dataclass(frozen=True)
class EpisodeSettings(LearnerSettings, OwnLoop):
    """Settings common to learners that update their policy after a number of whole episodes (GRPO and its relatives).

    They steer the optimiser, the discount, the episodes of an update and how many of these begin in one state.
    """

    needs = Needs(
        (EPISODES,),
        frozenset({Feature.CONTINUOUS, Feature.DISCRETE}),
        {Feature.REWARD: "leave reward out", Feature.DEMONSTRATIONS: "none"},
    )

    has_critics: ClassVar[bool] = False

    lr: float = 3e-4
    """Learning rate of Adam."""
    network: EpisodeNetwork = EpisodeNetwork()
    """Sizes of the networks, and how they are computed."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    episodes: int = 16
    """Episodes between two updates."""
    group: int = 1
    """Number of episodes that begin in the same state, by the same seed; a divisor of `episodes`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.has_critics:
            self.network.require_unused("it has no critics", "critic", "layer_norm")
        require_allowed(
            self,
            {
                "discount": (0 <= self.discount <= 1, "0 to 1"),
                "episodes": (self.episodes >= 1, "1 or more"),
                "group": (self.group >= 1 and self.episodes % self.group == 0, "1 or more, a divisor of episodes"),
            },
        )

    def actor(self, spec: EnvironmentSpec, seed: int) -> EpisodeActor:
        """Build an untrained actor for a spec: Gaussian for continuous actions, categorical for discrete ones."""
        return EpisodeActor(spec, self, seed, CategoricalActor if spec.action.is_discrete else GaussianActor)

    @override
    def loop(self) -> type[EpisodicTraining]:
        return EpisodicTraining

    def player(self, environment: gymnasium.Env[Any, Any], learner: Any, seed: int) -> Player:
        """Return an object that runs training episodes of the learner's policy; `group` successive ones have one seed."""
        return Plays(environment, learner.policy, seed, self.group)


@dataclass(frozen=True)
class ClippedSettings(EpisodeSettings):
    """Settings common to learners from whole episodes with PPO's clipped loss: clip limits, passes and minibatches."""

    clip_low: float = 0.2
    """Probability ratios pi/pi_old below 1 - clip_low are clipped; above 0."""
    clip_high: float = 0.28
    """Probability ratios pi/pi_old above 1 + clip_high are clipped; above 0."""
    epochs: int = 4
    """Passes of each update over its episodes."""
    batch_size: int = 512
    """Steps of one gradient step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = {name: (getattr(self, name) > 0, "above 0") for name in ("clip_low", "clip_high")}
        counts = {name: (getattr(self, name) >= 1, "1 or more") for name in ("epochs", "batch_size")}
        require_allowed(self, positive | counts)
