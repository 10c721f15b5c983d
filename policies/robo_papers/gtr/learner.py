"""GTR: reinforcement learning with a corrector at each step.

Wei et al. 2025, "GTR: Guided Thought Reinforcement Prevents Thought Collapse in RL-based VLM Agent Training",
arXiv:2503.08525. The policy acts, a corrector names the action that it would have taken, and both are learned from:

    loss = -min(r A, clip(r, 1 - low, 1 + high) A) - w log pi(a*|s),   (s, a*) from all corrections so far

as in DAgger (Ross et al. 2011, arXiv:1011.0686), which has the second term alone. A is the return-to-go, standardised over the
batch. The corrector is the environment's scripted policy; it watches whole episodes and never acts.

Differs from the paper: its corrector rewrites the thought of a vision-language model and leaves the action alone. Here actions
themselves are corrected, and a corrector that is wrong in the same places is copied, unless the weight falls (`fades_over`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.episodic import Advantages, ClippedLearner, EpisodeActor, Figures, Rule, Term
from robo_policies.learners.episodic_settings import ClippedSettings
from robo_policies.learners.group_credit import Floats, standardised
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.extras import returns_to_go
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.training.episodic import Player
from robo_rl.types import Array, Episode, StateDict

CORRECTED = "corrected_actions"
"""Key of an episode's metadata: the actions (T, ...) that its corrector would have taken."""


@dataclass(frozen=True)
class GTRConfig(ClippedSettings):
    """Settings of GTR (Wei et al. 2025, arXiv:2503.08525): PPO from whole episodes, with a corrector's actions as labels.

    They set how many steps are corrected and remembered, and the weights of corrections and reward.
    """

    corrections: int = 64
    """Number of steps of a batch of episodes for which the corrector is asked, drawn at random; a person or a model is slow."""
    remembered: int = 10_000
    """Number of newest corrections that are learned from."""
    weight: float = 1.0
    """Weight w of the corrections in the loss, at the start."""
    fades_over: int = 0
    """Updates over which w falls to 0, for a corrector that is wrong in the same places again and again; 0 keeps w constant."""
    corrector_noise: float = 0.0
    """Noise on the corrector's actions, as in `robo-rl record --noise`, to try how its errors matter."""
    reward_weight: float = 1.0
    """Weight of the task's reward in the loss; 0 is DAgger."""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {name: (getattr(self, name) >= 1, "1 or more") for name in ("corrections", "remembered")}
        least = ("weight", "fades_over", "corrector_noise", "reward_weight")
        require_allowed(self, counts | {name: (getattr(self, name) >= 0, "0 or more") for name in least})

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> ClippedLearner:
        actor = self.actor(spec, seed)
        return ClippedLearner(actor, self, ReturnsToGo(self.discount, self.reward_weight), [Corrections(actor, self)])

    @override
    def player(self, environment: gymnasium.Env[Any, Any], learner: ClippedLearner, seed: int) -> Player:
        if not environment.has_wrapper_attr("scripted_policy"):
            raise InvalidSetting(
                f"{specification(environment).name} has no corrector of the policy.",
                got="no scripted policy",
                allowed="an environment with one, such as those of robo/ and tabular/",
            )
        corrector = environment.get_wrapper_attr("scripted_policy")(seed, noise=self.corrector_noise)
        return CorrectedPlays(super().player(environment, learner, seed), corrector)


class ReturnsToGo(Rule):
    """Rule whose advantages are the returns from each step on, standardised over the batch."""

    def __init__(self, discount: float, weight: float) -> None:
        self._discount, self._weight = discount, weight

    @override
    def of(self, episodes: Sequence[Episode]) -> tuple[Floats, Figures]:
        returns = np.concatenate([returns_to_go(each.rewards, self._discount) for each in episodes])
        return self._weight * standardised(returns), {}


class Corrections(Term):
    """Term of the loss that clones the corrector's actions, from all episodes so far."""

    def __init__(self, actor: EpisodeActor, config: GTRConfig) -> None:
        self._actor, self._config = actor, config
        self.kept: deque[tuple[dict[str, Array], Array]] = deque(maxlen=config.remembered)
        """Observation that the policy reads, and the corrector's action."""

    @property
    def weight(self) -> float:
        """Weight of the corrections in the loss at the present update."""
        fading = self._config.fades_over
        return self._config.weight * (max(0.0, 1.0 - self._actor.parts.updates / fading) if fading else 1.0)

    @property
    @override
    def counts(self) -> bool:
        return True

    @override
    def take(self, episodes: Sequence[Episode], advantages: Advantages) -> Figures:
        """Store the corrector's actions for some steps of the newest episodes; returns figures for the log."""
        places = [(each, step) for each in episodes for step in range(len(each))]
        names = self._actor.parts.encoder.reads
        for number in self._actor.random.permutation(len(places))[: self._config.corrections].tolist():
            episode, step = places[number]
            row = {name: episode.observations[name][step] for name in names}
            self.kept.append((row, episode.metadata[CORRECTED][step]))
        return {"corrections": float(len(self.kept)), "correction_weight": self.weight}

    @override
    def loss(self, features: Tensor, actions: Tensor, log_densities: Tensor) -> Tensor:
        parts = self._actor.parts
        if not self.weight:
            return torch.zeros((), device=parts.device)
        drawn = self._actor.random.integers(len(self.kept), size=self._config.batch_size).tolist()
        rows = [self.kept[number] for number in drawn]
        seen = {name: np.stack([row[name] for row, _ in rows]) for name in parts.encoder.reads}
        right = torch.from_numpy(np.stack([action for _, action in rows])).to(parts.device)
        corrected = parts.encoder(parts.encoder.tensors(parts.encoder.stack(seen), seen, parts.device))
        return -self.weight * self._actor.log_densities(corrected, right).mean()

    @override
    def state_dict(self) -> StateDict:
        rows = [row for row, _ in self.kept]
        if not rows:
            return {"observations": {}}
        seen = {name: np.stack([row[name] for row in rows]) for name in self._actor.parts.encoder.reads}
        return {"observations": seen, "actions": np.stack([action for _, action in self.kept])}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.kept.clear()
        for number, action in enumerate(state.get("actions", ())):
            row = {name: np.array(values[number]) for name, values in state["observations"].items()}
            self.kept.append((row, np.array(action)))


class CorrectedPlays:
    """Plays training episodes and asks the corrector for its action in each step."""

    def __init__(self, plays: Player, corrector: Policy) -> None:
        self._plays, self._corrector = plays, corrector

    def play(self, number: int) -> Episode:
        """Play episode `number` of the training, and store the corrector's actions in its metadata."""
        episode = self._plays.play(number)
        self._corrector.reset()
        actions = [
            self._corrector.act({name: values[step] for name, values in episode.observations.items()})
            for step in range(len(episode))
        ]
        return replace(episode, metadata={**episode.metadata, CORRECTED: actions})
