"""Advantages of chunks: generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438) over the plans of episodes.

P plans, each a chunk that was made and begun; S denoising steps of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from typing_extensions import override

from robo_papers.dppo.actor import ChainActor
from robo_papers.dppo.chain import plan_steps
from robo_policies.learners.episodic import Figures, Rule
from robo_policies.learners.group_credit import standardised
from robo_policies.networks.actor_critic import Critics
from robo_rl.types import Episode

Floats = npt.NDArray[np.float64]
CRITIC_ROWS = 128
"""Plans of one gradient step of the critic."""


class PlanAdvantages(Rule):
    """Rule whose advantages are those of the chunks of an episode; all denoising steps of a chunk have the same."""

    def __init__(self, actor: ChainActor, settings: Any) -> None:
        """Make the rule; `settings` are those of the learner."""
        self._actor, self._settings = actor, settings
        parts = actor.parts
        self.critic = parts.add("critic", Critics(parts.networks, parts.encoder.size, 1), settings.critic_lr)

    @override
    def of(self, episodes: Sequence[Episode]) -> tuple[Floats, Figures]:
        """Return the advantages (P S,) of all denoising steps of the episodes' chunks, in order, and figures for the log.

        The critic then learns from the returns.
        """
        settings, found, targets, seen = self._settings, list[Floats](), list[Floats](), list[Tensor]()
        for each, steps in zip(episodes, plan_steps(episodes), strict=True):
            seen.append(self._actor.features(each)[steps])
            with torch.no_grad():
                values = self.critic(seen[-1]).reshape(-1).cpu().numpy().astype(np.float64)
            found.append(plan_advantages(each.rewards, steps, values, settings.discount, settings.gae_lambda))
            targets.append(found[-1] + values)
        loss = self._fit(torch.cat(seen), torch.from_numpy(np.concatenate(targets).astype(np.float32)))
        advantages = standardised(np.concatenate(found)).repeat(self._actor.chain.steps)
        returns = float(np.mean([each.undiscounted_return for each in episodes]))
        return advantages, {"return": returns, "critic_loss": loss}

    def _fit(self, features: Tensor, wanted: Tensor) -> Tensor:
        """Take some passes of the critic towards targets (P,); return the last loss."""
        loss, rows, wanted = torch.zeros(()), np.arange(len(wanted)), wanted.to(features.device)
        for _ in range(self._settings.epochs):
            self._actor.random.shuffle(rows)
            for part in np.array_split(rows, max(1, len(rows) // CRITIC_ROWS)):
                chosen = torch.from_numpy(part)
                loss = mse_loss(self.critic(features[chosen]).reshape(-1), wanted[chosen])
                self.critic.descend(loss)
        return loss.detach()


def plan_advantages(
    rewards: npt.NDArray[np.floating], steps: Sequence[int], values: Floats, discount: float, gae_lambda: float
) -> Floats:
    """Return the advantage (P,) of each chunk of an episode; no reward follows its end, a time limit included.

    Args:
        rewards: Reward (T,) of each environment step.
        steps: Numbers (P,) of the steps at which a chunk was begun, from 0.
        values: Values (P,) that the critic expects there.
        discount: Weight of a reward one environment step later.
        gae_lambda: Lambda of the estimate, for each chunk.
    """
    spans = np.diff([*steps, len(rewards)])
    found, later, following = np.zeros(len(steps)), 0.0, 0.0
    for plan in reversed(range(len(steps))):
        during = rewards[steps[plan] : steps[plan] + spans[plan]]
        weight = discount ** spans[plan]
        gained = float(np.dot(during, discount ** np.arange(len(during))))
        later = gained + weight * following - values[plan] + weight * gae_lambda * later
        found[plan], following = later, values[plan]
    return found
