"""Learning from whole episodes: an actor, and a learner that maximises PPO's clipped surrogate.

Schulman et al. 2017, arXiv:1707.06347, eq. 7. The learner is made of a rule, which computes advantages, and of further terms of
the loss. E episodes, B steps in all of them, F features of an observation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_policies.learners.clipped_step import clipped_surrogate, probability_ratio
from robo_policies.learners.parts import ActorPolicy, LearnerParts
from robo_policies.networks.encoders import Observations
from robo_rl.errors import require_allowed
from robo_rl.protocols.components import Stateful, Stateless
from robo_rl.requirements import require_finite_data, require_same_networks
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, Metrics, StateDict

Advantages = npt.NDArray[np.floating]
"""Advantages (B,): how much better each action was than other actions in its state."""
Figures = dict[str, float | Tensor]
"""Name of a figure for the log -> its value, a number or a scalar tensor."""


class EpisodeActor(Stateful):
    """What a learner from whole episodes acts with and trains: encoder, policy network, optimiser and random generator."""

    def __init__(self, spec: EnvironmentSpec, settings: Any, seed: int, make: Callable[..., Any]) -> None:
        """Make the actor.

        make: returns an actor network for a NetworkFactory, a number of features and a number of action elements or choices.
        """
        self.parts = parts = LearnerParts(spec, settings, seed)
        self.network: Any = parts.add("actor", make(parts.networks, parts.encoder.size, spec.action.size), settings.lr)
        self.policy: ActorPolicy = parts.act_with(self.network)
        self.random = np.random.default_rng(seed)
        """Random generator of the order of minibatches and of all other random numbers of the learner."""

    def standardise(self, episodes: Sequence[Episode]) -> None:
        """Update the mean and deviation by which observations are standardised; episodes with NaN or infinity are skipped."""
        encoder = self.parts.encoder
        for each in episodes:
            stacked = encoder.stack({name: each.observations[name][:-1] for name in encoder.reads})
            if len(stacked) and np.isfinite(stacked).all():
                encoder.fit(torch.from_numpy(stacked))

    def inputs(self, episodes: Sequence[Episode]) -> tuple[Tensor, Tensor]:
        """Return features (B, F) and actions (B, ...) of all steps of episodes.

        Raises NonFiniteUpdate if an observation is NaN or infinite.
        """
        encoder, parts = self.parts.encoder, self.parts
        seen = {name: np.concatenate([each.observations[name][:-1] for each in episodes]) for name in encoder.reads}
        stacked = encoder.stack(seen)
        require_finite_data({"observations": stacked}, parts.updates, "episodes", columns=encoder.columns)
        found: Observations = encoder.tensors(stacked, seen, parts.device)
        actions = torch.from_numpy(np.concatenate([each.actions for each in episodes])).to(parts.device)
        return encoder(found), actions

    @torch.no_grad()
    def features(self, episode: Episode) -> Tensor:
        """Return features (T + 1, F) of all observations of an episode of T steps."""
        encoder = self.parts.encoder
        seen = {name: episode.observations[name] for name in encoder.reads}
        found: Tensor = encoder(encoder.tensors(encoder.stack(seen), seen, self.parts.device))
        return found

    def log_densities(self, features: Tensor, actions: Tensor, network: nn.Module | None = None) -> Tensor:
        """Return log pi(a|s) (B,) for features (B, F) and actions (B, ...); pi is the policy, or another `network` if given."""
        of: Any = network or self.network
        is_discrete, generator = self.parts.spec.action.is_discrete, self.parts.generator
        found: Tensor = -of.loss(features, actions) if is_discrete else of.log_density(features, actions, generator)
        return found

    def clone(self, demonstrations: Sequence[Episode], cloning: Cloning) -> Metrics:
        """Imitate recorded episodes by behaviour cloning, on batches of 256 random steps; returns metrics for the log.

        Afterwards continuous actions have the standard deviation `cloning.initial_std`.
        """
        if not cloning.updates:
            return {}
        features, actions = self.inputs([each for each in demonstrations if len(each)])
        loss = torch.zeros(())
        for _ in range(cloning.updates):
            rows = torch.from_numpy(self.random.integers(len(actions), size=256))
            loss = -self.log_densities(features[rows], actions[rows]).mean()
            self.network.descend(loss)
        if not self.parts.spec.action.is_discrete:
            with torch.no_grad():
                self.network.log_std.fill_(float(np.log(cloning.initial_std)))
        return self.parts.finish_update({"clone_loss": loss})

    @override
    def state_dict(self) -> StateDict:
        return self.parts.state_dict() | {"random": self.random.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.parts.load_state_dict(state)
        self.random.bit_generator.state = state["random"]


@dataclass(frozen=True)
class Cloning:
    """Settings group `cloning`: behaviour cloning of demonstrations before the first episode."""

    updates: int = 2000
    """Number of gradient steps, if there are demonstrations; 0 for no cloning."""
    initial_std: float = 0.3
    """Standard deviation of continuous actions after cloning, for exploration; actions lie in [-1, 1]."""

    def __post_init__(self) -> None:
        allowed = {"updates": (self.updates >= 0, "0 or more"), "initial_std": (self.initial_std > 0, "above 0")}
        require_allowed(self, allowed, group="cloning")


class LearnsFromEpisodes(Stateful, ABC):
    """Base class of learners that update their policy with whole episodes in which it acted, such as GRPO."""

    actor: EpisodeActor

    @property
    def policy(self) -> ActorPolicy:
        """The policy being trained."""
        return self.actor.policy

    def standardise(self, episodes: Sequence[Episode]) -> None:
        """Update the mean and deviation that standardise observations, with those of new episodes."""
        self.actor.standardise(episodes)

    def prepare(self, demonstrations: Sequence[Episode]) -> Metrics:
        """Learn from recorded episodes before the training begins, such as by cloning; returns metrics for the log."""
        return {}

    @abstractmethod
    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        """Update the policy with the newest episodes.

        Args:
            episodes: All episodes since the last update; episodes of a group, which begin in the same state, are adjacent.

        Returns:
            Metrics for the log, with names under train/.
        """


class Rule(Stateless):
    """Base class of rules for advantages: how much better than others each action of an episode was.

    A `ClippedLearner` is made with one.
    """

    @abstractmethod
    def of(self, episodes: Sequence[Episode]) -> tuple[Advantages, Figures]:
        """Return the advantages (B,) of all steps of the episodes, in order, and figures for the log."""


class Term(Stateless):
    """Base class of terms that `ClippedLearner` adds to its loss, such as a distance from the policy at the start."""

    def begin(self, demonstrations: Sequence[Episode]) -> None:
        """Prepare for the first episode; called once, after the policy was trained by cloning on the demonstrations."""

    def take(self, episodes: Sequence[Episode], advantages: Advantages) -> Figures:
        """Read the newest episodes and their advantages (B,) before an update with them; returns figures for the log.

        By default nothing is read, and there are no figures.
        """
        return {}

    @property
    def counts(self) -> bool:
        """True if the term needs an update of the policy even when all advantages are 0."""
        return False

    @abstractmethod
    def loss(self, features: Tensor, actions: Tensor, log_densities: Tensor) -> Tensor:
        """Return the value of the term, a scalar, on a minibatch.

        features: (B, F). actions: (B, ...). log_densities: log pi(a|s) (B,).
        """


class ClippedLearner(LearnsFromEpisodes):
    """Learner that maximises PPO's clipped surrogate over whole episodes; a rule, passed in, computes the advantages.

    Further terms, also passed in, are subtracted from the objective.
    """

    def __init__(
        self,
        actor: EpisodeActor,
        settings: Any,
        rule: Rule,
        terms: Sequence[Term] = (),
        cloning: Cloning = Cloning(updates=0),
    ) -> None:
        """Compose the learner.

        Args:
            actor: Actor that is trained.
            settings: Settings with `clip_low`, `clip_high`, `epochs` and `batch_size`.
            rule: Computes the advantages.
            terms: Further terms of the loss.
            cloning: Behaviour cloning before the first episode; none by default.
        """
        self.actor, self.rule, self.terms = actor, rule, [*terms]
        self._settings, self._cloning = settings, cloning

    @override
    def prepare(self, demonstrations: Sequence[Episode]) -> Metrics:
        found = self.actor.clone(demonstrations, self._cloning)
        for term in self.terms:
            term.begin(demonstrations)
        return found

    @override
    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        advantages, figures = self.rule.of(episodes)
        for term in self.terms:
            figures |= term.take(episodes, advantages)
        is_clear = bool(advantages.any()) or any(term.counts for term in self.terms)
        figures["ratio"] = self.climb(episodes, advantages) if is_clear else 1.0
        return self.actor.parts.finish_update(figures)

    def climb(self, episodes: Sequence[Episode], advantages: Advantages) -> Tensor:
        """Take `epochs` passes of gradient steps over the episodes.

        Returns:
            Mean probability ratio pi/pi_old of the last minibatch, a scalar.
        """
        actor, settings = self.actor, self._settings
        features, actions = actor.inputs(episodes)
        gains = torch.from_numpy(np.asarray(advantages, np.float32)).to(features.device)
        with torch.no_grad():
            old = actor.log_densities(features, actions)
        rows, ratio = np.arange(len(actions)), torch.ones(1)
        for _ in range(settings.epochs):
            actor.random.shuffle(rows)
            for part in np.array_split(rows, max(1, len(rows) // settings.batch_size)):
                chosen = torch.from_numpy(part)
                densities = actor.log_densities(features[chosen], actions[chosen])
                ratio = probability_ratio(densities, old[chosen])
                surrogate = clipped_surrogate(ratio, gains[chosen], settings.clip_low, settings.clip_high).mean()
                others = (term.loss(features[chosen], actions[chosen], densities) for term in self.terms)
                actor.network.descend(sum(others, -surrogate))
        return ratio.mean()

    @override
    def state_dict(self) -> StateDict:
        terms = {str(number): term.state_dict() for number, term in enumerate(self.terms)}
        return {"actor": self.actor.state_dict(), "rule": self.rule.state_dict(), "terms": terms}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; raises RunError for a state of an earlier version."""
        require_same_networks(", ".join(sorted(state)), "actor, rule, terms")
        self.actor.load_state_dict(state["actor"])
        self.rule.load_state_dict(state["rule"])
        for number, term in enumerate(self.terms):
            term.load_state_dict(state["terms"][str(number)])
