"""Settings of a fit of the embedded model."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.errors import require_allowed


@dataclass(frozen=True)
class EmbeddedConfig:
    """How the embedded model is fitted; measured on the arm tasks."""

    see_steps: int = 1600
    """Updates of the picture encoder."""
    see_lr: float = 5e-3
    """Largest learning rate of Adam for it, one cycle."""
    see_batch: int = 32
    """Pictures of one of these updates."""
    read_steps: int = 2000
    """Updates of the heads, which read sentences; picture encoder frozen."""
    lr: float = 2e-3
    """Largest learning rate of AdamW for both, one cycle."""
    batch: int = 256
    """Pictures of one of these updates."""
    check_every: int = 200
    """Updates of the heads after which they are measured; those are kept that ordered held-out pictures best."""
    held_out: float = 0.15
    """Share of the pictures that is measured on, whole scenes."""
    seed: int = 0
    """Of weights and batches."""

    def __post_init__(self) -> None:
        counts = ("see_steps", "see_batch", "read_steps", "batch", "check_every")
        least = {name: (getattr(self, name) >= 1, "1 or more") for name in counts}
        rates = {name: (getattr(self, name) > 0, "above 0") for name in ("see_lr", "lr")}
        require_allowed(self, least | rates | {"held_out": (0 < self.held_out < 1, "between 0 and 1, both excluded")})
