"""Maps by name: "ring" and other kinds with default settings, "ring_train_0" drawn at random, and those of a folder."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import numpy as np

from carla_standin.errors import InvalidMap, InvalidOption, UnknownMap
from carla_standin.maps.grid import Grid, SignedGrid
from carla_standin.maps.highway import Highway
from carla_standin.maps.opendrive_reader import from_opendrive
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
"""Number of drawn maps of each set that the server lists by name. Maps with higher numbers can be loaded as well."""
NAMES = tuple(KINDS) + tuple(f"{kind}_{which}_{number}" for kind in KINDS for which in SETS for number in range(LISTED))
PATTERN = re.compile(rf"({'|'.join(KINDS)})(?:_({'|'.join(SETS)})_(\d{{1,6}}))?")


@lru_cache(maxsize=8)
def town(name: str) -> Town:
    """Return a map by its name; raises UnknownMap."""
    match = PATTERN.fullmatch(name)
    if match is None:
        raise UnknownMap(name, sorted(NAMES), "choose one of these, or another number after train or test")
    kind, which, number = match.groups()
    if which is None:
        return Town(KINDS[kind]().build(name))
    random = np.random.default_rng([SETS[which], sorted(KINDS).index(kind), int(number)])
    return Town(KINDS[kind].drawn(random).build(name))


LAYERED = "_Opt"
"""Suffix in names of CARLA's maps in layers, such as Town01_Opt: they have the roads of the map without the suffix."""


class Catalogue:
    """The maps of a server: those by name, and the OpenDRIVE files of a folder, each by its file's name."""

    def __init__(self, folder: str = "", *, flatten: bool = False) -> None:
        self.flatten = flatten
        path = Path(folder)
        if folder and not path.is_dir():
            raise InvalidOption("The folder of maps is not there.", got=folder, allowed="a folder of .xodr files")
        self.files = {file.stem: file for file in sorted(path.glob("*.xodr"))} if folder else {}
        if folder and not self.files:
            raise InvalidOption("The folder of maps has no map.", got=folder, allowed="files that end in .xodr")
        self._read: dict[str, Town] = {}

    @property
    def names(self) -> list[str]:
        """Names of all maps that are listed for clients."""
        return [*NAMES, *self.files]

    def town(self, name: str) -> Town:
        """Return the map with a name. Raises UnknownMap if there is none, InvalidMap if its file is broken."""
        stem = name if name in self.files else name.removesuffix(LAYERED)
        if stem not in self.files:
            return town(name) if PATTERN.fullmatch(name) else self._missing(name)
        if name not in self._read:
            try:
                self._read[name] = Town(from_opendrive(self.files[stem].read_text(), name, flatten=self.flatten))
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidMap(f"The map {name!r} cannot be read.", got=error) from None
        return self._read[name]

    def _missing(self, name: str) -> Town:
        fix = "choose one of these, or another number after train or test; --maps FOLDER serves OpenDRIVE files by their names"
        raise UnknownMap(name, sorted(self.names, key=lambda one: (one not in self.files, one)), fix)
