"""Advantages of steps from progress: by how much a step raises another policy's chance of success (page.md).

That other policy is called the prover.

After Setlur et al. 2024, "Rewarding Progress: Scaling Automated Process Verifiers for LLM Reasoning", arXiv:2410.08146.

Shapes: T steps of an episode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from typing_extensions import override

from robo_papers.group_ppo.group_advantages import REMEMBERED, Advantages
from robo_policies.learners.episodic import EpisodeActor, Figures
from robo_policies.learners.group_credit import Floats, standardised
from robo_policies.learners.parts import ActorPolicy
from robo_policies.networks.actor_critic import Critics
from robo_rl.protocols.components import Policy
from robo_rl.protocols.planning import replan
from robo_rl.spec.environment import Observation
from robo_rl.training.episodic import Player, Plays
from robo_rl.types import Array, Episode, StateDict

PROVED = "prover_from"
"""Key in an episode's metadata: number of the step from which the prover acted."""


class Prover(Advantages):
    """Advantage of the episode in its group, plus what each step adds to the chance that the prover succeeds from there.

    The prover is a copy of the policy as it was before the first episode. It takes over the last episode of each group at a
    random step, and a network learns its chance of success from these endings.
    """

    least_group = 3

    def __init__(self, actor: EpisodeActor, settings: Any) -> None:
        super().__init__(actor, settings)
        parts = actor.parts
        self.network = parts.add_target("prover", actor.network)
        self.value = parts.add("prover_value", Critics(parts.networks, parts.encoder.size, 1), self.settings.critic_lr)
        self._past: deque[tuple[Tensor, Tensor]] = deque(maxlen=REMEMBERED)

    @property
    def policy(self) -> ActorPolicy:
        """The prover's policy."""
        return ActorPolicy(self.actor.parts, self.network)

    @override
    def begin(self) -> None:
        self.network.load_state_dict(self.actor.network.state_dict())

    @override
    def player(self, environment: gymnasium.Env[Any, Any], seed: int) -> Player:
        return ProverPlays(Plays(environment, self.actor.policy, seed, self.config.group), lambda: self.policy)

    @override
    def of(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, Figures]:
        proved = np.array([PROVED in each.metadata for each in episodes])
        loss = self.fit([each for each in episodes if PROVED in each.metadata])
        advantages = np.zeros(len(episodes))
        for span in self.spans(episodes):
            own = np.arange(span.start, span.stop)[~proved[span]]
            advantages[own] = standardised(returns[own])
        gains = [
            np.zeros(len(each)) if by_prover else self.gains(each) for each, by_prover in zip(episodes, proved, strict=True)
        ]
        own_steps = np.repeat(~proved, [len(each) for each in episodes])
        steps = np.concatenate(gains)
        steps[own_steps] = standardised(steps[own_steps])
        found = np.repeat(advantages, [len(each) for each in episodes]) + self.settings.step_weight * steps
        return found, {"prover_loss": loss, "prover_success": self._success()}

    def gains(self, episode: Episode) -> Floats:
        """Return by how much each step (T,) raises the chance that one of `prover_tries` tries of the prover succeeds."""
        with torch.no_grad():
            values = self.value(self.actor.features(episode)).reshape(-1).cpu().numpy().astype(np.float64)
        chances = 1.0 - (1.0 - np.clip(values, 0.0, 1.0)) ** self.settings.prover_tries
        chances[-1] = outcome(episode) if episode.terminated else chances[-2]  # a time limit says nothing
        return np.diff(chances)

    def fit(self, episodes: Sequence[Episode]) -> Tensor:
        """Fit the estimate of the prover's chance of success to the outcomes, in [0, 1], of episodes that it ended.

        episodes: new ones, which are added to the remembered ones. Returns the last loss, 0 if there is nothing to fit.
        """
        for each in episodes:
            features = self.actor.features(each)[int(each.metadata[PROVED]) : -1]
            self._past.append((features, torch.full((len(features),), outcome(each), device=features.device)))
        loss = torch.zeros(())
        if not self._past:
            return loss
        inputs, wanted = (torch.cat([pair[part] for pair in self._past]) for part in range(2))
        for _ in range(10 * self.config.epochs):
            rows = torch.from_numpy(self.actor.random.integers(len(wanted), size=min(256, len(wanted))))
            loss = mse_loss(self.value(inputs[rows]).reshape(-1), wanted[rows])
            self.value.descend(loss)
        return loss

    def _success(self) -> float:
        return float(np.mean([float(wanted[0].cpu()) for _, wanted in self._past])) if self._past else 0.0

    @override
    def state_dict(self) -> StateDict:
        return {"past": [[part.cpu().numpy() for part in pair] for pair in self._past]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        own: Any = state["past"]
        device = self.actor.parts.device
        self._past.clear()
        for features, wanted in own:
            self._past.append((torch.as_tensor(np.array(features)).to(device), torch.as_tensor(np.array(wanted)).to(device)))


def outcome(episode: Episode) -> float:
    """Return 1 for a success and 0 for a failure; the return clipped to [0, 1] if the environment tells neither."""
    return float(np.clip(episode.undiscounted_return, 0.0, 1.0)) if episode.success is None else float(episode.success)


class Handover:
    """Policy that acts as `first` for `step` steps, and as `second` from then on."""

    def __init__(self, first: Policy, second: Policy, step: int) -> None:
        self.environment_spec, self._first, self._second, self._left = first.environment_spec, first, second, step

    def reset(self) -> None:
        """Begin an episode."""
        self._first.reset()
        self._second.reset()

    def replan(self) -> None:
        """Let both policies drop the actions that they planned ahead."""
        replan(self._first)
        replan(self._second)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the action of the policy whose turn it is."""
        acting, self._left = self._first if self._left > 0 else self._second, self._left - 1
        return acting.act(observation, deterministic=deterministic)


class ProverPlays:
    """Player of episodes that hands the last episode of each group over to the prover.

    The step of the handover is drawn from the length of the episode before it.
    """

    def __init__(self, plays: Plays, prover: Callable[[], Policy]) -> None:
        self._plays, self._prover, self._steps = plays, prover, 1

    def play(self, number: int) -> Episode:
        """Play episode `number`, counted from 0, and return it; the prover ends it if it is the last one of its group."""
        plays = self._plays
        if (number + 1) % plays.group:
            episode = plays.play(number)
            self._steps = max(len(episode), 1)
            return episode
        step = int(np.random.default_rng([plays.seed, number]).integers(self._steps))
        episode = plays.play(number, Handover(plays.policy, self._prover(), step))
        return replace(episode, metadata={**episode.metadata, PROVED: min(step, len(episode) - 1)})
