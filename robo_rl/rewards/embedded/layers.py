"""Layers that the parts of the embedded model have in common."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CONTRAST = 40.0
"""Of a byte, by which pictures are divided once the usual picture is taken away."""


def contrasted(pictures: Tensor, usual: Tensor) -> Tensor:
    """Returns (..., 6): pixels (..., 3) as they are, and what differs from usual ones."""
    return torch.cat([pictures - 128, pictures - usual], -1) / CONTRAST


def averaged(pictures: Tensor, by: int) -> Tensor:
    """Returns pictures (B, H, W, C) with `by` times `by` pixels averaged into one; what is left over at the end is cut off."""
    side = pictures.shape[1] // by * by
    parts = [pictures[:, down:side:by, right:side:by] for down in range(by) for right in range(by)]
    total = parts[0].to(torch.float32, copy=True)
    for part in parts[1:]:
        total += part
    return total / by**2


def narrowing(*channels: int) -> nn.Sequential:
    """Returns convolutions that halve height and width each, the first of 5 by 5 pixels."""
    sizes = [5] + [3] * (len(channels) - 2)
    pairs = zip(channels[:-1], channels[1:], sizes, strict=True)
    layers = [[nn.Conv2d(one, other, size, stride=2, padding=size // 2), nn.ReLU()] for one, other, size in pairs]
    return nn.Sequential(*(layer for both in layers for layer in both), nn.Flatten())


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Returns two hidden layers and a linear one."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
