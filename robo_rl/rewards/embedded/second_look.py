"""The second look of the embedded model: the pixels around what was found, from which follows where it is exactly.

B pictures, S slots.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from robo_rl.rewards.embedded.layers import contrasted, narrowing, perceptron

LOOKS = 48
"""Numbers that the first look has of each cell."""
WINDOW = 40
"""[pixel] height and width of what the second look sees."""
HAND_WINDOW = 80
"""[pixel] the same for the hand, which is larger."""
RULED_OUT = -3.0
"""Log odds of the first look, up to which nobody looks for a thing again."""
TINTS = 8
"""Colours by which the second look tells each slot's pixels from others."""
MASKS = 4
"""Ways in which it does so."""


class Located(NamedTuple):
    """What a first look finds."""

    places: Tensor
    """(B, S, 3) where in the picture, right and down, -1 to 1; and how far away, in deviations from the mean"""
    presence: Tensor
    """(B, S) log odds that the thing is seen"""
    odds: Tensor
    """(B, S, cells) log odds of the maps"""
    there: Tensor
    """(B, S, LOOKS) what the convolutions say where each map attends to"""


class Found(NamedTuple):
    """What a second look finds, as Located has it."""

    places: Tensor
    presence: Tensor


class SecondLook(nn.Module):
    """Looks at the pixels around the places that a first look found, not averaged, and says where things are exactly.

    One camera sees depth by size alone, and sizes differ by fractions of a pixel. So masks of each slot's colours are made;
    how much, where on average and how spread out they are (moments), and convolutions on them, correct place and depth. The
    hand, which is larger and has no colour of its own, has convolutions of its own. What comes from the first look is taken as
    it is: no gradient flows back to it.
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
        """Returns the places of the hand (B, 3) and of the wanted things (N, 3), and all presences (B, S), as Located has them.

        pictures: (B, H, W, 3) uint8. usual: (H, W, 3) the usual one. about: (B, S, 2) where to look. wanted: (N,) the pictures
        and (N,) the slots of things.
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
        """Returns what is found where it was located; things that cannot be there keep the place of the first look."""
        batch, slots = (located.presence[:, 1:] > RULED_OUT).nonzero().T
        hand, things, presence = self(pictures, usual, located, located.places[..., :2], (batch, slots + 1))
        places = torch.cat([hand[:, None], located.places[:, 1:]], 1)
        return Found(places.index_put((batch, slots + 1), things), presence)

    def _moved(self, start: Tensor, by: Tensor) -> Tensor:
        return start + torch.cat([by[..., :2] * 4 / self.size, by[..., 2:]], -1)

    def _moments(self, masks: Tensor) -> Tensor:
        """Returns (B, S, 6 MASKS): of masks (B, S, WINDOW^2, MASKS), how much, where on average, and how spread out."""
        sums = masks.transpose(2, 3) @ self.powers  # (B, S, MASKS, 6)
        much, first, second = sums[..., :1] + 1, sums[..., 1:3], sums[..., 3:]
        return torch.cat([much.sqrt() / 4, first / much / 4, second / much / 16], -1).flatten(2)

    def _around(self, pictures: Tensor, usual: Tensor, corner: Tensor, side: int) -> Tensor:
        """Returns (B, N, side, side, 6), the pixels around middles (B, N, 2) [pixel]; those at the edge go on outside of it."""
        along = torch.arange(side) - side // 2
        columns, rows = ((corner.long()[..., axis, None] + along).clamp(0, self.size - 1) for axis in (0, 1))
        where = (rows[..., :, None] * self.size + columns[..., None, :]).flatten(1)  # (B, N side^2)
        picture = torch.arange(len(pictures))[:, None] * self.size**2
        shown = pictures.reshape(-1, 3).index_select(0, (picture + where).flatten()).float()
        taken = usual.view(-1, 3).index_select(0, where.flatten())
        return contrasted(shown, taken).view(*corner.shape[:2], side, side, 6)
