"""PPO from groups of episodes that begin in one state, with a choice of advantages (page.md).

The advantages are classes of `group_advantages`: a further one is a class, and its name in KINDS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_papers.group_ppo.group_advantages import Advantages, AdvantageSettings, Anchor, Critic, Graph, Group, Sets
from robo_papers.group_ppo.self_imitation import SelfImitation
from robo_papers.group_ppo.step_credit import action_keys
from robo_policies.learners.episodic import ClippedLearner, Cloning, EpisodeActor, Figures, Rule, Term
from robo_policies.learners.episodic_settings import ClippedSettings
from robo_policies.learners.group_credit import Floats
from robo_rl.errors import require_allowed
from robo_rl.protocols.contract import EPISODES, Feature, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.episodic import Player
from robo_rl.types import Episode, StateDict

KINDS: dict[str, type[Advantages]] = {
    "group": Group,
    "anchor": Anchor,
    "graph": Graph,
    "critic": Critic,
    "set": Sets,
}
"""Name of a kind in the setting `advantages.kind` -> its class."""


@dataclass(frozen=True)
class GroupPPOConfig(ClippedSettings):
    """Settings of PPO from groups of episodes that begin in one state (GRPO: Shao et al. 2024, arXiv:2402.03300; page.md).

    They choose the kind of advantages, cloning before the training, and further terms: variety, self-imitation, distance to the
    clone.
    """

    needs = Needs((EPISODES,), frozenset({Feature.CONTINUOUS, Feature.DISCRETE}), {Feature.REWARD: "leave reward out"})
    takes_demonstrations = True
    has_critics = True

    advantages: AdvantageSettings = AdvantageSettings()
    """Kind of advantages, and what it needs."""
    episodes: int = 32
    """Episodes between two updates."""
    group: int = 8
    """Number of episodes in a group, which begin in the same state; a divisor of `episodes`."""
    cloning: Cloning = Cloning()
    """Cloning of demonstrations before the first episode."""
    variety: float = 0.0
    """Largest share of its return's size that an episode loses if others of its group take the same actions."""
    self_imitation: float = 0.0
    """Weight of cloning the policy's own best episodes so far; 0 for none."""
    kept_episodes: int = 32
    """Only self_imitation: number of best episodes that are kept."""
    reference_weight: float = 0.0
    """Weight of the divergence from the policy before the first episode (the clone); 0 for none."""
    shuffles: bool = False
    """Permute advantages within each episode: a control condition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "kept_episodes": (self.kept_episodes >= 1, "1 or more"),
            "self_imitation": (0.0 <= self.self_imitation < np.inf, "0 or more"),
            "reference_weight": (0.0 <= self.reference_weight < np.inf, "0 or more"),
        }
        kind = KINDS.get(self.advantages.kind)
        allowed["advantages.kind"] = (kind is not None, ", ".join(KINDS))
        least = 1 if kind is None else kind.least_group
        allowed["group"] = (self.group >= least, f"{least} or more with advantages {self.advantages.kind}")
        fits = self.advantages.kind != "set" or 2 <= self.advantages.set_size < self.group
        allowed["variety"] = (0.0 <= self.variety <= 1.0, "0 to 1")
        allowed["advantages.set_size"] = (fits, "2 or more, below `group`")
        require_allowed(self, allowed)

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> ClippedLearner:
        actor = self.actor(spec, seed)
        rule, terms = GroupRule(actor, self, KINDS[self.advantages.kind](actor, self)), list[Term]()
        if self.self_imitation:
            terms.append(SelfImitation(actor, self.self_imitation, self.kept_episodes))
        if self.reference_weight:
            terms.append(NearClone(actor, self.reference_weight))
        return ClippedLearner(actor, self, rule, terms, self.cloning)

    @override
    def player(self, environment: gymnasium.Env[Any, Any], learner: ClippedLearner, seed: int) -> Player:
        assert isinstance(learner.rule, GroupRule)
        return learner.rule.kind.player(environment, seed)


class GroupRule(Rule):
    """Computes advantages of one kind from the returns of each group's episodes."""

    def __init__(self, actor: EpisodeActor, config: GroupPPOConfig, kind: Advantages) -> None:
        self._actor, self._config, self.kind = actor, config, kind

    @override
    def of(self, episodes: Sequence[Episode]) -> tuple[Floats, Figures]:
        config, returns = self._config, np.array([each.undiscounted_return for each in episodes])
        figures: Figures = {
            "return": float(returns.mean()),
            "useless_groups": float(np.mean([np.ptp(each) < 1e-6 for each in returns.reshape(-1, config.group)])),
        }
        if config.variety:
            returns = returns - np.abs(returns) * np.minimum(config.variety, self.common(episodes))
        advantages, more = self.kind.of(episodes, returns)
        if config.shuffles:
            parts = np.split(advantages, np.cumsum([len(each) for each in episodes])[:-1])
            advantages = np.concatenate([self._actor.random.permutation(part) for part in parts])
        return advantages, figures | more

    def common(self, episodes: Sequence[Episode]) -> Floats:
        """Return for each episode (E,) the share of its group that takes the same actions, itself included."""
        is_discrete = self._actor.parts.spec.action.is_discrete
        taken = [tuple(action_keys(each, is_discrete=is_discrete)) for each in episodes]
        groups = [taken[first : first + self._config.group] for first in range(0, len(taken), self._config.group)]
        return np.array([group.count(each) / len(group) for group in groups for each in group])

    @override
    def state_dict(self) -> StateDict:
        return self.kind.state_dict()

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.kind.load_state_dict(state)


class NearClone(Term):
    """Term of the loss that keeps the policy near the clone: the divergence e^d - 1 - d.

    d = log clone(a|s) - log pi(a|s).
    """

    def __init__(self, actor: EpisodeActor, weight: float) -> None:
        self._actor, self._weight = actor, weight
        self._clone = actor.parts.add_target("reference", actor.network)

    @override
    def begin(self, demonstrations: Sequence[Episode]) -> None:
        self._clone.load_state_dict(self._actor.network.state_dict())

    @override
    def loss(self, features: Tensor, actions: Tensor, log_densities: Tensor) -> Tensor:
        with torch.no_grad():
            of_clone = self._actor.log_densities(features, actions, self._clone)
        away = (of_clone - log_densities).clamp(max=20.0)
        return self._weight * (torch.exp(away) - 1.0 - away).mean()
