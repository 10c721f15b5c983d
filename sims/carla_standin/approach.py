"""How near moving bodies come: the closest approach of straight motions, over whole intervals instead of at samples.

A body's motion is taken as far as it needs to stop, so that who sees it later can still react.
"""

from __future__ import annotations

import numpy as np

from carla_standin.maps.curves import Floats

REACTION, BRAKING = 1.0, 2.5
"""Time [s] until a driver begins to brake, and comfortable braking [m/s2]."""


def stopping_way(velocity: Floats) -> Floats:
    """Return the ways (..., 2) [m] that bodies with a velocity (..., 2) [m/s] need to stop."""
    speed = np.hypot(velocity[..., 0], velocity[..., 1])
    return velocity * (REACTION + speed / (2.0 * BRAKING))[..., None]


def closest_approach(start: Floats, step: Floats, other: Floats, way: Floats) -> tuple[Floats, Floats, Floats]:
    """Return how near straight lines come to each other, and where.

    Args:
        start: (n, 2) [m] starts of lines.
        step: (n, 2) [m] their whole ways; zero for points.
        other: (m, 2) [m] starts of other lines.
        way: (m, 2) [m] their whole ways; zero for points.

    Returns:
        (n, m) distances [m], shares of `step`, and shares of `way` at which the lines are nearest.
    """
    ax, ay = step[:, 0, None], step[:, 1, None]
    bx, by = way[:, 0], way[:, 1]
    dx, dy = other[:, 0] - start[:, 0, None], other[:, 1] - start[:, 1, None]
    long, wide = np.maximum(ax * ax + ay * ay, 1e-12), np.maximum(bx * bx + by * by, 1e-12)
    both, cross = ax * bx + ay * by, ax * by - ay * bx
    ahead, back = dx * ax + dy * ay, -(dx * bx + dy * by)
    skew = np.abs(cross) > 1e-12
    safe = np.where(skew, cross, 1.0)
    inner = np.where(skew, (dx * by - dy * bx) / safe, -1.0), np.where(skew, (dx * ay - dy * ax) / safe, -1.0)
    meets = (inner[0] >= 0.0) & (inner[0] <= 1.0) & (inner[1] >= 0.0) & (inner[1] <= 1.0)
    zero, one = np.zeros_like(ahead), np.ones_like(ahead)
    # Lines that do not cross are nearest at one of their four ends.
    shares = np.stack([_clipped(ahead / long), _clipped((ahead + both) / long), zero, one])
    others = np.stack([zero, one, _clipped(back / wide), _clipped((back + both) / wide)])
    gaps = np.hypot(dx + others * bx - shares * ax, dy + others * by - shares * ay)
    best = gaps.argmin(0)[None]
    gap, share, place = (np.take_along_axis(values, best, 0)[0] for values in (gaps, shares, others))
    return np.where(meets, 0.0, gap), np.where(meets, inner[0], share), np.where(meets, inner[1], place)


def _clipped(values: Floats) -> Floats:
    return np.minimum(np.maximum(values, 0.0), 1.0)
