"""Settings for fitting the embedded model, and its training by AdamW with a one-cycle learning rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from robo_rl.errors import require_allowed
from robo_rl.fitting import fit

Reads = Literal["words", "minilm"]
Sees = Literal["pixels", "efficientnet-lite0"]


@dataclass(frozen=True)
class EmbeddedConfig:
    """Settings for fitting the embedded model, a small image-text model: updates, learning rates, batches, held-out share.

    The defaults were measured on the arm tasks.
    """

    see_steps: int = 1600
    """Updates of the picture encoder."""
    see_lr: float = 5e-3
    """Largest learning rate of AdamW for the picture encoder, in one cycle."""
    see_batch: int = 32
    """Pictures per update of the picture encoder."""
    read_steps: int = 2000
    """Updates of the heads, which read sentences; the picture encoder is frozen."""
    lr: float = 2e-3
    """Largest learning rate of AdamW for the heads, in one cycle."""
    batch: int = 256
    """Pictures per update of the heads."""
    check_every: int = 200
    """Updates between two measurements of the heads; the heads that order held-out pictures best are kept."""
    held_out: float = 0.15
    """Share of the pictures that is held out for measurements, in whole scenes; between 0 and 1."""
    seed: int = 0
    """Seed of weights and batches."""
    reads: Reads = "words"
    """Reader of sentences: "words" learns the words of the captions and refuses others; "minilm" is the frozen text encoder
    all-MiniLM-L6-v2 (extra `towers`), which reads any words."""
    sees: Sees = "pixels"
    """First stage of the picture encoder: "pixels" learns convolutions; "efficientnet-lite0" uses feature maps of that frozen
    picture encoder (extra `towers`)."""

    def __post_init__(self) -> None:
        counts = ("see_steps", "see_batch", "read_steps", "batch", "check_every")
        least = {name: (getattr(self, name) >= 1, "1 or more") for name in counts}
        rates = {name: (getattr(self, name) > 0, "above 0") for name in ("see_lr", "lr")}
        require_allowed(self, least | rates | {"held_out": (0 < self.held_out < 1, "between 0 and 1, both excluded")})


Watch = Callable[[Sequence[int], str], Iterable[int]]
"""Function (steps, title) -> the same steps, which may show progress."""


class Descent(NamedTuple):
    """How a network is trained by AdamW with a one-cycle learning rate: title, largest learning rate, number of rows."""

    title: str
    """Name of the fit, for the progress display and errors."""
    steps: int
    batch: int
    lr: float
    """Largest learning rate of the cycle."""
    rows: int
    """Number of rows from which batches are drawn."""
    chance: torch.Generator


def descend(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    how: Descent,
    watch: Watch,
    check: Callable[[int], None] = lambda _: None,
) -> None:
    """Minimise the loss over randomly drawn rows; `check` is called with the number of each step, after it.

    loss: returns the loss of rows, given their numbers (B,).
    """
    optimizer = torch.optim.AdamW(network.parameters(), how.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, how.lr, how.steps, pct_start=0.15)

    def after(step: int) -> None:
        schedule.step()
        check(step)

    numbers = watch(range(how.steps), how.title)
    batches = (torch.randint(0, how.rows, (how.batch,), generator=how.chance) for _ in numbers)
    fit(network, batches, loss, optimizer, title=how.title, after=after)
