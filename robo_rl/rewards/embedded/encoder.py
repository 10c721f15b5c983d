"""What the embedded model sees: where things are in a picture.

B pictures, S slots, F = 4 S numbers that describe a picture.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robo_rl.rewards.embedded.layers import averaged, contrasted
from robo_rl.rewards.embedded.second_look import LOOKS, Found, Located, SecondLook

SHARPNESS = 10.0
"""Of the soft-argmax; without it the mean over a map hardly moves with what is seen."""
COARSE = 64
"""[pixel] height and width to which larger pictures are averaged for the first look."""


class PictureEncoder(nn.Module):
    """Finds each slot's thing in the whole picture, coarsely, and looks again at the pixels around it.

    First look: convolutions on the picture, averaged down to about 64 pixels, then for each slot a map that says where it is
    (spatial soft-argmax; Levine et al. 2016, arXiv:1504.00702). Differs from it: the usual picture is shown as taken away,
    because the camera stands still; and an offset within the cell and a depth are read where a map attends to. Second look:
    `SecondLook`. Position follows as in any pinhole camera, by a linear map.
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
            *(nn.Conv2d(6, 16, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(24, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, LOOKS, 3, padding=1), nn.ReLU()),
        )
        self.attention, self.values = nn.Conv2d(LOOKS, slots, 1), nn.Conv2d(LOOKS, 3 * slots, 1)
        self.evidence = nn.Linear(slots, slots)
        self.second_look = SecondLook(slots, size)
        self.coarser = max(1, size // COARSE)
        coarse = size // self.coarser
        self.side = side = (coarse + 3) // 4
        centres = (4 * torch.arange(side) + 0.5) / coarse * 2 - 1  # of the cells, over the picture
        self.register_buffer("cells", torch.stack([centres.repeat(side), centres.repeat_interleave(side)], -1))
        self.register_buffer("usual", torch.zeros(size, size, 3))
        self.register_buffer("still", torch.zeros(size, size, dtype=torch.bool))
        self.register_buffer("depth", torch.tensor([0.7, 0.1]))  # [m] mean and deviation
        self.register_buffer("camera", torch.zeros(4, 3))
        self.register_buffer("middle", torch.zeros(3))  # [m] mean of all positions
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third faster without a graphics card

    def forward(self, pictures: Tensor) -> Located:
        """Locates what is shown in pictures (B, H, W, 3) uint8, at a first look."""
        return self.look(averaged(pictures, self.coarser))

    def look(self, coarse: Tensor) -> Located:
        """Locates what is shown in pictures (B, H, W, 3) that are averaged down already."""
        usual = averaged(self.usual[None], self.coarser)
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
        """Returns what both looks find in pictures (B, H, W, 3) uint8."""
        return self.second_look.find(pictures, self.usual, self(pictures))

    def describe(self, pictures: Tensor) -> Tensor:
        """Returns (B, F), slot after slot: whether it is seen, and its position [dm]; what is not seen is in the middle.

        What is seen at all counts at its whole position: weighed by the presence, distances would err where that is unsure.
        """
        found = self.find(pictures)
        presence = found.presence.sigmoid()[..., None]
        positions = ((self.positions(found.places) - self.middle) * 10).clamp(-10, 10)
        return torch.cat([presence, (presence > 0.5) * positions], -1).flatten(1)

    def positions(self, places: Tensor) -> Tensor:
        """Returns (B, S, 3) [m]."""
        depth = places[..., 2:] * self.depth[1] + self.depth[0]
        return torch.cat([places[..., :2] * depth, depth], -1) @ self.camera[:3] + self.camera[3]
