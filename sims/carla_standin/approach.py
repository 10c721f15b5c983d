"""How near moving bodies come: the closest approach of straight motions, over whole intervals instead of at samples."""

from __future__ import annotations

import numpy as np

from carla_standin.maps.curves import Floats


def nearest_of_motion(points: Floats, start: Floats, step: Floats) -> Floats:
    """Return how near [m] straight motions come to points, in the last axis: (n, m) for points (n, 2) and motions (m, 2).

    start, step: of each motion, its beginning and its whole way.
    """
    offset = points[:, None] - start
    squares = np.maximum((step**2).sum(-1), 1e-12)
    share = np.clip((offset * step).sum(-1) / squares, 0.0, 1.0)
    return np.asarray(np.linalg.norm(offset - share[..., None] * step, axis=-1))


def nearest_of_lines(one: Floats, way: Floats, start: Floats, step: Floats) -> Floats:
    """Return the distances (m,) [m] of the line from `one` along `way` (2,) to lines from `start` along `step` (m, 2)."""
    ends = np.stack([one, one + way])
    found = np.minimum(
        nearest_of_motion(ends, start, step).min(0),
        np.minimum(
            nearest_of_motion(start, one[None], way[None])[:, 0], nearest_of_motion(start + step, one[None], way[None])[:, 0]
        ),
    )
    cross = way[0] * step[:, 1] - way[1] * step[:, 0]
    offset = start - one
    safe = np.where(np.abs(cross) > 1e-12, cross, np.inf)
    own = (offset[:, 0] * step[:, 1] - offset[:, 1] * step[:, 0]) / safe
    theirs = (offset[:, 0] * way[1] - offset[:, 1] * way[0]) / safe
    meets = (np.abs(cross) > 1e-12) & (own >= 0) & (own <= 1) & (theirs >= 0) & (theirs <= 1)
    return np.where(meets, 0.0, found)
