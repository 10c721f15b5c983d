"""Teachers list the subgoals of a level: one that never errs, one that errs as published models do, a language model.

The perfect one finds the way to what ends the episode; every closed door on it is a subgoal, before a locked one its key (with
the box in which it lies and the way to it), and before that whatever stands in the way. The noisy one replaces a subgoal with
probability 1 - accuracy. A position moves to a cell at a Manhattan distance of max(1, round(Normal(mean, deviation)));
an object becomes a random other thing of the level.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.rewards.judges.judge import Form
from robo_rl.rewards.language.conversation import Prompt, Reply, prompt
from robo_rl.rewards.language.factory import language_model, require_task
from robo_rl.rewards.language.model import LanguageModel
from robo_rl.settings import settings_as
from robo_sims.grids.subgoals.level import Level, Place, Subgoal, Thing

BLOCKED, LOCKED, CLOSED = 20.0, 50.0, 2.0
"""Cost of a cell [steps]: something to carry away, a key to fetch, a door to open."""


@dataclass(frozen=True)
class PerfectTeacher:
    """Lists what a shortest way asks for."""

    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Returns the subgoals up to the thing that ends the episode; none if no way leads there."""
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
        """Plans to get at a thing; `seeking` are the things that this is part of getting at. False if there is no way."""
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
        """Returns the cells from the next one to the target (Dijkstra), None if walls or lava enclose it."""
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


PUBLISHED: dict[str, tuple[float, float, float, float]] = {
    "keycorridor-s3r3-llama": (0.9743, 0.18, 1.20, 0.9847),
    "keycorridor-s3r3-deepseek": (0.3337, 2.57, 2.54, 0.9063),
    "keycorridor-s3r3-qwen": (0.9810, 0.07, 0.63, 0.9957),
}
"""Real models on KeyCorridorS3R3: accuracy of positions, mean and deviation of distance [cells], accuracy of things."""


@dataclass(frozen=True)
class NoisyTeacher:
    """The perfect teacher's subgoals, some replaced. A level always meets the same errors, as if answers had been stored."""

    model: str = ""
    """A published model, a key of PUBLISHED, in the place of the next three settings."""
    accuracy: float = 1.0
    """Probability that a subgoal is right."""
    distance: float = 0.0
    """Mean of the distance [cells] of a wrong position."""
    deviation: float = 0.0
    """Standard deviation of that distance [cells]."""
    errors: Literal["position", "object"] = "position"
    """What a wrong subgoal is: another cell, or another thing of the level."""
    seed: int = 0
    """Another seed, other errors."""

    def __post_init__(self) -> None:
        if self.model and self.model not in PUBLISHED:
            raise UnknownName("model with published errors", self.model, PUBLISHED)
        if self.model and (self.accuracy, self.distance, self.deviation) != (1.0, 0.0, 0.0):
            raise InvalidSetting(
                "The errors of a published model are known.", got=self, fix="leave out either model or figures"
            )
        require_allowed(self, {"accuracy": (0.0 <= self.accuracy <= 1.0, "0 to 1")})
        require_allowed(self, {name: (getattr(self, name) >= 0, "0 or more") for name in ("distance", "deviation", "seed")})

    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Returns subgoals, each right with the probability of the settings, independently."""
        random = np.random.default_rng([self.seed, level.number])
        accuracy, mean, deviation, of_objects = PUBLISHED.get(
            self.model, (self.accuracy, self.distance, self.deviation, self.accuracy)
        )
        if self.errors == "object":
            return [self._another_thing(part, level, random, of_objects) for part in PerfectTeacher().subgoals(level)]
        return [
            part if random.random() < accuracy else _elsewhere(part, level, random.normal(mean, deviation), random)
            for part in PerfectTeacher().subgoals(level)
        ]

    def close(self) -> None:
        """Does nothing."""

    def _another_thing(self, subgoal: Subgoal, level: Level, random: np.random.Generator, accuracy: float) -> Subgoal:
        others = [thing for thing in level.things if Subgoal.of(thing) != subgoal]
        if random.random() < accuracy or not others:
            return subgoal
        return Subgoal.of(others[random.integers(len(others))])


def _elsewhere(subgoal: Subgoal, level: Level, distance: float, random: np.random.Generator) -> Subgoal:
    """Returns a cell of the grid at that Manhattan distance, at least 1, or at the largest that there is below it.

    Differs from the authors' code, which draws offsets to the right alone: all cells at the distance are as likely.
    """
    x, y = subgoal.place
    for apart in range(max(1, round(distance)), 0, -1):
        ring = [(x + dx, y + sign * (apart - abs(dx))) for dx in range(-apart, apart + 1) for sign in (-1, 1)]
        inside = sorted({(i, j) for i, j in ring if 0 <= i < level.width and 0 <= j < level.height})
        if inside:
            place = inside[random.integers(len(inside))]
            thing = level.by_place.get(place)
            return Subgoal(place) if thing is None else Subgoal.of(thing)
    return subgoal


PURPOSE = "subgoals"
SYSTEM = (
    "You plan for an agent in a grid world. It turns left or right, moves one cell forward, picks up what is right in front of "
    "it (one thing at a time), drops it into a free cell in front, and toggles what is in front: a closed door opens, a locked "
    "one opens while the agent carries a key of its colour, a box turns into what is in it."
)
ASK = (
    "{level}\n\nList, in the order in which they have to be reached, the cells that the agent must stand on, or whose content "
    "it must change by opening or picking up, until the mission is done: the last one completes it. Give x and "
    "y of each as the level above numbers them."
)


class Cell(Form):
    """A subgoal."""

    x: int
    y: int


class Plan(Form):
    """Subgoals in their order."""

    subgoals: list[Cell]


@dataclass
class LanguageTeacher:
    """Subgoals from a language model. A level that it has no usable answer for has none, which is not an empty plan's fault."""

    llm: str = ""
    """`endpoint`, a YAML file with `judge` and `settings`, or `pack:NAME_OR_FILE`; empty if `replay` answers everything."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the language model."""
    log: str = ""
    """File that keeps every question and answer, from which the same command goes on; empty for none."""
    replay: str = ""
    """Log of an earlier run that answers everything, without a server or a key."""

    def __post_init__(self) -> None:
        if bool(self.llm) == bool(self.replay):
            raise InvalidSetting(
                "A teacher of words asks a language model, or replays a log.",
                got="both" if self.llm else "neither",
                allowed="llm or replay",
                fix="teacher: {name: llm, llm: endpoint, log: subgoals.jsonl}",
            )
        self._model: LanguageModel | None = None
        self._known: dict[str, Sequence[Subgoal]] = {}
        self.unanswered = 0
        """Levels without a usable answer."""

    def require(self, environment: str) -> None:
        """Raises InvalidSetting if the replies of a pack are for the levels of another environment."""
        require_task(self.llm, environment)

    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Returns what the model lists; none if it gave no usable answer. Raises what `LanguageModel.sample` raises."""
        if level.text not in self._known:
            reply = self._opened.sample(question(level))[0]
            self._known[level.text] = found = listed(reply, level)
            self.unanswered += not found
        return self._known[level.text]

    def close(self) -> None:
        """Closes the log."""
        if self._model is not None:
            self._model.close()
        self._model = None

    @property
    def _opened(self) -> LanguageModel:
        if self._model is None:  # an environment that only shows its spec must not take the log from the one that trains
            log, replay = (Path(name) if name else None for name in (self.log, self.replay))
            self._model = language_model(self.llm, self.settings, log=log, replay=replay)
        return self._model


def question(level: Level) -> Prompt:
    """Returns what a model is asked about a level."""
    return prompt(ASK.format(level=level.text), purpose=PURPOSE, system=SYSTEM, form=Plan, temperature=0.0)


def listed(reply: Reply, level: Level) -> Sequence[Subgoal]:
    """Returns the subgoals of a reply; none if a cell lies outside the grid, because then the model misread all of it."""
    if reply.status != "ok":
        return ()
    cells: Sequence[Mapping[str, int]] = reply.content["subgoals"]
    places = [(cell["x"], cell["y"]) for cell in cells]
    if not all(0 <= x < level.width and 0 <= y < level.height for x, y in places):
        return ()
    return [_subgoal(place, level, place in places[:number]) for number, place in enumerate(places)]


def _subgoal(place: tuple[int, int], level: Level, again: bool) -> Subgoal:
    """Returns the subgoal of a cell; the second time it is named, of what lies in the box there."""
    thing = level.by_place.get(place)
    if thing is not None and again and thing.content is not None:
        thing = thing.content
    return Subgoal(place) if thing is None else Subgoal.of(thing)


class Teacher(Protocol):
    """Lists subgoals; the same for the same level, so that a training can be repeated. Asked in training only."""

    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Returns subgoals in the order in which they are to be reached; none if it has no usable answer."""

    def close(self) -> None:
        """Frees what it holds; may be called again."""


TEACHERS: dict[str, Any] = {"perfect": PerfectTeacher, "noisy": NoisyTeacher, "llm": LanguageTeacher}


def read_teacher(name: str, settings: Mapping[str, Any]) -> Teacher:
    """Returns a teacher by its name; raises UnknownName or InvalidSetting naming the setting."""
    if name not in TEACHERS:
        raise UnknownName("teacher", name, TEACHERS)
    teacher: Teacher = settings_as(TEACHERS[name], settings, source=f"the teacher {name}")
    return teacher
