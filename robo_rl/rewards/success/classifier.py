"""Success classifier: a network that reads one picture, or the float observations of one moment.

Successes are rare, so that half of each batch is drawn from them; the logit is then corrected by their true share (King & Zeng
2001, "Logistic regression in rare events data"), so that it remains a probability. Shapes: N moments, D numbers of one moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from robo_rl import fitting
from robo_rl.errors import require_allowed
from robo_rl.types import Array

Watch = Callable[[Sequence[int]], Iterable[int]]
"""Function that passes updates on, and may show progress."""
BATCH = 256  # pictures of one batch at inference


@dataclass(frozen=True)
class ClassifierConfig:
    """Settings of a success classifier: which moments count as success, its fit, and its threshold."""

    last: int = 1
    """Number of observations at the end of a successful episode that count as success, 1 or more."""
    margin: int = 0
    """Number of observations before these that count neither as success nor as failure; 0 or more."""
    camera: str = ""
    """Camera of the pictures, "none" for the float observations; empty for the first camera, if there is one."""
    guard: str = ""
    """Further condition of success, NAME=LOW:HIGH or NAME[INDEX]=LOW:HIGH, such as gripper_opening=0.02:0.06 [m]."""
    false_positives: float = 0.01
    """Share of failed episodes that may count as a success at any moment, 0 to below 1; it determines the threshold."""
    least_probability: float = 0.5
    """Smallest threshold, 0 to 1, even if the probabilities of failures stay lower."""
    held_out: float = 0.3
    """Share of the successful and of the failed episodes that is held out for threshold and measures; between 0 and 1."""
    least: int = 10
    """Smallest number of successful, and of failed, episodes."""
    image_size: int = 64
    """[pixel] height and width to which pictures are resized."""
    frames: int = 40
    """Largest number of moments without success per episode, evenly spaced."""
    hidden: int = 64
    """Units of each hidden layer."""
    updates: int = 500
    """Gradient steps."""
    batch_size: int = 64
    """Moments per update."""
    lr: float = 1e-3
    """Learning rate of AdamW."""
    weight_decay: float = 1e-2
    """Weight decay of AdamW."""
    shift: int = 3
    """[pixel] largest random shift of pictures, against memorising places."""
    seed: int = 0
    """Seed of initial weights, batches, and the choice of held-out episodes."""

    def __post_init__(self) -> None:
        names = ("last", "least", "image_size", "frames", "hidden", "updates", "batch_size")
        least = {name: (getattr(self, name) >= 1, "1 or more") for name in names}
        least |= {name: (getattr(self, name) >= 0, "0 or more") for name in ("margin", "shift", "seed", "weight_decay")}
        shares = {"held_out": (0 < self.held_out < 1, "between 0 and 1, both excluded"), "lr": (self.lr > 0, "above 0")}
        require_allowed(
            self,
            least
            | shares
            | {"false_positives": (0 <= self.false_positives < 1, "0 to 1, 1 excluded")}
            | {"least_probability": (0 <= self.least_probability <= 1, "0 to 1")},
        )


class SuccessNetwork(nn.Module):
    """Network that returns a logit of success for pictures (N, H, W, 3) uint8 or numbers (N, D) float32."""

    mean: Tensor
    deviation: Tensor
    offset: Tensor

    def __init__(self, shape: Sequence[int], hidden: int, image_size: int) -> None:
        """Build the network; shape: that of one moment, (H, W, 3) or (D,)."""
        super().__init__()
        self.image_size = image_size if len(shape) == 3 else 0
        size = 3 if self.image_size else shape[0]
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))
        self.register_buffer("offset", torch.zeros(()))
        if self.image_size:
            self.layers = _eye(hidden, self.image_size)
        else:
            units = [nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)]
            self.layers = nn.Sequential(*units)

    def forward(self, moments: Tensor) -> Tensor:
        """Return logits of success (N,) for prepared moments, as if half of all moments were successes."""
        layer = (moments.float() - self.mean) / self.deviation
        logits: Tensor = self.layers(layer.permute(0, 3, 1, 2) if self.image_size else layer)
        return logits[:, 0]

    def prepared(self, moments: Array) -> Array:
        """Return pictures resized for the network; numbers are returned unchanged."""
        if not self.image_size or moments.shape[1:3] == (self.image_size, self.image_size):
            return moments
        wanted = (self.image_size, self.image_size)
        return np.stack([cv2.resize(each, wanted, interpolation=cv2.INTER_AREA) for each in moments])

    @torch.no_grad()
    def probabilities(self, moments: Array) -> npt.NDArray[np.float32]:
        """Return the probabilities of success (N,) of moments (N, H, W, 3) or (N, D)."""
        if not len(moments):
            return np.zeros(0, np.float32)
        parts = [self.prepared(moments[start : start + BATCH]) for start in range(0, len(moments), BATCH)]
        logits = torch.cat([self(torch.from_numpy(np.array(part))) for part in parts])
        found: npt.NDArray[np.float32] = torch.sigmoid(logits + self.offset).numpy()
        return found


def fit(
    moments: Array, successes: npt.NDArray[np.bool_], share: float, config: ClassifierConfig, watch: Watch = iter
) -> SuccessNetwork:
    """Return a network fitted to moments.

    Args:
        moments: (N, H, W, 3) pictures or (N, D) numbers.
        successes: (N,) True for a success.
        share: Share of successes among all moments, of which `moments` may be a selection.
        config: Settings of the fit.
        watch: Passes updates on, and may show progress.
    """
    generator, random = torch.Generator().manual_seed(config.seed), np.random.default_rng(config.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)  # PyTorch's layers draw their first weights from the global generator
        network = SuccessNetwork(moments.shape[1:], config.hidden, config.image_size)
    moments = network.prepared(moments)
    axes = tuple(range(moments.ndim - 1))
    network.mean.copy_(torch.from_numpy(np.asarray(moments.mean(axes), np.float32)))
    network.deviation.copy_(torch.from_numpy(np.asarray(moments.std(axes), np.float32)).clamp_min(1e-2))
    network.offset.fill_(math.log(share / (1 - share)))
    seen = torch.from_numpy(np.ascontiguousarray(moments))
    sides = [torch.from_numpy(np.flatnonzero(side)) for side in (successes, ~successes)]
    optimizer = torch.optim.AdamW(network.parameters(), config.lr, weight_decay=config.weight_decay)
    half = max(1, config.batch_size // 2)
    labels = torch.cat([torch.ones(half), torch.zeros(half)])

    def batches() -> Iterator[Tensor]:
        for _ in watch(range(config.updates)):
            rows = torch.cat([side[torch.randint(len(side), (half,), generator=generator)] for side in sides])
            shift = random.integers(-config.shift, config.shift + 1, 2).tolist() if network.image_size else ()
            yield _shifted(seen[rows], *shift) if shift else seen[rows]

    def loss(batch: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(network(batch), labels)

    fitting.fit(network, batches(), loss, optimizer, title="success classifier")
    return network.eval()


def _eye(hidden: int, size: int) -> nn.Sequential:
    channels = (3, 16, 32, 32)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU()]
        size = -(-size // 2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * size**2, hidden), nn.ReLU(), nn.Linear(hidden, 1))


def _shifted(pictures: Tensor, down: int, right: int) -> Tensor:
    """Return pictures (N, H, W, 3) shifted; the border is repeated."""
    height, width = pictures.shape[1:3]
    rows = (torch.arange(height) - down).clamp(0, height - 1)
    columns = (torch.arange(width) - right).clamp(0, width - 1)
    return pictures[:, rows][:, :, columns]
