"""Beginnings of a learner's own episodes as tasks: an episode goes on from one of them.

After ExIt, Jiang et al. 2025, "Bootstrapping Task Spaces for Self-Improvement", arXiv:2509.04575: the tasks grow out of partial
histories that the training meets, and those from which the outcome is uncertain are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from robo_rl.environments.task_samplers import TaskSampler
from robo_rl.protocols.components import Stateful
from robo_rl.types import StateDict


@dataclass(frozen=True)
class History:
    """The state of an episode after some of its steps."""

    seed: int
    actions: tuple[Any, ...] = ()
    """Executed so far."""


class Histories(Stateful):
    """Slots of a sampler's tasks: the first is the task itself, the others beginnings of episodes; None while empty."""

    def __init__(self, sampler: TaskSampler, least_episodes: int) -> None:
        """least_episodes: of a slot before it may be replaced."""
        self._sampler, self._least = sampler, least_episodes
        self.slots: list[History | None] = [None] * sampler.count

    def offer(self, history: History, begun: int, random: np.random.Generator) -> None:
        """Keep the beginning of an episode up to a random step, in the slot whose outcome is most certain.

        history: the whole episode; begun: its steps before this learner went on.
        """
        if len(history.actions) - begun < 2:
            return
        stop = int(random.integers(begun + 1, len(history.actions)))
        free = [slot for slot in range(1, len(self.slots)) if self.slots[slot] is None]
        known = [slot for slot in range(1, len(self.slots)) if self._sampler.seen[slot] >= self._least]
        if not free and not known:
            return
        rates = self._sampler.success
        slot = free[0] if free else min(known, key=lambda each: rates[each] * (1.0 - rates[each]))
        self.slots[slot] = History(history.seed, history.actions[:stop])
        self._sampler.forget(slot)

    @override
    def state_dict(self) -> StateDict:
        return {"slots": [None if each is None else [each.seed, [*each.actions]] for each in self.slots]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        found: Sequence[Any] = state["slots"]
        self.slots = [None if each is None else History(int(each[0]), tuple(map(np.asarray, each[1]))) for each in found]
