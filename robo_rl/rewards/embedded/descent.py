"""A training by AdamW with one cycle of the learning rate, of either half of the embedded model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robo_rl.errors import NonFiniteUpdate

Watch = Callable[[Sequence[int], str], Iterable[int]]
"""Passes steps on one by one, and may show how far that got."""


class Descent(NamedTuple):
    """A training by AdamW with one cycle of the learning rate."""

    title: str
    steps: int
    batch: int
    lr: float
    """The largest."""
    rows: int
    """How many there are to draw from."""
    chance: torch.Generator


def descend(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    how: Descent,
    watch: Watch,
    check: Callable[[int], None] = lambda _: None,
) -> None:
    """Takes steps on the loss of rows that are drawn by chance, and says after each that it is done."""
    optimizer = torch.optim.AdamW(network.parameters(), how.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, how.lr, how.steps, pct_start=0.15)
    for step in watch(range(how.steps), how.title):
        optimizer.zero_grad()
        found = loss(torch.randint(0, how.rows, (how.batch,), generator=how.chance))
        if not torch.isfinite(found):
            raise NonFiniteUpdate("The loss is not finite.", got=f"{float(found)} in update {step} of {how.title!r}")
        found.backward()
        optimizer.step()
        schedule.step()
        check(step)
