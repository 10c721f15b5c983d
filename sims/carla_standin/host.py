"""Context of all calls: the world, its streams and the available maps."""

from __future__ import annotations

import logging

from carla_standin.errors import Refused
from carla_standin.maps.catalogue import NAMES, town
from carla_standin.maps.opendrive_reader import from_opendrive
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


class Host:
    """Holds one world at a time."""

    def __init__(self, world: World, population: Population = EMPTY, *, has_navigation: bool = True) -> None:
        self.world, self.population, self.has_navigation = world, population, has_navigation
        population.spawn(world)
        self.sent: Town | None = None
        """Last map from a client."""
        self.managers: dict[object, list[object]] = {}
        """Port -> [address, port] of the clients' Traffic Managers."""
        self.pacing = Pacing(self.managers)

    @property
    def streams(self) -> Streams:
        """Streams of the world and their subscribers."""
        return self.world.streams

    def map_names(self) -> list[str]:
        """Returns the names of the maps, in the clients' form."""
        return [f"/Game/{FOLDER}{name}" for name in NAMES]

    def load(self, name: str, reset_settings: bool = True) -> None:
        """Starts an episode on a map; "" is the current one."""
        if not isinstance(name, str):
            raise Refused("The name of a map is no text.", got=name)
        short = name.rsplit("/", 1)[-1]
        if not short or short == self.world.town.name:
            chosen = self.world.town if short != OWN or self.sent is None else self.sent
        elif short == OWN and self.sent is not None:
            chosen = self.sent
        else:
            chosen = town(short)
        if reset_settings:
            self.world.settings = Settings()
        self.streams.renew()
        self.world.begin(chosen)
        self.population.spawn(self.world)
        LOG.info("map %s, episode %d", chosen.name, self.world.episode)

    def receive(self, text: str) -> None:
        """Stores a client's map; raises InvalidMap if it is broken, Refused if it is not a text."""
        if not isinstance(text, str):
            raise Refused("A map is no text.", got=type(text).__name__)
        self.sent = Town(from_opendrive(text, OWN))
