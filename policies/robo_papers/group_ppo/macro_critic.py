"""Advantages of stretches of steps from an off-policy critic above the policy (page.md).

After Zhou et al. 2024, "ArCHer: Training Language Model Agents via Hierarchical Multi-Turn RL", arXiv:2402.19446. A stretch of
k steps is one action of the upper level. N stretches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss, pad
from typing_extensions import override

from robo_papers.group_ppo.group_advantages import REMEMBERED, Advantages, pairs_of
from robo_policies.learners.episodic import EpisodeActor, Figures
from robo_policies.learners.group_credit import Floats, standardised
from robo_policies.networks.actor_critic import Critics
from robo_rl.types import Episode, StateDict

TRACKING = 0.1
"""Share by which target values follow in each critic step."""
NAMES = ("features", "actions", "reward", "following", "factor")


@dataclass(frozen=True)
class Stretches:
    """Stretches of an episode as actions of the upper level."""

    features: Tensor
    """(N, F) at their first states"""
    actions: Tensor
    """(N, k A), 0 after the end of an episode"""
    reward: Tensor
    """(N,) discounted sum of their rewards"""
    following: Tensor
    """(N, F) at the states after them"""
    factor: Tensor
    """(N,) discount of the value there, 0 after a termination"""

    @staticmethod
    def joined(parts: Sequence[Stretches]) -> Stretches:
        """Return all of them in one."""
        return Stretches(*(torch.cat([getattr(part, name) for part in parts]) for name in NAMES))


class Macro(Advantages):
    """Q of a stretch of steps less V of its first state, for all steps of it."""

    least_group = 1

    def __init__(self, actor: EpisodeActor, settings: Any) -> None:
        super().__init__(actor, settings)
        parts, settings = actor.parts, self.settings
        wide = parts.encoder.size + settings.macro_steps * parts.spec.action.size
        self.q = [parts.add(f"macro_q{each}", Critics(parts.networks, wide, 1), settings.critic_lr) for each in range(2)]
        self.q_targets = [parts.add_target(f"macro_q{each}_target", one) for each, one in enumerate(self.q)]
        self.v = parts.add("macro_v", Critics(parts.networks, parts.encoder.size, 1), settings.critic_lr)
        self.v_target = parts.add_target("macro_v_target", self.v)
        self._past: deque[Stretches] = deque(maxlen=REMEMBERED)

    @override
    def of(self, episodes: Sequence[Episode], returns: Floats) -> tuple[Floats, Figures]:
        new = [self.stretches(each) for each in episodes]
        self._past.extend(new)
        everything, newest, parts = Stretches.joined([*self._past]), Stretches.joined(new), self.actor.parts
        loss = torch.zeros(())
        for _ in range(10 * self.config.epochs):
            loss = self.descend(self._drawn(everything), self._drawn(newest))
            for target, online in zip((*self.q_targets, self.v_target), (*self.q, self.v), strict=True):
                parts.track(target, online, TRACKING)
        with torch.no_grad():
            worth = value_of(self.q, newest.features, newest.actions) - self.v(newest.features).reshape(-1)
        lengths = [end - begin for each in episodes for begin, end in self._spans(len(each))]
        found = np.repeat(worth.cpu().numpy().astype(np.float64), lengths)
        return standardised(found), {"macro_loss": loss}

    def descend(self, replayed: Stretches, newest: Stretches) -> Tensor:
        """Take a step of both levels of values; return the loss of the first Q.

        Q learns from all remembered stretches; V from the newest alone, whose actions are those of the present policy.
        """
        with torch.no_grad():
            wanted = replayed.reward + replayed.factor * self.v_target(replayed.following).reshape(-1)
            of_newest = value_of(self.q_targets, newest.features, newest.actions)
        inputs = torch.cat([replayed.features, replayed.actions], 1)
        losses = [mse_loss(q(inputs).reshape(-1), wanted) for q in self.q]
        for number, loss in enumerate(losses):
            self.q[number].descend(loss)
        self.v.descend(mse_loss(self.v(newest.features).reshape(-1), of_newest))
        return losses[0]

    def stretches(self, episode: Episode) -> Stretches:
        """Return the stretches of an episode, the last one shorter if it must be."""
        features, length, discount = self.actor.features(episode), self.settings.macro_steps, self.config.discount
        taken = pairs_of(self.actor, episode)[:, features.shape[1] :]
        spans = self._spans(len(episode))
        begins, ends = np.array(spans).T
        rows = [pad(taken[begin:end], (0, 0, 0, length - (end - begin))).reshape(-1) for begin, end in spans]
        weights = discount ** np.arange(length)
        rewards = [float(episode.rewards[begin:end] @ weights[: end - begin]) for begin, end in spans]
        factors = discount ** (ends - begins) * np.where((ends == len(episode)) & episode.terminated, 0.0, 1.0)
        numbers = [torch.tensor(np.asarray(each), dtype=features.dtype, device=features.device) for each in (rewards, factors)]
        return Stretches(features[begins], torch.stack(rows), numbers[0], features[ends], numbers[1])

    def _spans(self, steps: int) -> list[tuple[int, int]]:
        """Return the first step of each stretch, and the one after its last."""
        length = self.settings.macro_steps
        return [(begin, min(begin + length, steps)) for begin in range(0, steps, length)]

    def _drawn(self, stretches: Stretches) -> Stretches:
        count = len(stretches.reward)
        rows = torch.from_numpy(self.actor.random.integers(count, size=min(256, count)))
        return Stretches(*(getattr(stretches, name)[rows] for name in NAMES))

    @override
    def state_dict(self) -> StateDict:
        return {"past": [{name: getattr(each, name).cpu().numpy() for name in NAMES} for each in self._past]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        own, device = state["past"], self.actor.parts.device
        self._past.clear()
        self._past.extend(Stretches(*(torch.as_tensor(np.array(each[name])).to(device) for name in NAMES)) for each in own)


def value_of(critics: Sequence[torch.nn.Module], features: Tensor, actions: Tensor) -> Tensor:
    """Return the least of the critics' values (N,)."""
    inputs = torch.cat([features, actions], 1)
    return torch.stack([critic(inputs).reshape(-1) for critic in critics]).min(0).values
