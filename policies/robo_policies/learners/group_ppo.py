"""PPO from groups of episodes that begin in one state, with a choice of advantages (docs/learners/group-ppo.md).

group       the standardised return of the episode among its group, for all steps (GRPO)
anchor      that, and the return from a state among all visits of it in the group (GiGPO)
graph       that of the episodes which take a step, on average (SALT)
credit      the sum of a learned contribution of each step from there on, which sums to the return (SPA)
critic      generalised advantage estimates of a learned value: needs no group
set         the value of sets of episodes, by success and variety, from a state in the middle (polychromic PPO)
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss, one_hot
from typing_extensions import override

from robo_policies.learners.episodic import ClippedConfig, ClippedLearner, EpisodicTraining
from robo_policies.learners.step_credit import (
    Floats,
    anchored,
    generalised,
    group_advantages,
    merged,
    set_advantages,
    standardised,
)
from robo_rl.environments.starts import BranchingEnv
from robo_rl.errors import require_allowed
from robo_rl.extras import returns_to_go
from robo_rl.protocols.contract import EPISODES, Feature, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, Metrics, StateDict

Advantages = Literal["group", "anchor", "graph", "credit", "critic", "set"]
REMEMBERED = 256
"""Newest episodes that contributions are fitted to."""


@dataclass(frozen=True)
class GroupPPOConfig(ClippedConfig):
    """Settings of PPO from groups of episodes."""

    needs = Needs((EPISODES,), frozenset({Feature.CONTINUOUS, Feature.DISCRETE}), {Feature.REWARD: "leave reward out"})
    takes_demonstrations = True

    advantages: Advantages = "group"
    """group, anchor, graph, credit, critic or set."""
    episodes: int = 32
    """Episodes between two updates."""
    group: int = 8
    """Of these, episodes that begin in the same state; divides `episodes`."""
    resolution: float = 1.0
    """anchor, graph, set: numbers of a state are rounded to multiples of it, in the units of the observation."""
    signature: tuple[str, ...] = ()
    """set: entries of the observation whose visited places, as a set, tell episodes apart; empty for all."""
    step_weight: float = 1.0
    """anchor: weight of the step advantage beside that of the episode."""
    gae_lambda: float = 0.95
    """critic, set: weight of the advantage estimate that looks one step further."""
    critic_lr: float = 1e-3
    """critic, credit, set: learning rate of values and contributions."""
    set_size: int = 4
    """set: episodes of a set, fewer than `group`, whose first episode is in none."""
    sets: int = 8
    """set: sets that are drawn of each group."""
    window: int = 5
    """set: steps after the common state that have the set's advantage; those after it have the critic's."""
    largest_return: float = 1.0
    """set: the return that counts as 1; less than 0 counts as 0."""
    clone_updates: int = 2000
    """Updates of behaviour cloning before the first episode, if there are demonstrations."""
    initial_std: float = 0.3
    """Deviation of continuous actions after cloning, to explore with."""
    variety: float = 0.0
    """Share of the return, at most, that an episode loses for the share of its group that takes the same actions."""
    shuffles: bool = False
    """A control: advantages are permuted within each episode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = ("resolution", "critic_lr", "largest_return", "initial_std")
        allowed = {name: (getattr(self, name) > 0, "above 0") for name in positive}
        allowed |= {name: (getattr(self, name) >= 1, "1 or more") for name in ("sets", "window")}
        allowed |= {
            "clone_updates": (self.clone_updates >= 0, "0 or more"),
            "gae_lambda": (0 <= self.gae_lambda <= 1, "0 to 1"),
        }
        needs_group = self.advantages not in ("critic", "credit")
        allowed["group"] = (self.group >= 2 or not needs_group, f"2 or more with advantages {self.advantages}")
        fits = self.advantages != "set" or 2 <= self.set_size < self.group
        allowed["variety"] = (0.0 <= self.variety <= 1.0, "0 to 1")
        allowed |= {"set_size": (fits, "2 or more, below `group`"), "step_weight": (self.step_weight >= 0, "0 or more")}
        require_allowed(self, allowed)

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> GroupPPO:
        return GroupPPO(spec, self, seed)

    @override
    def loop(self) -> type[EpisodicTraining]:
        return BranchingTraining if self.advantages == "set" else EpisodicTraining


class GroupPPO(ClippedLearner):
    """Learns from groups of episodes."""

    def __init__(self, spec: EnvironmentSpec, config: GroupPPOConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self.config, parts = config, self.parts
        size, actions = parts.encoder.size, spec.action.size
        if config.advantages in ("critic", "set"):
            self.critic = parts.add("critic", parts.networks.critic(size, 1), config.critic_lr)
        if config.advantages == "credit":
            self.credit = parts.add("credit", parts.networks.critic(size + actions, 1), config.critic_lr)
        self._actions = actions if spec.action.is_discrete else 0
        self._past: deque[tuple[Tensor, float]] = deque(maxlen=REMEMBERED)

    @override
    def prepare(self, demonstrations: Sequence[Episode]) -> Metrics:
        return self.clone(demonstrations, self.config.clone_updates, self.config.initial_std)

    @override
    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        config = self.config
        returns = np.array([each.undiscounted_return for each in episodes])
        figures: dict[str, float | Tensor] = {
            "return": float(returns.mean()),
            "useless_groups": float(np.mean([np.ptp(each) < 1e-6 for each in returns.reshape(-1, config.group)])),
        }
        if config.variety:
            returns = returns * (1.0 - np.minimum(config.variety, self._common(episodes)))
        advantages, more = self.advantages(episodes, returns)
        if config.shuffles:
            parts = np.split(advantages, np.cumsum([len(each) for each in episodes])[:-1])
            advantages = np.concatenate([self._random.permutation(part) for part in parts])
        figures |= more
        figures["ratio"] = self.climb(episodes, advantages) if advantages.any() else 1.0
        return self.parts.finish_update(figures)

    def advantages(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, dict[str, float | Tensor]]:
        """Return the advantages of all steps (B,), and figures for the log; returns: (E,)."""
        kind, lengths = self.config.advantages, [len(each) for each in episodes]
        if kind == "critic":
            estimates, loss = self._estimates(episodes)
            return standardised(estimates), {"critic_loss": loss}
        if kind == "credit":
            credited, loss = self._credited(episodes, returns)
            return standardised(credited), {"credit_loss": loss}
        if kind == "set":
            return self._by_sets(episodes, returns)
        by_episode = group_advantages(returns, self.config.group)
        found = np.repeat(by_episode, lengths)
        if kind == "group":
            return found, {}
        states = [self.keys(each) for each in episodes]
        group = self.config.group
        spans = [slice(first, first + group) for first in range(0, len(episodes), group)]
        figures: dict[str, float | Tensor] = {"single_states": float(np.mean([single_share(states[span]) for span in spans]))}
        if kind == "anchor":
            rewards = [each.rewards.astype(np.float64) for each in episodes]
            steps = [anchored(states[span], rewards[span], self.config.discount) for span in spans]
            return found + self.config.step_weight * np.concatenate(steps), figures
        taken = [self._with_actions(keys, each) for keys, each in zip(states, episodes, strict=True)]
        return np.concatenate([merged(taken[span], by_episode[span]) for span in spans]), figures

    def keys(self, episode: Episode, names: Sequence[str] = ()) -> list[Hashable]:
        """Return a key of the state before each step; names: entries that count, by default all that the policy reads."""
        chosen = names or self.parts.encoder.reads
        rows = [np.floor(episode.observations[name][:-1] / self.config.resolution + 0.5) for name in chosen]
        flat = np.concatenate([row.reshape(len(episode), -1) for row in rows], 1) + 0.0  # no -0.0, which has other bytes
        return [row.tobytes() for row in flat]

    def _common(self, episodes: Sequence[Episode]) -> Floats:
        """Return the share of each episode's group (E,) that takes its actions, itself included."""
        taken = [tuple(key for _, key in self._with_actions([0] * len(each), each)) for each in episodes]
        groups = [taken[first : first + self.config.group] for first in range(0, len(taken), self.config.group)]
        return np.array([group.count(each) / len(group) for group in groups for each in group])

    def _with_actions(self, keys: Sequence[Hashable], episode: Episode) -> list[tuple[Hashable, bytes]]:
        taken = episode.actions if self._actions else np.floor(episode.actions / 0.25 + 0.5) + 0.0
        return [(key, action.tobytes()) for key, action in zip(keys, np.asarray(taken), strict=True)]

    def _estimates(self, episodes: Sequence[Episode]) -> tuple[Floats, Tensor]:
        """Return generalised advantage estimates (B,), and the loss of the critic, which then learns from the returns."""
        config, found, targets = self.config, list[Floats](), list[Floats]()
        seen = [self._features(each) for each in episodes]
        for each, features in zip(episodes, seen, strict=True):
            with torch.no_grad():
                values = self.critic(features).reshape(-1).cpu().numpy().astype(np.float64)
            rewards = each.rewards.astype(np.float64)
            found.append(generalised(rewards, values, config.discount, config.gae_lambda, terminated=each.terminated))
            targets.append(found[-1] + values[:-1])
        inputs = torch.cat([features[:-1] for features in seen])
        wanted = torch.from_numpy(np.concatenate(targets).astype(np.float32)).to(inputs.device)
        return np.concatenate(found), self._fit_critic(inputs, wanted)

    def _fit_critic(self, features: Tensor, wanted: Tensor) -> Tensor:
        """Take some passes of the critic towards targets (B,); return the last loss."""
        loss, rows = torch.zeros(()), np.arange(len(wanted))
        for _ in range(self.config.epochs):
            self._random.shuffle(rows)
            for part in np.array_split(rows, max(1, len(rows) // self.config.batch_size)):
                chosen = torch.from_numpy(part)
                loss = mse_loss(self.critic(features[chosen]).reshape(-1), wanted[chosen])
                self.parts.descend("critic", loss)
        return loss

    def _features(self, episode: Episode) -> Tensor:
        """Return features (T + 1, F) of all observations of an episode."""
        encoder = self.parts.encoder
        seen = {name: episode.observations[name] for name in encoder.reads}
        with torch.no_grad():
            found: Tensor = encoder(encoder.tensors(encoder.stack(seen), seen, self.parts.device))
        return found

    def _credited(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, Tensor]:
        """Return the sum of contributions from each step on (B,), and the loss of their fit to whole returns."""
        inputs = [self._pairs(each) for each in episodes]
        self._past.extend((pair, float(value)) for pair, value in zip(inputs, returns, strict=True))
        loss = torch.zeros(())
        for _ in range(4 * self.config.epochs):
            drawn = self._random.integers(len(self._past), size=min(32, len(self._past)))
            pairs = [self._past[number][0] for number in drawn]
            wanted = torch.tensor([self._past[number][1] for number in drawn], device=self.parts.device)
            owner = torch.from_numpy(np.repeat(np.arange(len(pairs)), [len(pair) for pair in pairs])).to(wanted.device)
            each_step = self.credit(torch.cat(pairs)).reshape(-1)
            loss = mse_loss(torch.zeros_like(wanted).index_add(0, owner, each_step), wanted)
            self.parts.descend("credit", loss)
        if np.ptp([value for _, value in self._past]) < 1e-6:
            return np.zeros(sum(map(len, inputs))), loss  # nothing differs yet: only noise would be scaled up
        with torch.no_grad():
            found = [self.credit(pair).reshape(-1).cpu().numpy().astype(np.float64) for pair in inputs]
        return np.concatenate([returns_to_go(each, self.config.discount) for each in found]), loss

    def _pairs(self, episode: Episode) -> Tensor:
        """Return features and actions (T, F + A), side by side."""
        features = self._features(episode)[:-1]
        actions = torch.from_numpy(np.asarray(episode.actions)).to(features.device)
        rows = one_hot(actions.long(), self._actions) if self._actions else actions
        return torch.cat([features, rows.to(features.dtype).reshape(len(features), -1)], 1)

    def _by_sets(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, dict[str, float | Tensor]]:
        """Return the critic's advantages, those of sets in the window after the common state; each to its own scale."""
        config = self.config
        estimates, loss = self._estimates(episodes)
        found, lengths = standardised(estimates), [len(each) for each in episodes]
        by_episode, differs, variety = np.zeros(len(episodes)), np.zeros(len(episodes), np.bool_), list[float]()
        for first in range(0, len(episodes), config.group):
            span = slice(first + 1, first + config.group)  # the first one began elsewhere, and has the critic's
            visited = [frozenset(self.keys(each, config.signature)) for each in episodes[span]]
            scores = np.clip(returns[span] / config.largest_return, 0.0, 1.0)
            by_episode[span], diversity = set_advantages(scores, visited, config.set_size, config.sets, self._random)
            variety.append(diversity)
            differs[span] = bool(by_episode[span].any())  # sets that are worth the same leave the critic's
        scaled = standardised(by_episode[differs]) if differs.any() else by_episode[differs]
        begins = (np.cumsum(lengths) - lengths)[differs]
        for begin, length, value in zip(begins, np.array(lengths)[differs], scaled, strict=True):
            found[begin : begin + min(length, config.window)] = value
        return found, {"critic_loss": loss, "diversity": float(np.mean(variety))}

    @override
    def state_dict(self) -> StateDict:
        past = {"pairs": [pair.cpu().numpy() for pair, _ in self._past], "returns": [value for _, value in self._past]}
        return super().state_dict() | {"group": {"random": self._random.bit_generator.state, "past": past}}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        own: Any = state["group"]
        self._random.bit_generator.state = own["random"]
        self._past.clear()
        for pair, value in zip(own["past"]["pairs"], own["past"]["returns"], strict=True):
            self._past.append((torch.as_tensor(np.array(pair)).to(self.parts.device), float(value)))


def single_share(states: Sequence[Sequence[Hashable]]) -> float:
    """Return the share of steps of a group whose state is visited once, so that it is compared with no other."""
    counts = Counter(key for each in states for key in each)
    return sum(count == 1 for count in counts.values()) / max(counts.total(), 1)


class BranchingTraining(EpisodicTraining):
    """Plays the first episode of a group from its beginning, and the others from one of the states in it."""

    def __init__(self, environment: gymnasium.Env[Any, Any], config: Any, *, steps: int, seed: int, **other: Any) -> None:
        self._branching = BranchingEnv(environment)
        super().__init__(self._branching, config, steps=steps, seed=seed, **other)

    @override
    def _play(self, number: int) -> Episode:
        if number % self.config.group:
            return super()._play(number)
        self._branching.branch = None
        first = super()._play(number)
        place = np.random.default_rng([self.seed, number]).integers(len(first))
        self._branching.branch = (first, int(place))
        return first
