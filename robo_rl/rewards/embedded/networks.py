"""The parts of the embedded model: where things are in a picture, what a sentence says, and what the one means for the other.

B pictures, S slots, F = 4 S numbers that describe a picture, L words of a sentence, E size of the common space.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_rl.rewards.embedded.words import LENGTH

SHARPNESS = 10.0
"""Of the soft-argmax; without it the mean over a map hardly moves with what is seen."""
CONTRAST = 40.0
"""Of a byte, by which pictures are divided once the usual picture is taken away."""
COMMON = 64
"""E"""


class Located(NamedTuple):
    """What the picture encoder finds."""

    places: Tensor
    """(B, S, 3) where in the picture, right and down, -1 to 1; and how far away, in deviations from the mean"""
    presence: Tensor
    """(B, S) log odds that the thing is seen"""
    odds: Tensor
    """(B, S, cells) log odds of the maps"""


class PictureEncoder(nn.Module):
    """Convolutions, then for each slot a map that says where it is (spatial soft-argmax), and what is read there.

    Levine et al. 2016, arXiv:1504.00702, for the maps. Differs from it: the usual picture is taken away first, because the
    camera stands still; and at the place that a map attends to, an offset within the cell and a depth are read, because one
    camera sees depth by size alone. Position follows from both as in any pinhole camera, by a linear map.
    """

    usual: Tensor
    still: Tensor
    cells: Tensor
    depth: Tensor
    camera: Tensor
    middle: Tensor

    def __init__(self, slots: int, size: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *(nn.Conv2d(3, 24, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(24, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(32, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, 48, 3, padding=1), nn.ReLU()),
        )
        self.attention, self.values = nn.Conv2d(48, slots, 1), nn.Conv2d(48, 3 * slots, 1)
        self.evidence = nn.Linear(slots, slots)
        self.side = side = (size + 3) // 4
        centres = (4 * torch.arange(side) + 0.5) / size * 2 - 1  # of the cells, over the picture
        self.register_buffer("cells", torch.stack([centres.repeat(side), centres.repeat_interleave(side)], -1))
        self.register_buffer("usual", torch.zeros(size, size, 3))
        self.register_buffer("still", torch.zeros(size, size, dtype=torch.bool))
        self.register_buffer("depth", torch.tensor([0.7, 0.1]))  # [m] mean and deviation
        self.register_buffer("camera", torch.zeros(4, 3))
        self.register_buffer("middle", torch.zeros(3))  # [m] mean of all positions

    def forward(self, pictures: Tensor) -> Located:
        """Locates what is seen in pictures (B, H, W, 3) uint8."""
        seen = self.convolutions(((pictures.float() - self.usual) / CONTRAST).permute(0, 3, 1, 2))
        odds = SHARPNESS * self.attention(seen).flatten(2)  # (B, S, cells)
        shares = odds.softmax(-1)
        values = self.values(seen).view(len(seen), -1, 3, self.side**2)  # (B, S, 3, cells)
        read = (shares[:, :, None] * values).sum(-1)
        cell = self.cells[1, 0] - self.cells[0, 0]
        places = torch.cat([shares @ self.cells + cell * read[..., :2], read[..., 2:]], -1)
        return Located(places, self.evidence(odds.logsumexp(-1) / SHARPNESS), odds)

    def describe(self, pictures: Tensor) -> Tensor:
        """Returns (B, F), slot after slot: whether it is seen, and its position [dm]; what is not seen is in the middle."""
        located = self(pictures)
        presence = located.presence.sigmoid()[..., None]
        positions = ((self.positions(located) - self.middle) * 10).clamp(-10, 10)
        return torch.cat([presence, presence * positions], -1).flatten(1)

    def positions(self, located: Located) -> Tensor:
        """Returns (B, S, 3) [m]."""
        depth = located.places[..., 2:] * self.depth[1] + self.depth[0]
        return torch.cat([located.places[..., :2] * depth, depth], -1) @ self.camera[:3] + self.camera[3]


class Heads(nn.Module):
    """What described pictures (B, F) and sentences (B, L) mean for each other."""

    def __init__(self, slots: int, words: int) -> None:
        super().__init__()
        self.slots = slots
        self.words = nn.Embedding(words + 1, 32)
        self.sentence = _perceptron(LENGTH * 32, 128, 128)
        self.text = nn.Linear(128, COMMON)
        self.picture = _perceptron(4 * slots + slots**2, 256, COMMON)
        self.asked = nn.Linear(128, 2 * slots)
        self.meant = nn.Linear(128, 32)
        self.relation = _perceptron(6 * 4 + 15 + 32, 128, 2)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def embed_pictures(self, described: Tensor) -> Tensor:
        """Returns (B, E) of length 1."""
        things = described.view(-1, self.slots, 4)
        apart = _lengths(things[:, :, None, 1:] - things[:, None, :, 1:])
        return functional.normalize(self.picture(torch.cat([described, apart.flatten(1)], -1)), dim=-1)

    def embed_texts(self, numbers: Tensor) -> Tensor:
        """Returns (B, E) of length 1."""
        return functional.normalize(self.text(self.read(numbers)), dim=-1)

    def read(self, numbers: Tensor) -> Tensor:
        """Returns (B, 128), what sentences (B, L) say."""
        said: Tensor = self.sentence(self.words(numbers).flatten(1))
        return said

    def chosen(self, said: Tensor) -> Tensor:
        """Returns (B, 2, S), log odds of the two slots that a sentence names."""
        odds: Tensor = self.asked(said)
        return odds.view(-1, 2, self.slots)

    def relate(self, firsts: Tensor, now: Tensor, said: Tensor) -> Tensor:
        """Returns (B, 2), log odds of progress and of completion, for what was read.

        The sentence chooses two slots; a perceptron sees them and the first slot, the hand, as they are and as they were in
        the first picture, where nothing hid them yet; and all distances between these six.
        """
        shares = self.chosen(said).softmax(-1)
        pictures = [part.reshape(-1, self.slots, 4) for part in (now, firsts)]
        things = torch.cat([part for slots in pictures for part in (slots[:, :1], shares @ slots)], 1)  # (B, 6, 4)
        one, other = torch.triu_indices(6, 6, 1)
        apart = _lengths(things[:, one, 1:] - things[:, other, 1:])  # (B, 15)
        related: Tensor = self.relation(torch.cat([things.flatten(1), apart, self.meant(said)], -1))
        return related


def _lengths(vectors: Tensor) -> Tensor:
    """Returns the lengths of the vectors (..., 3), with a gradient at zero too."""
    return (vectors.square().sum(-1) + 1e-4).sqrt()


def _perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
