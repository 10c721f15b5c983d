"""What vehicles are told about their place: the speed limit, and the light that counts for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.actors import Bodies, X, Y, rows_of
from robo_sims.carla.standin.layouts import Colour
from robo_sims.carla.standin.maps.ground import Ground


class Surroundings:
    """Reads the pictures of the ground under all vehicles."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.rows = rows_of([])

    def reindex(self, bodies: Bodies) -> None:
        """Notes rows anew."""
        self.rows = rows_of([actor for actor in bodies if actor.type_id.startswith("vehicle.")])
        bodies.records["light_state"][self.rows] = Colour.GREEN

    def write(self, bodies: Bodies, light_ids: npt.NDArray[np.uint32], colours: npt.NDArray[np.uint8]) -> None:
        """Writes limit and light into the records of vehicles; beside the roads the last limit stays."""
        rows, records = self.rows, bodies.records
        if not len(rows):
            return
        place = self.ground.at(bodies.motion[rows, X], bodies.motion[rows, Y])
        limits = self.ground.limits[place]
        records["limit"][rows] = np.where(limits > 0, limits, records["limit"][rows])
        if len(light_ids):
            light = self.ground.lights[place].astype(np.intp)
            there = light > 0
            records["has_light"][rows] = there
            records["light"][rows] = np.where(there, light_ids[light - 1], 0)
            records["light_state"][rows] = np.where(there, colours[light - 1], int(Colour.GREEN))
