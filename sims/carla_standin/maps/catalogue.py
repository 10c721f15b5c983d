"""Maps by name: "ring" and other kinds with default settings, "ring_train_0" and "ring_test_0" drawn at random."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from carla_standin.errors import UnknownMap
from carla_standin.maps.grid import Grid, SignedGrid
from carla_standin.maps.highway import Highway
from carla_standin.maps.ring import Ring
from carla_standin.maps.town import Town

KINDS: dict[str, type[Ring] | type[Grid] | type[Highway]] = {
    "ring": Ring,
    "grid": Grid,
    "highway": Highway,
    "stops": SignedGrid,  # last by name too: the place among the sorted names is part of the seeds
}
SETS = {"train": 1, "test": 2}
"""Names of sets -> the first number of their seeds, so that no map is in both."""
LISTED = 8
"""Maps of each set that are listed; any number can be loaded."""
NAMES = tuple(KINDS) + tuple(f"{kind}_{which}_{number}" for kind in KINDS for which in SETS for number in range(LISTED))
PATTERN = re.compile(rf"({'|'.join(KINDS)})(?:_({'|'.join(SETS)})_(\d{{1,6}}))?")


@lru_cache(maxsize=8)
def town(name: str) -> Town:
    """Returns a map by its name; raises UnknownMap."""
    match = PATTERN.fullmatch(name)
    if match is None:
        raise UnknownMap(name, sorted(NAMES), "choose one of these, or another number after train or test")
    kind, which, number = match.groups()
    if which is None:
        return Town(KINDS[kind]().build(name))
    random = np.random.default_rng([SETS[which], sorted(KINDS).index(kind), int(number)])
    return Town(KINDS[kind].drawn(random).build(name))
