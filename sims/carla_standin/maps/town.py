"""A valid map and its derived data, computed once."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from carla_standin.maps.curves import Floats
from carla_standin.maps.ground import Ground
from carla_standin.maps.lanes import Lanes
from carla_standin.maps.navigation import connected, mesh
from carla_standin.maps.opendrive_writer import to_opendrive
from carla_standin.maps.pavements import Polygon, polygons
from carla_standin.maps.roads import Building, Road, RoadMap
from carla_standin.maps.signal_ways import SignalWays
from carla_standin.maps.validator import require_valid
from carla_standin.traffic.junctions import Junctions

APART, CLEAR = 20.0, 8.0
"""Distance [m] between two spawn points of a lane, and from a spawn point to either end of the lane."""
HEIGHT = 0.3
"""Height [m] of spawn points above the ground, as on CARLA's maps."""


class Town:
    """Map that has been checked, with what traffic and clients need of it."""

    def __init__(self, road_map: RoadMap) -> None:
        require_valid(road_map)
        self.road_map = road_map
        self.name = road_map.name
        self.text = to_opendrive(road_map)
        """OpenDRIVE text for clients, written from the checked map."""

    @cached_property
    def lanes(self) -> Lanes:
        """All lanes of the map as ways for the traffic."""
        return Lanes(self.road_map)

    @cached_property
    def signal_ways(self) -> SignalWays:
        """Ways at whose end each signal counts."""
        return SignalWays(self.road_map, self.lanes)

    @cached_property
    def junctions(self) -> Junctions:
        """Data about junctions: which ways cross each other, and which way has priority."""
        return Junctions(self.road_map, self.lanes, self.signal_ways)

    @cached_property
    def ground(self) -> Ground:
        """Pictures of the ground from above: semantic labels, and where each traffic light counts."""
        return Ground(self.road_map)

    @cached_property
    def navigation(self) -> bytes:
        """The navigation mesh of the pavements; b"" if there are none."""
        return mesh(self.pavements)

    @cached_property
    def pavements(self) -> list[Polygon]:
        """Connected pavements and crossings for a client's AI walkers."""
        return connected(polygons(self.road_map, self.ground, self.buildings))

    @cached_property
    def spawn_points(self) -> list[list[list[float]]]:
        """[[x, y, z], [pitch, yaw, roll]] on lanes outside junctions, at even distances."""
        found = []
        for number, way in enumerate(self.lanes.ways):
            if way.junction != -1 or way.closes or way.opens:
                continue
            for s in np.arange(CLEAR, way.length - CLEAR, APART):
                x, y, heading = self.lanes.poses(np.array([number]), np.array([s]))[0]
                yaw = math.remainder(math.degrees(heading), 360)
                found.append([[float(x), float(y), HEIGHT], [0.0, yaw, 0.0]])
        return found

    @cached_property
    def buildings(self) -> Floats:
        """Buildings (n, 6): x, y of the centre, yaw [degree], half length, half width, height [m]."""
        rows = [_building(road, box) for road in self.road_map.roads for box in road.buildings]
        return np.array(rows, float).reshape(-1, 6)


def _building(road: Road, box: Building) -> list[float]:
    s, t = np.array([box.s]), np.array([box.t])
    x, y, heading = (float(value[0]) for value in road.beside(s, t))
    sizes = box.length / 2, box.width / 2, box.height
    return [x, -y, -math.degrees(heading), *sizes]
