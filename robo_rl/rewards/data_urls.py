"""Pictures as addresses that hold them: what chat servers and pages are sent."""

from __future__ import annotations

import base64

import cv2
import numpy as np

from robo_rl.rewards.judging import Picture


def data_url(picture: Picture, longest_side: int = 0) -> str:
    """Returns a picture as a data URL of PNG, which loses nothing; (H, W, 3) RGB, resized only where asked to."""
    height, width = picture.shape[:2]
    if longest_side and longest_side != max(height, width):
        scale = longest_side / max(height, width)
        size = max(1, round(width * scale)), max(1, round(height * scale))
        kind = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        picture = np.asarray(cv2.resize(picture, size, interpolation=kind), np.uint8)
    _, png = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
