"""State behind all remote calls: the world, its streams and the available maps."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import cast

from carla_standin.errors import Refused
from carla_standin.maps.catalogue import Catalogue
from carla_standin.maps.opendrive_reader import from_opendrive, name_of
from carla_standin.maps.town import Town
from carla_standin.pacing import Pacing
from carla_standin.population import Population
from carla_standin.settings import Settings
from carla_standin.streams import Streams
from carla_standin.world import World

LOG = logging.getLogger(__name__)
FOLDER = "Carla/Maps/"
EMPTY = Population()
OWN = "OpenDriveMap"
"""CARLA's name of a map that a client has sent."""
MOST_SENT = 8
"""Number of maps sent by clients that the server keeps; then it forgets the oldest."""


class Host:
    """State behind all remote calls: the world, the available maps, and the population of each episode. One world at a time."""

    def __init__(
        self,
        world: World,
        population: Population = EMPTY,
        *,
        has_navigation: bool = True,
        catalogue: Catalogue | None = None,
    ) -> None:
        self.world, self.population, self.has_navigation = world, population, has_navigation
        self.catalogue = catalogue or Catalogue()
        population.spawn(world)
        self.sent: dict[str, Town] = {}
        """Name of a map that a client has sent -> map; the last one is there as `OWN`, too."""
        self.managers: dict[object, list[object]] = {}
        """Port -> [address, port] of the clients' Traffic Managers."""
        self.pacing = Pacing(self.managers)

    @property
    def streams(self) -> Streams:
        """Streams of the world and their subscribers."""
        return cast(Streams, self.world.streams)

    def map_names(self) -> list[str]:
        """Return the names of all maps, with the folder that CARLA's client expects."""
        return [f"/Game/{FOLDER}{name}" for name in self.catalogue.names]

    def load(self, name: str, reset_settings: bool = True) -> None:
        """Begin a new episode on a map.

        Args:
            name: Name of the map; "" for the current one.
            reset_settings: Whether settings of the episode return to their defaults.
        """
        if not isinstance(name, str):
            raise Refused("The name of a map is no text.", got=name)
        short = name.rsplit("/", 1)[-1]
        if short in self.sent:
            chosen = self.sent[short]
        elif not short or short == self.world.town.name:
            chosen = self.world.town
        else:
            chosen = self.catalogue.town(short)
        if reset_settings:
            self.world.settings = Settings()
        self.streams.renew()
        self.world.begin(chosen)
        self.population.spawn(self.world)
        LOG.info("map %s, episode %d", chosen.name, self.world.episode)

    def receive(self, text: str) -> None:
        """Store a client's map; raises InvalidMap if it is broken, Refused if it is not a text."""
        if not isinstance(text, str):
            raise Refused("A map is no text.", got=type(text).__name__)
        road_map = from_opendrive(text, OWN, flatten=self.catalogue.flatten)
        self.sent[OWN] = Town(road_map)
        name = name_of(text)
        if name and name not in self.catalogue.names:
            self.sent[name] = Town(replace(road_map, name=name))
            while len(self.sent) > MOST_SENT:
                self.sent.pop(next(one for one in self.sent if one != OWN))
