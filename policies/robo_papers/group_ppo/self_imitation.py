"""Self-imitation: a policy also clones its own best episodes so far.

Oh, Guo, Singh and Lee 2018, "Self-Imitation Learning", arXiv:1806.05635; kept whole and ranked by return, as in SPEAR. B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.episodic import Advantages, EpisodeActor, Figures, Term
from robo_rl.types import Array, Episode, StateDict

ROWS = 256
"""Number of steps on which the loss is computed."""


@dataclass(frozen=True)
class Kept:
    """Episode that is kept for its high return, so that the policy imitates it."""

    score: float
    seen: dict[str, Array]
    """Observation entries that the policy reads, (T, ...) each."""
    actions: Array


class SelfImitation(Term):
    """Keeps the best episodes of a learner so far, and adds the loss of cloning them."""

    def __init__(self, actor: EpisodeActor, weight: float, count: int) -> None:
        """weight: of the loss; count: episodes that are kept."""
        self._actor, self._weight, self._count = actor, weight, count
        self.kept: list[Kept] = []
        self._worst = np.inf
        self._rows: tuple[Tensor, Tensor] | None = None

    @override
    def take(self, episodes: Sequence[Episode], advantages: Advantages) -> Figures:
        self.remember(episodes)
        return {"kept": len(self.kept)}

    @property
    @override
    def counts(self) -> bool:
        return bool(self.kept)

    def remember(self, episodes: Sequence[Episode]) -> None:
        """Keep the best of these episodes and those kept before, the newest of equals.

        An episode as bad as the worst return ever is never kept.
        """
        reads = self._actor.parts.encoder.reads
        self._worst = min(self._worst, *(each.undiscounted_return for each in episodes))
        new = [
            Kept(each.undiscounted_return, {name: each.observations[name][:-1] for name in reads}, each.actions)
            for each in episodes
        ]
        better = [each for each in (*reversed(new), *self.kept) if each.score > self._worst]
        self.kept = sorted(better, key=lambda each: -each.score)[: self._count]
        self._rows = None

    @override
    def loss(self, features: Tensor, actions: Tensor, log_densities: Tensor) -> Tensor:
        return self.cloning()

    def cloning(self) -> Tensor:
        """Return the loss of self-imitation, a scalar: weight * mean -log pi(a|s) over random steps of the kept episodes.

        It is 0 if no episode is kept.
        """
        parts = self._actor.parts
        if not self.kept:
            return torch.zeros((), device=parts.device)
        if self._rows is None:
            encoder = parts.encoder
            seen = {name: np.concatenate([each.seen[name] for each in self.kept]) for name in encoder.reads}
            with torch.no_grad():
                features = encoder(encoder.tensors(encoder.stack(seen), seen, parts.device))
            self._rows = features, torch.from_numpy(np.concatenate([each.actions for each in self.kept])).to(parts.device)
        features, actions = self._rows
        chosen = torch.from_numpy(self._actor.random.integers(len(actions), size=ROWS))
        return -self._weight * self._actor.log_densities(features[chosen], actions[chosen]).mean()

    @override
    def state_dict(self) -> StateDict:
        kept = [{"score": each.score, "seen": each.seen, "actions": each.actions} for each in self.kept]
        return {"worst": float(self._worst), "kept": kept}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._worst, self._rows = float(state["worst"]), None
        self.kept = [
            Kept(
                float(each["score"]),
                {name: np.asarray(value) for name, value in each["seen"].items()},
                np.asarray(each["actions"]),
            )
            for each in state["kept"]
        ]
