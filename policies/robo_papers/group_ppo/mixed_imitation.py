"""Imitation of demonstrations in the middle of reinforcement learning: always, on tasks that fail, or by a learned weight.

ReLIFT: Ma et al. 2025, arXiv:2506.07527. AMFT: He et al. 2025, arXiv:2508.06944. Written from their descriptions. E episodes,
B steps in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from typing_extensions import override

from robo_policies.learners.episodic import Advantages, EpisodeActor, Figures, Term
from robo_rl.errors import InvalidSetting
from robo_rl.types import Episode, StateDict

IMITATIONS = ("always", "failed", "learned")
ROWS = 256
"""Steps of the loss."""
META_RATE = 0.3
"""Step of the learned weight's logit for a cosine of 1."""


class MixedImitation(Term):
    """Demonstrations, and the weight of cloning them beside the learner's own loss."""

    def __init__(self, actor: EpisodeActor, weight: float, kind: str, group: int) -> None:
        """weight: of the loss, and the largest of a learned one; kind: of IMITATIONS; group: episodes of one."""
        self._actor, self._most, self._kind, self._group = actor, weight, kind, group
        self.logit = 0.0
        """learned: weight / largest weight = sigmoid(logit)."""
        self.share = 1.0 if kind == "always" else 0.0
        """Share of the weight that counts now."""
        self.lengths = np.zeros(0, np.int64)
        """Steps of each demonstration."""
        self._rows: tuple[Tensor, Tensor] | None = None
        self._chosen = np.zeros(0, np.int64)

    @override
    def begin(self, demonstrations: Sequence[Episode]) -> None:
        """Take the demonstrations, as the encoder sees them now."""
        kept = [each for each in demonstrations if len(each)]
        features, actions = self._actor.inputs(kept)
        self._rows, self.lengths = (features.detach(), actions), np.array([len(each) for each in kept])
        self._chosen = np.arange(len(actions))

    @override
    def take(self, episodes: Sequence[Episode], advantages: Advantages) -> Figures:
        return {"imitation": self.weigh(episodes, advantages)}

    @property
    @override
    def counts(self) -> bool:
        return self.share > 0

    def weigh(self, episodes: Sequence[Episode], advantages: Advantages) -> float:
        """Choose demonstrations and weight for the next update, given its episodes; return the weight."""
        if self._rows is None:
            fix = "set demonstrations.episodes or demonstrations.dataset, or imitation 0"
            raise InvalidSetting("There is nothing to imitate.", got="no demonstrations", fix=fix)
        if self._kind == "failed":
            self._take_near_failures(episodes)
        elif self._kind == "learned":
            self.logit += META_RATE * self.agreement(episodes, advantages)
            self.share = 1.0 / (1.0 + float(np.exp(-self.logit)))
        return self._most * self.share

    def _take_near_failures(self, episodes: Sequence[Episode]) -> None:
        """Take the demonstration whose beginning is nearest to each group's that failed, weighted by their share."""
        size = self._group
        groups = [episodes[first : first + size] for first in range(0, len(episodes), size)]
        failed = [group[0] for group in groups if is_failure(group)]
        self.share = len(failed) / len(groups)
        if not failed or self._rows is None:
            return
        begins = np.cumsum(self.lengths) - self.lengths
        starts = self._rows[0][torch.from_numpy(begins)]
        firsts = torch.stack([self._actor.features(each)[0] for each in failed])
        nearest = np.unique(torch.cdist(firsts, starts).argmin(1).cpu().numpy())
        self._chosen = np.concatenate([np.arange(begins[each], begins[each] + self.lengths[each]) for each in nearest])

    def agreement(self, episodes: Sequence[Episode], advantages: Advantages) -> float:
        """Return the cosine between the gradients of both losses, by which a larger weight would have served these episodes.

        The derivative of the reinforcement's loss by the weight of an imitation step before it is minus the product of the
        two gradients. 0 without advantages, which say nothing.
        """
        if not advantages.any() or self._rows is None:
            return 0.0
        features, actions = self._actor.inputs(episodes)
        wanted = torch.from_numpy(np.asarray(advantages, np.float32)).to(features.device)
        losses = (-(wanted * self._actor.log_densities(features, actions)).mean(), self._surprise())
        parameters = [*self._actor.network.parameters()]
        flat = [
            torch.cat([each.reshape(-1) for each in torch.autograd.grad(loss, parameters, materialize_grads=True)])
            for loss in losses
        ]
        return float(cosine_similarity(flat[0], flat[1], dim=0).cpu())

    @override
    def loss(self, features: Tensor, actions: Tensor, log_densities: Tensor) -> Tensor:
        return self.cloning()

    def cloning(self) -> Tensor:
        """Return share * weight * mean -log pi(a|s) over random steps of the chosen demonstrations; 0 for a share of 0."""
        if not self.share or self._rows is None:
            return torch.zeros((), device=self._actor.parts.device)
        return self.share * self._most * self._surprise()

    def _surprise(self) -> Tensor:
        assert self._rows is not None
        rows = torch.from_numpy(self._chosen[self._actor.random.integers(len(self._chosen), size=ROWS)])
        return -self._actor.log_densities(self._rows[0][rows], self._rows[1][rows]).mean()

    @override
    def state_dict(self) -> StateDict:
        rows = () if self._rows is None else tuple(each.cpu().numpy() for each in self._rows)
        return {"logit": self.logit, "share": self.share, "lengths": self.lengths, "chosen": self._chosen, "rows": rows}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        own: Any = state
        self.logit, self.share = float(own["logit"]), float(own["share"])
        self.lengths, self._chosen = np.array(own["lengths"]), np.array(own["chosen"])
        device = self._actor.parts.device
        rows = [torch.as_tensor(np.array(each)).to(device) for each in own["rows"]]
        self._rows = (rows[0], rows[1]) if rows else None


def is_failure(group: Sequence[Episode]) -> bool:
    """Return True if no episode of a group succeeded; of tasks that know no success, if all have the same return."""
    outcomes = [each.success for each in group]
    if any(each is not None for each in outcomes):
        return not any(outcomes)
    return bool(np.ptp([each.undiscounted_return for each in group]) < 1e-6)
