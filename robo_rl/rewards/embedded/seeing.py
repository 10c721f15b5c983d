"""How the picture encoder is learned: where everything is, from what the simulator knows.

B pictures, S slots.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from robo_rl.rewards.embedded.descent import Descent, EmbeddedConfig, Watch, descend
from robo_rl.rewards.embedded.encoder import PictureEncoder
from robo_rl.rewards.embedded.layers import averaged
from robo_rl.rewards.embedded.pictures import CaptionedPictures
from robo_rl.rewards.embedded.second_look import Located

STILL = 12
"""Of a byte, within which a pixel stays that never changes."""
JITTER = 2.5
"""[pixel] standard deviation of where the second look is taken in training: more than the first look errs."""


def fit_encoder(encoder: PictureEncoder, data: CaptionedPictures, config: EmbeddedConfig, watch: Watch) -> None:
    """Learns where everything is."""
    look_at_the_scene(encoder, data)
    targets, pictures = Targets(data, encoder), torch.from_numpy(data.pictures)
    parts = torch.split(pictures, 64)
    coarse = torch.cat([averaged(part, encoder.coarser) for part in parts])  # once, not in every update
    chance = torch.Generator().manual_seed(config.seed)

    def loss(rows: Tensor) -> Tensor:
        located, seen = encoder.look(coarse[rows]), targets.seen[rows].clone()
        seen[:, 0] = False  # the hand is looked at anyway
        batch, slots = seen.nonzero().T
        about = targets.about(located, rows, chance)
        hand, places, presence = encoder.second_look(pictures[rows], encoder.usual, located, about, (batch, slots))
        exact = targets.exactness(hand, rows, things=None) + targets.exactness(places, rows, (batch, slots))
        return targets.loss(located, rows) + exact + targets.presence_loss(presence, rows)

    descend(encoder, loss, Descent("see", config.see_steps, config.see_batch, config.see_lr, len(data), chance), watch)


def look_at_the_scene(encoder: PictureEncoder, data: CaptionedPictures) -> None:
    """Sets what the scene usually looks like, which pixels never change, and where the camera stands."""
    few = data.pictures[:: max(1, len(data) // 400)].astype(np.float32)
    usual = np.median(few, axis=0)
    lowest, highest = data.pictures.min(0), data.pictures.max(0)
    apart = np.maximum(highest - usual, usual - lowest).max(-1)
    known = np.isfinite(data.positions).all(-1)
    positions, places = data.positions[known].astype(np.float64), data.places[known].astype(np.float64)
    depth = places[:, 2:]
    camera = np.linalg.lstsq(np.hstack([places[:, :2] * depth, depth, np.ones_like(depth)]), positions, rcond=None)[0]
    found = {
        "usual": usual,
        "still": apart <= STILL,
        "depth": [depth.mean(), depth.std() + 0.01],
        "camera": camera,
        "middle": positions.mean(0),
    }
    for name, value in found.items():
        buffer = encoder.get_buffer(name)
        buffer.copy_(torch.as_tensor(value, dtype=buffer.dtype))


class Targets:
    """What the encoder shall find: cells of the maps, places in the picture, depth, and what is seen at all."""

    def __init__(self, data: CaptionedPictures, encoder: PictureEncoder) -> None:
        self.seen, places = torch.from_numpy(data.seen), torch.nan_to_num(torch.from_numpy(data.places))
        first, cell = encoder.cells[0, 0], encoder.cells[1, 0] - encoder.cells[0, 0]
        cells = ((places[..., :2] - first) / cell).clamp(0, encoder.side - 1.001)
        self._corner, self._rest, self._side = cells.floor().long(), cells - cells.floor(), encoder.side
        self.places = torch.cat([places[..., :2], (places[..., 2:] - encoder.depth[0]) / encoder.depth[1]], -1)
        self._unit = torch.stack([cell, cell, torch.tensor(1.0)])
        self.pixel = 2 / data.pictures.shape[1]
        self._fine = torch.tensor([self.pixel, self.pixel, 0.02 / encoder.depth[1]])

    def about(self, located: Located, rows: Tensor, chance: torch.Generator) -> Tensor:
        """Returns (B, S, 2), around where to look again: what is seen a few pixels off, the rest where it was looked for."""
        true = self.places[rows][..., :2]
        missed = true + JITTER * self.pixel * torch.randn(true.shape, generator=chance)
        return torch.where(self.seen[rows][..., None], missed, located.places[..., :2].detach())

    def exactness(self, found: Tensor, rows: Tensor, things: tuple[Tensor, Tensor] | None) -> Tensor:
        """Error of places after the second look (Huber), in pixels and 2 cm of depth, of things or of the hand where seen."""
        true = self.places[rows][:, 0] if things is None else self.places[rows][things]
        weight = self.seen[rows][:, 0].float() if things is None else torch.ones(len(true))
        errors = (found - true) / self._fine
        lost = functional.huber_loss(errors, torch.zeros_like(errors), reduction="none").sum(-1)
        return (lost * weight).sum() / weight.sum().clamp_min(1)

    def presence_loss(self, presence: Tensor, rows: Tensor) -> Tensor:
        """Cross entropy of what is seen."""
        return functional.binary_cross_entropy_with_logits(presence, self.seen[rows].float())

    def loss(self, located: Located, rows: Tensor) -> Tensor:
        """Error of the places of what is seen (Huber), and cross entropies of what is seen, and in which cells."""
        seen = self.seen[rows].float()
        errors = (located.places - self.places[rows]) / self._unit
        place = (functional.huber_loss(errors, torch.zeros_like(errors), reduction="none").sum(-1) * seen).sum() / seen.sum()
        return place + self.presence_loss(located.presence, rows) + 0.3 * self._cell_loss(located.odds, rows)

    def _cell_loss(self, odds: Tensor, rows: Tensor) -> Tensor:
        """Cross entropy of the maps with the four cells around where each thing is seen."""
        seen, corner, rest = self.seen[rows].float(), self._corner[rows], self._rest[rows]
        log_shares, loss = odds.log_softmax(-1), torch.zeros(())
        for right, down in ((0, 0), (0, 1), (1, 0), (1, 1)):
            weight = (rest[..., 0] if right else 1 - rest[..., 0]) * (rest[..., 1] if down else 1 - rest[..., 1])
            cell = (corner[..., 1] + down) * self._side + corner[..., 0] + right
            loss = loss - (weight * seen * log_shares.gather(-1, cell[..., None])[..., 0]).sum()
        return loss / seen.sum()
