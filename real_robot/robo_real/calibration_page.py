"""Page with a calibration board, to be printed in true scale, as PNG or PDF."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from robo_real.calibration import Charuco, Picture
from robo_rl.errors import InvalidSetting, optional

DOTS = 10_000
"""[pixel/m] resolution of the page"""
A4 = (0.297, 0.210)
"""[m] width and height of the smallest page"""
EDGE = 0.012
"""[m] margin that printers leave white"""
RULER = 0.1
"""[m] length of the line that is measured after printing"""
SUFFIXES = (".pdf", ".png")


def board_page(board: Charuco) -> Picture:
    """Return a page (H, W) uint8 with the board, a ruler and the board's settings. It is A4, or larger if the board is."""
    drawn = board.drawn(DOTS)
    height, width = drawn.shape
    edge = round(EDGE * DOTS)
    page = np.full((max(round(A4[1] * DOTS), height + 4 * edge), max(round(A4[0] * DOTS), width + 2 * edge)), 255, np.uint8)
    top, left = edge, (page.shape[1] - width) // 2
    page[top : top + height, left : left + width] = drawn
    line, long = page.shape[0] - edge, round(RULER * DOTS)
    page[line - 5 : line + 5, left : left + long] = 0
    for end in (left, left + long - 10):
        page[line - 60 : line + 60, end : end + 10] = 0
    text = (
        f"{RULER * 1000:.0f} mm: print at 100 %, measure.   {board.columns} x {board.rows} squares of"
        f" {board.square * 1000:g} mm, markers {board.marker * 1000:g} mm, DICT_5X5_250"
    )
    cv2.putText(page, text, (left, line - 100), cv2.FONT_HERSHEY_SIMPLEX, 1.6, 0, 3, cv2.LINE_AA)
    return page


def write_board_page(board: Charuco, path: Path) -> None:
    """Write the page as .png or .pdf, with its true size. Raises InvalidSetting for another suffix, MissingExtra."""
    with optional("A board to print", "PIL", "plots"):
        from PIL import Image

    if path.suffix.lower() not in SUFFIXES:
        raise InvalidSetting("A board is written as PNG or PDF.", got=path.name, allowed=" or ".join(SUFFIXES))
    resolution = DOTS * 0.0254
    page = Image.fromarray(board_page(board))
    if path.suffix.lower() == ".pdf":
        page.convert("1", dither=Image.Dither.NONE).save(path, resolution=resolution)  # one bit: no lossy compression
    else:
        page.save(path, dpi=(resolution, resolution))
