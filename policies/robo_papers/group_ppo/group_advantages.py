"""Ways to divide the outcomes of a group's episodes among their steps, a class each, for PPO from groups (page.md).

E episodes, those of a group side by side; B steps in all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from typing_extensions import override

from robo_papers.group_ppo.branching import BranchingEnv
from robo_papers.group_ppo.step_credit import action_keys, anchored, merged, set_advantages, state_keys
from robo_policies.learners.episodic import EpisodeActor, Figures
from robo_policies.learners.group_credit import Floats, group_advantages, standardised
from robo_policies.networks.actor_critic import Critics
from robo_rl.errors import require_allowed
from robo_rl.protocols.components import Policy, Stateless
from robo_rl.training.advantages import episode_advantages
from robo_rl.training.episodic import Player, Plays
from robo_rl.types import Episode


@dataclass(frozen=True)
class AdvantageSettings:
    """Settings group `advantages` of PPO from groups: which kind of advantages, and what each kind needs."""

    kind: str = "group"
    """Kind of advantages: group, anchor, graph, critic or set."""
    resolution: float = 1.0
    """Only anchor, graph, set: numbers of a state are rounded to multiples of it, in the units of the observation."""
    signature: tuple[str, ...] = ()
    """Only set: names of the observation entries whose visited places tell episodes apart; empty for all."""
    step_weight: float = 1.0
    """Only anchor: weight of the step's advantage beside that of the episode."""
    gae_lambda: float = 0.95
    """Only critic, set: lambda of generalised advantage estimation, 0 to 1."""
    critic_lr: float = 1e-3
    """Only critic, set: learning rate of the critic."""
    set_size: int = 4
    """Only set: number of episodes in a set, fewer than `group`; the first episode of a group is in no set."""
    sets: int = 8
    """Only set: number of sets that are drawn from each group."""
    window: int = 5
    """Only set: number of steps after the common state that get the set's advantage; later steps get the critic's."""
    largest_return: float = 1.0
    """Only set: return that counts as 1; a return below 0 counts as 0."""

    def __post_init__(self) -> None:
        allowed = {name: (getattr(self, name) > 0, "above 0") for name in ("resolution", "critic_lr", "largest_return")}
        counts = ("sets", "window")
        allowed |= {name: (getattr(self, name) >= 1, "1 or more") for name in counts}
        allowed |= {"gae_lambda": (0 <= self.gae_lambda <= 1, "0 to 1"), "step_weight": (self.step_weight >= 0, "0 or more")}
        require_allowed(self, allowed, group="advantages")


class Advantages(Stateless, ABC):
    """Base class of advantages of steps, computed from groups of episodes."""

    least_group = 2
    """Smallest number of episodes in a group; 1 if no comparison within a group is needed."""

    def __init__(self, actor: EpisodeActor, settings: Any) -> None:
        """settings: GroupPPOConfig."""
        self.actor, self.config, self.settings = actor, settings, settings.advantages

    @abstractmethod
    def of(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, Figures]:
        """Return the advantages of all steps (B,), and figures for the log.

        returns: (E,) returns of the episodes, with changes by the settings, such as variety.
        """

    def player(self, environment: gymnasium.Env[Any, Any], seed: int) -> Player:
        """Return an object that plays the training episodes with this seed."""
        return Plays(environment, self.actor.policy, seed, self.config.group)

    def spans(self, episodes: Sequence[Episode]) -> list[slice]:
        """Return for each group the slice of its episodes."""
        group = self.config.group
        return [slice(first, first + group) for first in range(0, len(episodes), group)]

    def states(self, episodes: Sequence[Episode], names: Sequence[str] = ()) -> list[list[Hashable]]:
        """Return for each episode a key of each state; equal states have equal keys.

        names: entries of the observation that are compared, by default all that the policy reads.
        """
        chosen = names or self.actor.parts.encoder.reads
        return [state_keys(each, chosen, self.settings.resolution) for each in episodes]


class Group(Advantages):
    """Advantages that are equal for all steps of an episode: its return, standardised within its group (GRPO)."""

    @override
    def of(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, Figures]:
        return for_each_step(group_advantages(returns, self.config.group), episodes), {}


class Anchor(Advantages):
    """Advantages of GiGPO: that of the episode, plus one of the step.

    The step's is the return from its state on, standardised among all visits of this state in the group.
    """

    @override
    def of(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, Figures]:
        found = for_each_step(group_advantages(returns, self.config.group), episodes)
        states, spans = self.states(episodes), self.spans(episodes)
        rewards = [each.rewards.astype(np.float64) for each in episodes]
        steps = [anchored(states[span], rewards[span], self.config.discount) for span in spans]
        return found + self.settings.step_weight * np.concatenate(steps), {"single_states": shared_little(states, spans)}


class Graph(Advantages):
    """Advantages of SALT: the mean over the episodes of the group that take the same action in the same state."""

    @override
    def of(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, Figures]:
        states, spans = self.states(episodes), self.spans(episodes)
        is_discrete = self.actor.parts.spec.action.is_discrete
        acts = [action_keys(each, is_discrete=is_discrete) for each in episodes]
        taken = [[*zip(*pair, strict=True)] for pair in zip(states, acts, strict=True)]
        by_episode = group_advantages(returns, self.config.group)
        found = np.concatenate([merged(taken[span], by_episode[span]) for span in spans])
        return found, {"single_states": shared_little(states, spans)}


class Critic(Advantages):
    """Advantages by generalised advantage estimation with a learned critic."""

    least_group = 1

    def __init__(self, actor: EpisodeActor, settings: Any) -> None:
        super().__init__(actor, settings)
        parts = actor.parts
        self.critic = parts.add("critic", Critics(parts.networks, parts.encoder.size, 1), self.settings.critic_lr)

    @override
    def of(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, Figures]:
        estimates, loss = self.estimates(episodes)
        return standardised(estimates), {"critic_loss": loss}

    def estimates(self, episodes: Sequence[Episode]) -> tuple[Floats, Tensor]:
        """Return generalised advantage estimates (B,), and the loss of the critic, which then learns from the returns."""
        config, settings = self.config, self.settings
        found, targets = list[Floats](), list[Floats]()
        seen = [self.actor.features(each) for each in episodes]
        for each, features in zip(episodes, seen, strict=True):
            with torch.no_grad():
                values = self.critic(features).reshape(-1).cpu().numpy().astype(np.float64)
            rule = {"discount": config.discount, "gae_lambda": settings.gae_lambda, "terminated": each.terminated}
            found.append(episode_advantages(each.rewards.astype(np.float64), values, **rule))
            targets.append(found[-1] + values[:-1])
        inputs = torch.cat([features[:-1] for features in seen])
        wanted = torch.from_numpy(np.concatenate(targets).astype(np.float32)).to(inputs.device)
        return np.concatenate(found), self._fit(inputs, wanted)

    def _fit(self, features: Tensor, wanted: Tensor) -> Tensor:
        """Take some passes of the critic towards targets (B,); return the last loss."""
        loss, rows = torch.zeros(()), np.arange(len(wanted))
        for _ in range(self.config.epochs):
            self.actor.random.shuffle(rows)
            for part in np.array_split(rows, max(1, len(rows) // self.config.batch_size)):
                chosen = torch.from_numpy(part)
                loss = mse_loss(self.critic(features[chosen]).reshape(-1), wanted[chosen])
                self.critic.descend(loss)
        return loss


class Sets(Advantages):
    """Polychromic advantages: those of sets of episodes in the first steps after their common state, the critic's later.

    Both are scaled separately.
    """

    def __init__(self, actor: EpisodeActor, settings: Any) -> None:
        super().__init__(actor, settings)
        self.critic = Critic(actor, settings)

    @override
    def of(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, Figures]:
        config, settings, random = self.config, self.settings, self.actor.random
        estimates, loss = self.critic.estimates(episodes)
        found, lengths = standardised(estimates), [len(each) for each in episodes]
        by_episode, differs, variety = np.zeros(len(episodes)), np.zeros(len(episodes), np.bool_), list[float]()
        for first in range(0, len(episodes), config.group):
            span = slice(first + 1, first + config.group)  # the first one began elsewhere, and has the critic's
            visited = [frozenset(each) for each in self.states(episodes[span], settings.signature)]
            scores = np.clip(returns[span] / settings.largest_return, 0.0, 1.0)
            by_episode[span], diversity = set_advantages(scores, visited, settings.set_size, settings.sets, random)
            variety.append(diversity)
            differs[span] = bool(by_episode[span].any())  # sets that are worth the same leave the critic's
        scaled = standardised(by_episode[differs]) if differs.any() else by_episode[differs]
        begins = (np.cumsum(lengths) - lengths)[differs]
        for begin, length, value in zip(begins, np.array(lengths)[differs], scaled, strict=True):
            found[begin : begin + min(length, settings.window)] = value
        return found, {"critic_loss": loss, "diversity": float(np.mean(variety))}

    @override
    def player(self, environment: gymnasium.Env[Any, Any], seed: int) -> Player:
        return BranchingPlays(environment, self.actor.policy, seed, self.config.group)


class BranchingPlays:
    """Plays a group: the first episode begins as the task does, the others in one state of the first."""

    def __init__(self, environment: gymnasium.Env[Any, Any], policy: Policy, seed: int, group: int) -> None:
        self._branching = BranchingEnv(environment)
        self._plays = Plays(self._branching, policy, seed, group)

    def play(self, number: int) -> Episode:
        """Play episode `number`, counted from 0, and return it."""
        if number % self._plays.group:
            return self._plays.play(number)
        self._branching.branch = None
        first = self._plays.play(number)
        place = np.random.default_rng([self._plays.seed, number]).integers(len(first))
        self._branching.branch = (first, int(place))
        return first


def for_each_step(by_episode: Floats, episodes: Sequence[Episode]) -> Floats:
    """Repeat the values of episodes (E,) for each of their steps: (B,)."""
    return np.repeat(by_episode, [len(each) for each in episodes])


def shared_little(states: Sequence[Sequence[Hashable]], spans: Sequence[slice]) -> float:
    """Return the share of steps whose state no other step of its group visits, averaged over the groups."""
    return float(np.mean([single_share(states[span]) for span in spans]))


def single_share(states: Sequence[Sequence[Hashable]]) -> float:
    """Return the share of steps of a group whose state is visited only once, so that there is nothing to compare it with."""
    counts = Counter(key for each in states for key in each)
    return sum(count == 1 for count in counts.values()) / max(counts.total(), 1)
