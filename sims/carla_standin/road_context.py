"""Speed limit and traffic light that apply to each vehicle, from the raster maps of the ground under it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from carla_standin.actors import Bodies, rows_of, span_of
from carla_standin.layouts import TrafficLightState
from carla_standin.maps.ground import Ground


class RoadContext:
    """Writer of speed limits and lights: of clients' vehicles at each step, of all vehicles for snapshots."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.rows = span_of(rows_of([]))
        self.count = 0

    def reindex(self, bodies: Bodies) -> None:
        """Find the vehicles' rows of the state array again, after actors came or went."""
        vehicles = [actor for actor in bodies if actor.type_id.startswith("vehicle.")]
        self.rows, self.count = span_of(rows_of(vehicles)), len(vehicles)
        self.own = [actor.row for actor in vehicles if actor.attributes.get("driver") != "traffic"]
        """Rows of vehicles that may leave the roads."""
        bodies.records["light_state"][self.rows] = TrafficLightState.GREEN
        self.limit = bodies.records["limit"]
        self.light_records = [bodies.records[name] for name in ("has_light", "light", "light_state")]

    def note(self, bodies: Bodies) -> None:
        """Write the speed limits of clients' vehicles into their records; off the roads, the last limit stays."""
        for row in self.own:  # few, so that a loop is quicker than arrays
            limit = self.ground.limit(*bodies.motion[row, :2].tolist())
            if limit:
                self.limit[row] = limit

    def write(self, bodies: Bodies, light_ids: npt.NDArray[np.uint32], colours: npt.NDArray[np.uint8]) -> None:
        """Write limit and light into the records of all vehicles."""
        rows = self.rows
        if not self.count:
            return
        place = self.ground.at(bodies.motion[rows, :2])
        limits = self.ground.limits.ravel()[place]
        self.limit[rows] = limits if limits.all() else np.where(limits, limits, self.limit[rows])
        if not len(light_ids):
            return
        light = self.ground.lights.ravel()[place]
        if light.any():
            there, number = light > 0, light.astype(np.intp) - 1
            values: tuple[object, ...] = (
                there,
                np.where(there, light_ids[number], 0),
                np.where(there, colours[number], int(TrafficLightState.GREEN)),
            )
        else:
            values = 0, 0, int(TrafficLightState.GREEN)
        for record, value in zip(self.light_records, values, strict=True):
            record[rows] = value
