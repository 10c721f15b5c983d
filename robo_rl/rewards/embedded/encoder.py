"""Picture encoder of the embedded model: positions of objects in a picture, located coarsely and then refined.

Shapes: B pictures, S slots, F = 4 S numbers that describe a picture.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from robo_rl.rewards.images.efficientnet import lite0

CONTRAST = 40.0
"""Divisor of bytes after the usual picture was subtracted."""


def contrasted(pictures: Tensor, usual: Tensor) -> Tensor:
    """Return pixels (..., 3) and their differences from the usual picture, both scaled, as (..., 6)."""
    return torch.cat([pictures - 128, pictures - usual], -1) / CONTRAST


def averaged(pictures: Tensor, by: int) -> Tensor:
    """Return pictures (B, H, W, C) downsampled by averaging `by` x `by` pixels; a remainder at the edge is cut off."""
    side = pictures.shape[1] // by * by
    parts = [pictures[:, down:side:by, right:side:by] for down in range(by) for right in range(by)]
    total = parts[0].to(torch.float32, copy=True)
    for part in parts[1:]:
        total += part
    return total / by**2


def narrowing(*channels: int) -> nn.Sequential:
    """Build convolutions that each halve height and width; the first has a kernel of 5 x 5 pixels, the others 3 x 3."""
    sizes = [5] + [3] * (len(channels) - 2)
    pairs = zip(channels[:-1], channels[1:], sizes, strict=True)
    layers = [[nn.Conv2d(one, other, size, stride=2, padding=size // 2), nn.ReLU()] for one, other, size in pairs]
    return nn.Sequential(*(layer for both in layers for layer in both), nn.Flatten())


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Build an MLP with two hidden layers and a linear output layer."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


LOOKS = 48
"""Number of features in each cell of the first stage's map."""
WINDOW = 40
"""[pixel] height and width of the window in which an object is refined."""
HAND_WINDOW = 80
"""[pixel] height and width of the window for the hand, which is larger."""
RULED_OUT = -3.0
"""Log odds of presence in the first stage up to which an object is not refined."""
TINTS = 8
"""Number of colours by which the refinement separates the pixels of each slot from others."""
MASKS = 4
"""Number of masks that are made from these colours for each slot."""


class Located(NamedTuple):
    """Places of S objects in B pictures, as the first stage of the encoder finds them."""

    places: Tensor
    """(B, S, 3) place in the picture, right and down, -1 to 1, and distance from the camera, in standard deviations from its
    mean"""
    presence: Tensor
    """(B, S) log odds that the object of each slot is visible"""
    odds: Tensor
    """(B, S, cells) log odds of each cell for the position of each slot"""
    there: Tensor
    """(B, S, LOOKS) features of the convolutions, weighted by each map"""


class Found(NamedTuple):
    """Places and presence of S objects in B pictures after refinement, as in `Located`."""

    places: Tensor
    presence: Tensor


class Refinement(nn.Module):
    """Second stage of the picture encoder: refines places and presence of objects from full-resolution pixels.

    It looks around the places of the first stage. One camera sees depth only by size, and sizes differ by fractions of a pixel.
    So masks of the colours of each slot are computed; their moments (amount, mean position, spread) and convolutions on them
    correct place and depth. The hand, which is larger and has no single colour, has its own convolutions. No gradient flows
    back to the first stage.
    """

    powers: Tensor

    def __init__(self, slots: int, size: int) -> None:
        super().__init__()
        self.size, self.slots, self.palm = size, slots, min(HAND_WINDOW, size // 16 * 16)
        self.tints = nn.Parameter(torch.randn(slots, 6, TINTS) / 2)
        self.masks = nn.Parameter(torch.randn(slots, TINTS, MASKS) / 3)
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(slots, 1, count)) for count in (TINTS, MASKS)])
        along = torch.arange(WINDOW).float() - WINDOW / 2 + 0.5
        x, y = along.repeat(WINDOW), along.repeat_interleave(WINDOW)
        self.register_buffer("powers", torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], 1))
        self.hand, self.thing = narrowing(6, 16, 24, 32, 32), narrowing(6 + MASKS, 24, 32, 32)
        self.correct_hand = perceptron(32 * (self.palm // 16) ** 2 + 3 + LOOKS, 96, 3)
        self.correct = perceptron(32 * (WINDOW // 8) ** 2 + 6 * MASKS + 6 + LOOKS, 96, 3)
        self.is_seen = perceptron(6 * MASKS + 6 + LOOKS, 32, 1)

    def forward(
        self, pictures: Tensor, usual: Tensor, located: Located, about: Tensor, wanted: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the refined places of the hand (B, 3) and of N objects (N, 3), and all presences (B, S), as in Located.

        Args:
            pictures: (B, H, W, 3) uint8.
            usual: (H, W, 3) usual picture of the scene.
            located: Result of the first stage.
            about: (B, S, 2) centres of the windows.
            wanted: (N,) numbers of pictures and (N,) slots of the objects to refine.
        """
        corner = ((about.detach() + 1) / 2 * self.size).round().clamp(0, self.size)  # [pixel] of the windows' middle
        middle, depth, there = corner / self.size * 2 - 1, located.places.detach()[..., 2:], located.there.detach()
        start = torch.cat([middle, depth], -1)
        before = torch.cat([start, there], -1)  # (B, S, 3 + LOOKS)
        looked = self.hand(self._around(pictures, usual, corner[:, :1], self.palm)[:, 0].permute(0, 3, 1, 2))
        hand = self._moved(start[:, 0], self.correct_hand(torch.cat([looked, before[:, 0]], -1)))
        pixels = self._around(pictures, usual, corner, WINDOW).flatten(2, 3)  # (B, S, WINDOW^2, 6)
        masks = ((pixels @ self.tints + self.biases[0]).relu() @ self.masks + self.biases[1]).sigmoid()
        known = torch.cat([self._moments(masks), before, hand.detach()[:, None] - start], -1)
        shown = torch.cat([pixels[wanted], masks[wanted]], -1).view(-1, WINDOW, WINDOW, 6 + MASKS).permute(0, 3, 1, 2)
        things = self._moved(start[wanted], self.correct(torch.cat([self.thing(shown), known[wanted]], -1)))
        return hand, things, located.presence.detach() + self.is_seen(known)[..., 0]

    def find(self, pictures: Tensor, usual: Tensor, located: Located) -> Found:
        """Return the refined places of the hand and of all objects.

        Objects that the first stage rules out keep their places.
        """
        batch, slots = (located.presence[:, 1:] > RULED_OUT).nonzero().T
        hand, things, presence = self(pictures, usual, located, located.places[..., :2], (batch, slots + 1))
        places = torch.cat([hand[:, None], located.places[:, 1:]], 1)
        return Found(places.index_put((batch, slots + 1), things), presence)

    def _moved(self, start: Tensor, by: Tensor) -> Tensor:
        return start + torch.cat([by[..., :2] * 4 / self.size, by[..., 2:]], -1)

    def _moments(self, masks: Tensor) -> Tensor:
        """Return (B, S, 6 MASKS): amount, mean position and spread of masks (B, S, WINDOW^2, MASKS)."""
        sums = masks.transpose(2, 3) @ self.powers  # (B, S, MASKS, 6)
        much, first, second = sums[..., :1] + 1, sums[..., 1:3], sums[..., 3:]
        return torch.cat([much.sqrt() / 4, first / much / 4, second / much / 16], -1).flatten(2)

    def _around(self, pictures: Tensor, usual: Tensor, corner: Tensor, side: int) -> Tensor:
        """Return pixels (B, N, side, side, 6) around centres (B, N, 2) [pixel].

        Edge pixels are repeated outside the picture.
        """
        along = torch.arange(side) - side // 2
        columns, rows = ((corner.long()[..., axis, None] + along).clamp(0, self.size - 1) for axis in (0, 1))
        where = (rows[..., :, None] * self.size + columns[..., None, :]).flatten(1)  # (B, N side^2)
        picture = torch.arange(len(pictures))[:, None] * self.size**2
        shown = pictures.reshape(-1, 3).index_select(0, (picture + where).flatten()).float()
        taken = usual.view(-1, 3).index_select(0, where.flatten())
        return contrasted(shown, taken).view(*corner.shape[:2], side, side, 6)


TOWER_BLOCKS, TOWER_CHANNELS, TOWER_STRIDE = 5, 40, 8
"""How EfficientNet-Lite0 is read: number of blocks, channels of their maps, and pixels of a cell of the map."""
SHARPNESS = 10.0
"""Factor of the logits of the soft-argmax; without it the mean over a map hardly follows the objects."""
COARSE = 64
"""[pixel] height and width to which larger pictures are downsampled for the first stage."""


def _on_pixels() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(6, 16, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(24, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, LOOKS, 3, padding=1), nn.ReLU()),
    )


def _on_tower() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(2 * TOWER_CHANNELS, LOOKS, 1), nn.ReLU(), nn.Conv2d(LOOKS, LOOKS, 3, padding=1), nn.ReLU())
    )


class PictureEncoder(nn.Module):
    """Encoder that locates the object of each slot in a picture: coarsely first, then refined.

    First stage: convolutions on the picture, downsampled to about 64 pixels, then a map of the position of each slot (spatial
    soft-argmax; Levine et al. 2016, arXiv:1504.00702). Differs from it: the difference from the usual picture is an input,
    because the camera stands still; and the weights of each map also give an offset within the cell and a depth. Second stage:
    `Refinement`. The position in space follows by a linear map, as for a pinhole camera. In place of its own convolutions the
    first stage may use feature maps of EfficientNet-Lite0, which stays frozen and is not part of this network.
    """

    usual: Tensor
    still: Tensor
    cells: Tensor
    depth: Tensor
    camera: Tensor
    middle: Tensor

    def __init__(self, slots: int, size: int, *, by_tower: bool = False) -> None:
        super().__init__()
        self.by_tower = by_tower
        self.convolutions = _on_tower() if by_tower else _on_pixels()
        self.attention, self.values = nn.Conv2d(LOOKS, slots, 1), nn.Conv2d(LOOKS, 3 * slots, 1)
        self.evidence = nn.Linear(slots, slots)
        self.second_look = Refinement(slots, size)
        self.coarser = max(1, size // COARSE)
        coarse, stride = (size, TOWER_STRIDE) if by_tower else (size // self.coarser, 4)
        self.side = side = -(-coarse // stride)
        centres = (stride * torch.arange(side) + 0.5) / coarse * 2 - 1  # of the cells, over the picture
        self.register_buffer("cells", torch.stack([centres.repeat(side), centres.repeat_interleave(side)], -1))
        self.register_buffer("usual", torch.zeros(size, size, 3))
        self.register_buffer("still", torch.zeros(size, size, dtype=torch.bool))
        self.register_buffer("depth", torch.tensor([0.7, 0.1]))  # [m] mean and deviation
        self.register_buffer("camera", torch.zeros(4, 3))
        self.register_buffer("middle", torch.zeros(3))  # [m] mean of all positions
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third faster without a graphics card

    def forward(self, pictures: Tensor) -> Located:
        """Return rough places and presence of the objects in pictures (B, height, width, 3) uint8."""
        return self.look(self.prepared(pictures))

    @torch.no_grad()
    def prepared(self, pictures: Tensor) -> Tensor:
        """Return the input of the first stage for pictures (B, H, W, 3): smaller pictures or EfficientNet-Lite0 features."""
        if not self.by_tower:
            return averaged(pictures, self.coarser)
        tower, _ = lite0()
        return tower.maps(pictures, TOWER_BLOCKS).half()  # of thousands of pictures it would be gigabytes

    def look(self, coarse: Tensor) -> Located:
        """Return rough places and presence of the objects in reduced pictures, by attention over the cells of a grid."""
        usual = self.prepared(self.usual[None])
        if self.by_tower:
            seen = self.convolutions(torch.cat([coarse, coarse - usual], 1).float())
        else:
            seen = self.convolutions(contrasted(coarse, usual).permute(0, 3, 1, 2))
        odds = SHARPNESS * self.attention(seen).flatten(2)  # (B, S, cells)
        shares = odds.softmax(-1)
        values = self.values(seen).flatten(2).unflatten(1, (-1, 3))  # (B, S, 3, cells)
        read = (shares[:, :, None] * values).sum(-1)
        cell = self.cells[1, 0] - self.cells[0, 0]
        places = torch.cat([shares @ self.cells + cell * read[..., :2], read[..., 2:]], -1)
        there = shares @ seen.flatten(2).transpose(1, 2)
        return Located(places, self.evidence(odds.logsumexp(-1) / SHARPNESS), odds, there)

    def find(self, pictures: Tensor) -> Found:
        """Return refined places and presence of the objects in pictures (B, height, width, 3) uint8."""
        return self.second_look.find(pictures, self.usual, self(pictures))

    def describe(self, pictures: Tensor) -> Tensor:
        """Return (B, F): presence in [0, 1] and position [dm] of each slot; an invisible object has position 0.

        A visible object has its full position: multiplied by an unsure presence, distances would be wrong.
        """
        found = self.find(pictures)
        presence = found.presence.sigmoid()[..., None]
        positions = ((self.positions(found.places) - self.middle) * 10).clamp(-10, 10)
        return torch.cat([presence, (presence > 0.5) * positions], -1).flatten(1)

    def positions(self, places: Tensor) -> Tensor:
        """Return the positions in space (B, S, 3) [m] for places as in Located."""
        depth = places[..., 2:] * self.depth[1] + self.depth[0]
        return torch.cat([places[..., :2] * depth, depth], -1) @ self.camera[:3] + self.camera[3]
