"""PPO from groups of episodes that begin in one state, with a choice of advantages (docs/learners/group-ppo.md).

The advantages are classes of `group_advantages` and files beside it: a further one is a class, and its name in KINDS.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.episodic import ClippedConfig, ClippedLearner, EpisodicTraining
from robo_policies.learners.group_advantages import Advantages, Anchor, Credit, Critic, Graph, Group, Sets
from robo_policies.learners.macro_critic import Macro
from robo_policies.learners.mixed_imitation import IMITATIONS, MixedImitation
from robo_policies.learners.provers import Prover, ProverTraining
from robo_policies.learners.self_imitation import SelfImitation
from robo_policies.learners.step_credit import Floats
from robo_rl.environments.starts import BranchingEnv
from robo_rl.errors import require_allowed
from robo_rl.protocols.components import Stateful
from robo_rl.protocols.contract import EPISODES, Feature, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, Metrics, StateDict

KINDS: dict[str, type[Advantages]] = {
    "group": Group,
    "anchor": Anchor,
    "graph": Graph,
    "credit": Credit,
    "critic": Critic,
    "macro": Macro,
    "prover": Prover,
    "set": Sets,
}
"""By the name of the setting `advantages`."""


@dataclass(frozen=True)
class GroupPPOConfig(ClippedConfig):
    """Settings of PPO from groups of episodes."""

    needs = Needs((EPISODES,), frozenset({Feature.CONTINUOUS, Feature.DISCRETE}), {Feature.REWARD: "leave reward out"})
    takes_demonstrations = True

    advantages: str = "group"
    """group, anchor, graph, credit, critic, macro, prover or set."""
    episodes: int = 32
    """Episodes between two updates."""
    group: int = 8
    """Of these, episodes that begin in the same state; divides `episodes`."""
    resolution: float = 1.0
    """anchor, graph, set: numbers of a state are rounded to multiples of it, in the units of the observation."""
    signature: tuple[str, ...] = ()
    """set: entries of the observation whose visited places, as a set, tell episodes apart; empty for all."""
    step_weight: float = 1.0
    """anchor, prover: weight of the step advantage beside that of the episode."""
    gae_lambda: float = 0.95
    """critic, set: weight of the advantage estimate that looks one step further."""
    critic_lr: float = 1e-3
    """critic, credit, macro, prover, set: learning rate of values and contributions."""
    macro_steps: int = 4
    """macro: steps of a stretch, which is one action of the upper level."""
    prover_tries: int = 4
    """prover: tries of which one must succeed."""
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
    """Share of its return's size, at most, that an episode loses for the share of its group that takes the same actions."""
    self_imitation: float = 0.0
    """Weight of cloning its own best episodes so far."""
    kept_episodes: int = 32
    """self_imitation: episodes that are kept."""
    self_imitation_rise: int = 0
    """self_imitation: updates in which its weight rises from 0."""
    imitation: float = 0.0
    """Weight of cloning the demonstrations also after the first episode."""
    imitates: str = "always"
    """imitation: always, failed (demonstrations near tasks that no episode of a group solved) or learned (its weight)."""
    reference_weight: float = 0.0
    """Weight of the divergence from the policy before the first episode, the clone."""
    shuffles: bool = False
    """A control: advantages are permuted within each episode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = ("resolution", "critic_lr", "largest_return", "initial_std")
        allowed = {name: (getattr(self, name) > 0, "above 0") for name in positive}
        allowed |= {
            name: (getattr(self, name) >= 1, "1 or more")
            for name in ("sets", "window", "kept_episodes", "macro_steps", "prover_tries")
        }
        allowed |= {
            "clone_updates": (self.clone_updates >= 0, "0 or more"),
            "self_imitation": (0.0 <= self.self_imitation < np.inf, "0 or more"),
            "self_imitation_rise": (self.self_imitation_rise >= 0, "0 or more"),
            "imitation": (0.0 <= self.imitation < np.inf, "0 or more"),
            "imitates": (self.imitates in IMITATIONS, ", ".join(IMITATIONS)),
            "reference_weight": (0.0 <= self.reference_weight < np.inf, "0 or more"),
            "gae_lambda": (0 <= self.gae_lambda <= 1, "0 to 1"),
        }
        kind = KINDS.get(self.advantages)
        allowed["advantages"] = (kind is not None, ", ".join(KINDS))
        least = 1 if kind is None else kind.least_group
        allowed["group"] = (self.group >= least, f"{least} or more with advantages {self.advantages}")
        fits = self.advantages != "set" or 2 <= self.set_size < self.group
        allowed["variety"] = (0.0 <= self.variety <= 1.0, "0 to 1")
        allowed |= {"set_size": (fits, "2 or more, below `group`"), "step_weight": (self.step_weight >= 0, "0 or more")}
        require_allowed(self, allowed)

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> GroupPPO:
        return GroupPPO(spec, self, seed)

    @override
    def loop(self) -> type[EpisodicTraining]:
        return LOOPS.get(self.advantages, EpisodicTraining)


class GroupPPO(ClippedLearner):
    """Learns from groups of episodes."""

    def __init__(self, spec: EnvironmentSpec, config: GroupPPOConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self.config = config
        self.advantages: Advantages = KINDS[config.advantages](self)
        self.best = SelfImitation(self, config.self_imitation, config.kept_episodes) if config.self_imitation else None
        self.mixed = MixedImitation(self, config.imitation, config.imitates) if config.imitation else None
        self.reference = self.parts.add_target("reference", self.actor) if config.reference_weight else None

    @override
    def prepare(self, demonstrations: Sequence[Episode]) -> Metrics:
        found = self.clone(demonstrations, self.config.clone_updates, self.config.initial_std)
        if self.reference is not None:
            self.reference.load_state_dict(self.actor.state_dict())
        if self.mixed is not None:
            self.mixed.take(demonstrations)
        self.advantages.begin()
        return found

    @override
    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        config = self.config
        returns = np.array([each.undiscounted_return for each in episodes])
        figures: dict[str, float | Tensor] = {
            "return": float(returns.mean()),
            "useless_groups": float(np.mean([np.ptp(each) < 1e-6 for each in returns.reshape(-1, config.group)])),
        }
        if config.variety:
            returns = returns - np.abs(returns) * np.minimum(config.variety, self.common(episodes))
        advantages, more = self.advantages.of(episodes, returns)
        if config.shuffles:
            parts = np.split(advantages, np.cumsum([len(each) for each in episodes])[:-1])
            advantages = np.concatenate([self.random.permutation(part) for part in parts])
        figures |= more
        if self.best is not None:
            self.best.remember(episodes)
            figures["kept"] = len(self.best.kept)
            self.best.share = min(1.0, (self.parts.updates + 1) / max(config.self_imitation_rise, 1))
        if self.mixed is not None:
            figures["imitation"] = self.mixed.weigh(episodes, advantages)
        is_clear = bool(advantages.any()) or (self.best is not None and bool(self.best.kept))
        is_clear |= self.mixed is not None and self.mixed.share > 0
        figures["ratio"] = self.climb(episodes, advantages) if is_clear else 1.0
        return self.parts.finish_update(figures)

    @override
    def other_loss(self, features: Tensor, actions: Tensor, log_densities: Tensor) -> Tensor:
        """Return the losses of imitation and of the divergence from the clone, e^d - 1 - d with d = log clone - log pi."""
        found = super().other_loss(features, actions, log_densities)
        found = sum((each.loss() for each in (self.best, self.mixed) if each is not None), found)
        if self.reference is None:
            return found
        with torch.no_grad():
            of_clone = self.log_densities(features, actions, self.reference)
        away = (of_clone - log_densities).clamp(max=20.0)
        return found + self.config.reference_weight * (torch.exp(away) - 1.0 - away).mean()

    def common(self, episodes: Sequence[Episode]) -> Floats:
        """Return the share of each episode's group (E,) that takes its actions, itself included."""
        taken = [tuple(self.action_keys(each)) for each in episodes]
        groups = [taken[first : first + self.config.group] for first in range(0, len(taken), self.config.group)]
        return np.array([group.count(each) / len(group) for group in groups for each in group])

    def keys(self, episode: Episode, names: Sequence[str] = ()) -> list[Hashable]:
        """Return a key of the state before each step; names: entries that count, by default all that the policy reads."""
        chosen = names or self.parts.encoder.reads
        rows = [np.floor(episode.observations[name][:-1] / self.config.resolution + 0.5) for name in chosen]
        flat = np.concatenate([row.reshape(len(episode), -1) for row in rows], 1) + 0.0  # no -0.0, which has other bytes
        return [row.tobytes() for row in flat]

    def action_keys(self, episode: Episode) -> list[Hashable]:
        """Return a key of each action: itself, or its place in a grid of 0.25 if it is continuous."""
        is_discrete = self.parts.spec.action.is_discrete
        taken = episode.actions if is_discrete else np.floor(episode.actions / 0.25 + 0.5) + 0.0
        return [action.tobytes() for action in np.asarray(taken)]

    def features(self, episode: Episode) -> Tensor:
        """Return features (T + 1, F) of all observations of an episode."""
        encoder = self.parts.encoder
        seen = {name: episode.observations[name] for name in encoder.reads}
        with torch.no_grad():
            found: Tensor = encoder(encoder.tensors(encoder.stack(seen), seen, self.parts.device))
        return found

    @override
    def state_dict(self) -> StateDict:
        found = super().state_dict() | {"advantages": self.advantages.state_dict()}
        return found | {name: each.state_dict() for name, each in self._imitations().items()}

    def _imitations(self) -> dict[str, Stateful]:
        return {name: each for name, each in (("best", self.best), ("mixed", self.mixed)) if each is not None}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.advantages.load_state_dict(state["advantages"])
        for name, each in self._imitations().items():
            each.load_state_dict(state[name])


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


LOOPS: dict[str, type[EpisodicTraining]] = {"set": BranchingTraining, "prover": ProverTraining}
"""Of advantages that need episodes of their own."""
