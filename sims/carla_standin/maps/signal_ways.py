"""Lanes at whose end a traffic light or sign must be obeyed.

These are the lanes at which the signal stands, or the lanes that lead to where the map refers to the signal.
"""

from __future__ import annotations

from collections.abc import Iterable

from carla_standin.maps.lanes import Lanes
from carla_standin.maps.roads import Road, RoadMap


class SignalWays:
    """Ways before the stop line of each signal."""

    def __init__(self, road_map: RoadMap, lanes: Lanes) -> None:
        self.lanes = lanes
        self.referred: dict[int, list[int]] = {}
        """Id of a signal that other places refer to -> the ways that end there."""
        for road in road_map.roads:
            for one in road.references:
                found = self.referred.setdefault(one.signal, [])
                ways = _on(road, lanes, one.lanes, one.orientation)
                found += [way for way in self._before(ways) if way not in found]
        self.own: dict[int, list[int]] = {
            signal.id: _on(road, lanes, signal.lanes, signal.orientation) for road in road_map.roads for signal in road.signals
        }

    def of(self, signal: int) -> list[int]:
        """Return the ways at whose end a signal counts."""
        return self.referred.get(signal) or self.own[signal]

    def _before(self, ways: Iterable[int]) -> list[int]:
        """Return the ways, each that lies in a junction replaced by those that lead to the junction."""
        found = []
        for way in ways:
            front, seen = [way], {way}
            while front:
                here = front.pop()
                if not self.lanes.crossing[here]:
                    found.append(here)
                    continue
                new = [before for before in self.lanes.predecessors[here] if before not in seen]
                seen.update(new)
                front += new
        return found


def _on(road: Road, lanes: Lanes, valid: tuple[int, int], orientation: str) -> list[int]:
    """Return the ways of a road's lanes in a range of lane numbers; (0, 0): all lanes of an orientation."""
    low, high = sorted(valid)
    if valid == (0, 0):
        ids = [lane.id for lane in road.lanes]
        low, high = (0 if orientation == "-" else min(*ids, 0)), (0 if orientation == "+" else max(*ids, 0))
    numbers = [lane.id for lane in road.lanes if low <= lane.id <= high and lane.kind == "driving"]
    return [lanes.index[road.id, number] for number in numbers]
