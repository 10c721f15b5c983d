"""Settings of `robo-rl fit-encoder`, in a module without torch, so that the command line describes them quickly."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.errors import require_allowed


@dataclass(frozen=True)
class EncoderFit:
    """Settings of `robo-rl fit-encoder`, which fits an encoder of pictures: number of steps, updates and learning rate."""

    frames: int = 20_000
    """Recorded steps, including those held out to measure errors; 1,000 or more."""
    updates: int = 4_000
    """Gradient steps of the fit."""
    batch_size: int = 128
    lr: float = 3e-3
    """Learning rate of Adam at the beginning; it falls to 0 along half a cosine."""
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        allowed = {
            "frames": (self.frames >= 1_000, "1000 or more"),
            "updates": (self.updates >= 1, "1 or more"),
            "batch_size": (self.batch_size >= 1, "1 or more"),
            "lr": (self.lr > 0, "more than 0"),
        }
        require_allowed(self, allowed)
