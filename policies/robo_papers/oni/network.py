"""A small network of a caption's words, fitted again and again as labels arrive.

Differs from the paper's network, six convolutions over characters: our captions have a few dozen words, of which kind and
neighbours carry the meaning, and a fit may not take longer than a rollout on one core.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from robo_rl.errors import require_allowed
from robo_rl.fitting import fit
from robo_rl.types import Metrics, StateDict

BUCKETS = 1024
"""Number of hash buckets for words and pairs of neighbours: few enough for a quick fit, many enough to separate most words of a
task."""


@dataclass(frozen=True)
class Fit:
    """Settings of the fit of the reward network, which is repeated when there are enough new labels."""

    steps: int = 32
    """Gradient steps, as in the paper."""
    batch_size: int = 256
    """Labels of one step, as in the paper; all of them if there are fewer."""
    lr: float = 1e-2
    """Learning rate of Adam. The paper has 1e-4 for a network that gets thousands of labels; ours must learn from dozens."""
    width: int = 32
    """Number of hidden units."""
    growth: float = 0.2
    """Share of new labels, relative to those at the last fit, that makes a fit due; the paper fits every time. So the number
    of fits grows with the logarithm of the number of labels, and costs a training little."""
    gradient_clip: float = 10.0
    """Largest norm of the gradient, as in the paper's ranking."""
    seed: int = 0
    """Seed of weights and batches."""

    def __post_init__(self) -> None:
        least = {name: (getattr(self, name) >= 1, "1 or more") for name in ("steps", "batch_size", "width")}
        allowed = {name: (getattr(self, name) > 0, "above 0") for name in ("lr", "gradient_clip")}
        require_allowed(self, least | allowed | {"growth": (0 <= self.growth < np.inf, "0 or more")})


class CaptionNetwork(nn.Module):
    """Network that gives a caption one number, from its words and pairs of neighbouring words.

    They become a vector of length 1, which a hidden layer reads.
    """

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(BUCKETS, width), nn.Linear(width, 1)
        for parameter in self.parameters():
            bound = 1.0 if parameter is self.hidden.weight else width**-0.5
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        self._shares: dict[str, Tensor] = {}

    def forward(self, shares: Tensor) -> Tensor:
        """Return the numbers (B,) of captions given as vectors (B, BUCKETS), as `shares` makes them."""
        found: Tensor = self.output(self.hidden(shares).relu())
        return found.squeeze(1)

    def shares(self, captions: Sequence[str]) -> Tensor:
        """Return captions as vectors (B, BUCKETS) of length 1: the share of its words in each bucket."""
        return torch.stack([self._shares_of(caption) for caption in captions])

    def _shares_of(self, caption: str) -> Tensor:
        found = self._shares.get(caption)
        if found is None:
            words = re.findall(r"\w+|[.:]", caption.lower()) or [""]
            parts = [*words, *(" ".join(pair) for pair in pairwise(words))]
            counts = torch.bincount(torch.tensor([crc32(part.encode()) % BUCKETS for part in parts]), minlength=BUCKETS)
            found = self._shares[caption] = nn.functional.normalize(counts.float(), dim=0)
        return found


class CaptionFitter:
    """Fits a CaptionNetwork again and again: network, optimiser and random generator; each fit continues the last one."""

    def __init__(self, settings: Fit) -> None:
        self._settings = settings
        self._generator = torch.Generator().manual_seed(settings.seed)
        self.network = CaptionNetwork(settings.width, self._generator)
        self._optimizer = torch.optim.Adam(self.network.parameters(), settings.lr, fused=True)
        self._fitted = 0
        self.loss = float("nan")
        """Loss of the last step of the last fit."""

    @property
    def metrics(self) -> Metrics:
        """Loss at the last step of the newest fit, if there is one, for the log."""
        return {"annotation/loss": self.loss} if np.isfinite(self.loss) else {}

    @property
    def is_fitted(self) -> bool:
        """True once the network was fitted; before that its outputs mean nothing."""
        return self._fitted > 0

    def is_due(self, labels: int) -> bool:
        """Return True if the number of labels has grown enough since the last fit to fit again."""
        return labels > self._fitted * (1 + self._settings.growth)

    def fit(self, labels: int, loss: Callable[[Tensor], Tensor]) -> None:
        """Take the gradient steps of one fit.

        labels: number of labels. loss: returns the loss of the labels with these numbers (B,).
        """
        settings, draw = self._settings, self._generator
        batches = (torch.randperm(labels, generator=draw)[: settings.batch_size] for _ in range(settings.steps))
        self.loss = fit(self.network, batches, loss, self._optimizer, title="captions", largest_norm=settings.gradient_clip)
        self._fitted = labels

    @torch.no_grad()
    def outputs(self, captions: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the network's numbers for V captions, (V,)."""
        found: npt.NDArray[np.float64] = (
            self.network(self.network.shares(captions)).numpy().astype(np.float64) if captions else np.zeros(0)
        )
        return found

    def state_dict(self) -> StateDict:
        """Return copies of weights, moments and generator."""
        moments = {
            str(number): {name: value.clone() for name, value in moment.items()}
            for number, moment in self._optimizer.state_dict()["state"].items()
        }
        weights = {name: value.clone() for name, value in self.network.state_dict().items()}
        return {"weights": weights, "moments": moments, "generator": self._generator.get_state(), "fitted": self._fitted}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self.network.load_state_dict({name: torch.tensor(np.array(value)) for name, value in state["weights"].items()})
        moments = {
            int(number): {name: torch.tensor(np.array(value)) for name, value in moment.items()}
            for number, moment in state["moments"].items()
        }
        self._optimizer.load_state_dict({"state": moments, "param_groups": self._optimizer.state_dict()["param_groups"]})
        self._generator.set_state(torch.tensor(np.array(state["generator"])))
        self._fitted = int(state["fitted"])
