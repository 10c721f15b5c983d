"""The teacher that never errs: plans from the symbolic state.

Finds the way to what ends the episode; every closed door on it is a subgoal, before a locked one its key (with the box in which
it lies and the way to it), and before that whatever stands in the way.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from robo_rl.rewards.subgoals.level import Level, Place, Subgoal, Thing

BLOCKED, LOCKED, CLOSED = 20.0, 50.0, 2.0
"""Cost of a cell [steps]: something to carry away, a key to fetch, a door to open."""


@dataclass(frozen=True)
class PerfectTeacher:
    """Lists what a shortest way asks for."""

    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Returns the subgoals up to the thing that ends the episode; none where no way leads there."""
        if not level.goals:
            return ()
        plan = _Plan(level)
        return plan.subgoals if plan.reach(level.goals[0], frozenset()) else ()

    def close(self) -> None:
        """Does nothing."""


@dataclass
class _Plan:
    level: Level
    subgoals: list[Subgoal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._here = self.level.agent
        self._handled: set[Place] = set()

    def reach(self, target: Thing, seeking: frozenset[Place]) -> bool:
        """Plans to get at a thing; `seeking` are the things that this is part of getting at. False where there is no way."""
        if target.place in seeking:
            return False
        way = self._way(target.place)
        if way is None:
            return False
        for place in way:
            thing = self._in_the_way(place)
            if thing is None or place == target.place:
                continue
            if thing.state == "locked" and not self._unlock(thing, way, seeking | {target.place}):
                return False
            self._do(thing)
        self._do(target)
        return True

    def _unlock(self, door: Thing, way: list[Place], seeking: frozenset[Place]) -> bool:
        """Plans to hold the key of a door, after carrying away what stands right before the door."""
        before = way[way.index(door.place) - 1] if door.place != way[0] else None
        blocking = None if before is None else self._in_the_way(before)
        if blocking is not None and blocking.kind != "door":
            self._do(blocking)
        keys = [
            thing
            for thing in self.level.things
            if any(part is not None and (part.kind, part.colour) == ("key", door.colour) for part in (thing, thing.content))
        ]
        keys.sort(key=lambda key: self._price(key.place))
        return any(self._try(key, seeking | {door.place}) for key in keys)

    def _price(self, target: Place) -> float:
        way = self._way(target)
        return float("inf") if way is None else sum(map(self._cost, way))

    def _try(self, target: Thing, seeking: frozenset[Place]) -> bool:
        """Plans to get at a thing, or plans nothing."""
        before = len(self.subgoals), self._here, set(self._handled)
        if self.reach(target, seeking):
            return True
        del self.subgoals[before[0] :]
        _, self._here, self._handled = before
        return False

    def _do(self, thing: Thing) -> None:
        if thing.place in self._handled:
            return
        self._handled.add(thing.place)
        self.subgoals.append(Subgoal.of(thing))
        if thing.content is not None:
            self.subgoals.append(Subgoal.of(thing.content))
        self._here = thing.place

    def _in_the_way(self, place: Place) -> Thing | None:
        thing = self.level.by_place.get(place)
        is_free = thing is None or place in self._handled or thing.kind == "goal" or thing.state == "open"
        return None if is_free else thing

    def _cost(self, place: Place) -> float:
        thing = self._in_the_way(place)
        if thing is None:
            return 1.0
        return {"locked": LOCKED, "closed": CLOSED}.get(thing.state, BLOCKED)

    def _way(self, target: Place) -> list[Place] | None:
        """Returns the cells from the next one to the target (Dijkstra), None where walls or lava enclose it."""
        level, queue, came_from = self.level, [(0.0, self._here)], {self._here: self._here}
        costs = {self._here: 0.0}
        while queue:
            cost, here = heapq.heappop(queue)
            if here == target:
                return _back(came_from, self._here, target)
            if cost > costs[here]:
                continue
            x, y = here
            for place in ((x + 1, y), (x, y + 1), (x - 1, y), (x, y - 1)):
                thing = level.by_place.get(place)
                if place in level.walls or (thing is not None and thing.kind == "lava"):
                    continue
                if not (0 <= place[0] < level.width and 0 <= place[1] < level.height):
                    continue
                total = cost + (1.0 if place == target else self._cost(place))
                if total < costs.get(place, float("inf")):
                    costs[place], came_from[place] = total, here
                    heapq.heappush(queue, (total, place))
        return None


def _back(came_from: dict[Place, Place], start: Place, target: Place) -> list[Place]:
    way = [target]
    while came_from[way[-1]] != way[-1] and came_from[way[-1]] != start:
        way.append(came_from[way[-1]])
    return way[::-1]
