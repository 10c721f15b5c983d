"""Pictures in PNG and JPEG from files of strangers: the size in the header is looked at before anything is unpacked."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from robo_datasets.formats.recording import Array
from robo_rl.errors import DatasetError

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
MOST_PIXELS = 1 << 26
"""Largest number of pixels of a picture that is decoded: 64 million, more than any camera of a robot has."""
FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""JPEG markers whose segment states height and width."""
FLAGS = {1: cv2.IMREAD_GRAYSCALE, 3: cv2.IMREAD_COLOR_RGB, 4: cv2.IMREAD_UNCHANGED}
"""Number of channels that are wanted -> flag of cv2.imdecode."""


def decoded(content: bytes, channels: int = 3) -> Array:
    """Return the picture in PNG or JPEG bytes as (H, W, channels) uint8, RGB or RGBA; 1 channel is grey.

    Raises:
        DatasetError: The bytes are no PNG or JPEG, damaged, or of more than MOST_PIXELS.
    """
    size = _size(content)
    if size is None:
        raise DatasetError("A picture is no PNG and no JPEG.", got=f"{len(content)} bytes", allowed="PNG, JPEG")
    if size[0] * size[1] > MOST_PIXELS:
        raise DatasetError("A picture declares more than it may hold.", got=size, allowed=f"{MOST_PIXELS} pixels")
    try:
        found: Any = cv2.imdecode(np.frombuffer(content, np.uint8), FLAGS[channels])
    except cv2.error:
        found = None
    if found is None or found.dtype != np.uint8:
        raise DatasetError("A picture is damaged.", got=f"{len(content)} bytes", fix="leave it out of the mapping")
    picture = np.asarray(found).reshape(*found.shape[:2], -1)
    if picture.shape[2] != channels:
        raise DatasetError("A picture has other channels than it should.", got=picture.shape[2], allowed=channels)
    return np.ascontiguousarray(picture[..., [2, 1, 0, 3]]) if channels == 4 else picture


def _size(content: bytes) -> tuple[int, int] | None:
    """Return height and width by the header of a PNG or JPEG, None for anything else."""
    if content.startswith(PNG):
        return int.from_bytes(content[20:24]), int.from_bytes(content[16:20])
    at = 2
    while content.startswith(JPEG) and at + 9 <= len(content) and content[at] == 0xFF:
        marker = content[at + 1]
        if marker in FRAMES:
            return int.from_bytes(content[at + 5 : at + 7]), int.from_bytes(content[at + 7 : at + 9])
        at += 1 if marker == 0xFF else 2 + int.from_bytes(content[at + 2 : at + 4])
    return None
