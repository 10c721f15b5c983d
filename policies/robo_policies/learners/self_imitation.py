"""Self-imitation: a policy also clones its own best episodes so far.

Oh, Guo, Singh and Lee 2018, "Self-Imitation Learning", arXiv:1806.05635; kept whole and ranked by return, as in SPEAR. B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.parts import LearnerParts
from robo_rl.protocols.components import Stateful
from robo_rl.types import Array, Episode, StateDict

ROWS = 256
"""Steps of the loss."""


class Cloner(Protocol):
    """A learner that can clone."""

    parts: LearnerParts
    random: np.random.Generator

    def log_densities(self, features: Tensor, actions: Tensor) -> Tensor:
        """Return log pi(a|s), (B,)."""


@dataclass(frozen=True)
class Kept:
    """An episode that is remembered."""

    score: float
    seen: dict[str, Array]
    """Entries that the policy reads, (T, ...) each."""
    actions: Array


class SelfImitation(Stateful):
    """The best episodes of a learner, and the loss of cloning them."""

    def __init__(self, learner: Cloner, weight: float, count: int) -> None:
        """weight: of the loss; count: episodes that are kept."""
        self._learner, self._weight, self._count = learner, weight, count
        self.kept: list[Kept] = []
        self.share = 1.0
        """Of the weight that counts now."""
        self._worst = np.inf
        self._rows: tuple[Tensor, Tensor] | None = None

    def remember(self, episodes: Sequence[Episode]) -> None:
        """Keep the best of these and those before, the newest of equals; none is as bad as the worst return ever."""
        reads = self._learner.parts.encoder.reads
        self._worst = min(self._worst, *(each.undiscounted_return for each in episodes))
        new = [
            Kept(each.undiscounted_return, {name: each.observations[name][:-1] for name in reads}, each.actions)
            for each in episodes
        ]
        better = [each for each in (*reversed(new), *self.kept) if each.score > self._worst]
        self.kept = sorted(better, key=lambda each: -each.score)[: self._count]
        self._rows = None

    def loss(self) -> Tensor:
        """Return share * weight * mean -log pi(a|s) over random steps of the kept episodes, 0 without one."""
        parts = self._learner.parts
        if not self.kept:
            return torch.zeros((), device=parts.device)
        if self._rows is None:
            encoder = parts.encoder
            seen = {name: np.concatenate([each.seen[name] for each in self.kept]) for name in encoder.reads}
            with torch.no_grad():
                features = encoder(encoder.tensors(encoder.stack(seen), seen, parts.device))
            self._rows = features, torch.from_numpy(np.concatenate([each.actions for each in self.kept])).to(parts.device)
        features, actions = self._rows
        chosen = torch.from_numpy(self._learner.random.integers(len(actions), size=ROWS))
        return -self.share * self._weight * self._learner.log_densities(features[chosen], actions[chosen]).mean()

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
