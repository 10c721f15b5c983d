"""Teachers of subgoals: perfect, with the error rates of published models, and a language model.

The perfect teacher plans the shortest path to the goal: every closed door on it is a subgoal, before a locked door its key
(with the box around it and the path to it), and before that all obstacles. The noisy teacher replaces a subgoal with
probability 1 - accuracy: a position moves to a cell at Manhattan distance max(1, round(Normal(mean, deviation))), an object
becomes a random other object of the level.
"""

from __future__ import annotations

import heapq
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from robo_papers.words_as_beacons.level import GridObject, Level, Place, Subgoal
from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.opening import language_model, require_task
from robo_rl.rewards.chat.question import Answer, Form, Question, prompt
from robo_rl.settings import settings_as
from robo_rl.types import Metrics

BLOCKED, LOCKED, CLOSED = 20.0, 50.0, 2.0
"""Costs, in steps, that the planner of the perfect teacher charges for a cell: with an obstacle to remove, a locked door, a
closed door."""


class Teacher(ABC):
    """Base class of teachers, which give subgoals for a level; deterministic, so that a training can be repeated.

    They are used in training only.
    """

    @abstractmethod
    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Return subgoals for a level, in the order of completion; none without a usable answer."""

    @property
    def metrics(self) -> Metrics:
        """Numbers of the teacher's answers by tag, for the log; none for a teacher that always has an answer."""
        return {}

    def close(self) -> None:
        """Release resources; may be called again."""
        return


class SubgoalsMissing(UserWarning):
    """Warning that a language model has given no subgoals so far."""


@dataclass(frozen=True)
class PerfectTeacher(Teacher):
    """Teacher that gives the subgoals along a shortest path to the goal."""

    @override
    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Return the subgoals up to the goal; none if it is out of reach."""
        if not level.goals:
            return ()
        plan = _Plan(level)
        return plan.subgoals if plan.reach(level.goals[0], frozenset()) else ()


@dataclass
class _Plan:
    level: Level
    subgoals: list[Subgoal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._here = self.level.agent
        self._handled: set[Place] = set()

    def reach(self, target: GridObject, seeking: frozenset[Place]) -> bool:
        """Plan to reach an object, as part of reaching those in `seeking`; return False if there is no way."""
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

    def _unlock(self, door: GridObject, way: list[Place], seeking: frozenset[Place]) -> bool:
        """Plan to fetch the key of a door, after removing an obstacle right in front of the door."""
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

    def _try(self, target: GridObject, seeking: frozenset[Place]) -> bool:
        """Plan to reach an object; undo the plan and return False if there is no way."""
        before = len(self.subgoals), self._here, set(self._handled)
        if self.reach(target, seeking):
            return True
        del self.subgoals[before[0] :]
        _, self._here, self._handled = before
        return False

    def _do(self, thing: GridObject) -> None:
        if thing.place in self._handled:
            return
        self._handled.add(thing.place)
        self.subgoals.append(Subgoal.of(thing))
        if thing.content is not None:
            self.subgoals.append(Subgoal.of(thing.content))
        self._here = thing.place

    def _in_the_way(self, place: Place) -> GridObject | None:
        thing = self.level.by_place.get(place)
        is_free = thing is None or place in self._handled or thing.kind == "goal" or thing.state == "open"
        return None if is_free else thing

    def _cost(self, place: Place) -> float:
        thing = self._in_the_way(place)
        if thing is None:
            return 1.0
        return {"locked": LOCKED, "closed": CLOSED}.get(thing.state, BLOCKED)

    def _way(self, target: Place) -> list[Place] | None:
        """Return the cells from the next one to the target (Dijkstra), or None if walls or lava enclose it."""
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
"""Published models on KeyCorridorS3R3: position accuracy, mean and deviation of the distance [cells], object accuracy."""


@dataclass(frozen=True)
class NoisyTeacher(Teacher):
    """Teacher that gives the perfect subgoals with random errors, determined by level and seed."""

    model: str = ""
    """A published model, a key of PUBLISHED, instead of the next three settings."""
    accuracy: float = 1.0
    """Probability that a subgoal is right, 0 to 1."""
    distance: float = 0.0
    """Mean of the distance [cells] of a wrong position."""
    deviation: float = 0.0
    """Standard deviation of the distance [cells] of a wrong position."""
    errors: Literal["position", "object"] = "position"
    """Kind of errors: another cell, or another object of the level."""
    seed: int = 0
    """Seed of the errors."""

    def __post_init__(self) -> None:
        if self.model and self.model not in PUBLISHED:
            raise UnknownName("model with published errors", self.model, PUBLISHED)
        if self.model and (self.accuracy, self.distance, self.deviation) != (1.0, 0.0, 0.0):
            raise InvalidSetting(
                "The errors of a published model are known.", got=self, fix="leave out either model or figures"
            )
        require_allowed(self, {"accuracy": (0.0 <= self.accuracy <= 1.0, "0 to 1")})
        require_allowed(self, {name: (getattr(self, name) >= 0, "0 or more") for name in ("distance", "deviation", "seed")})

    @override
    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Return subgoals, each correct independently with the probability of the settings."""
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

    def _another_thing(self, subgoal: Subgoal, level: Level, random: np.random.Generator, accuracy: float) -> Subgoal:
        others = [thing for thing in level.things if Subgoal.of(thing) != subgoal]
        if random.random() < accuracy or not others:
            return subgoal
        return Subgoal.of(others[random.integers(len(others))])


def _elsewhere(subgoal: Subgoal, level: Level, distance: float, random: np.random.Generator) -> Subgoal:
    """Return a random cell at this Manhattan distance, at least 1, or at the largest possible one below it.

    Differs from the authors' code, which draws offsets to the right only: all cells at the distance are equally likely.
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
GIVEN = "given"
"""Status, in the log, of a level for which there are subgoals."""
FIRST = 3
"""Number of levels after which a warning says that none of them has subgoals."""
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
    """Form of a part of an answer: column x and row y of a cell, which is a subgoal."""

    x: int
    y: int


class Plan(Form):
    """Form of an answer: the subgoals of a level, in the order in which they are to be reached."""

    subgoals: list[Cell]


@dataclass
class LanguageTeacher(Teacher):
    """Teacher that asks a language model for subgoals; none for a level without a usable answer."""

    llm: str = ""
    """`endpoint`, a YAML file with `judge` and `settings`, or `pack:NAME_OR_FILE`; empty with `replay`."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the language model."""
    log: str = ""
    """File with every question and answer, from which the same command resumes; empty for none."""
    replay: str = ""
    """Log of an earlier run that gives all answers, without a server or a key."""

    def __post_init__(self) -> None:
        if bool(self.llm) == bool(self.replay):
            raise InvalidSetting(
                "The teacher llm needs a language model or a log to replay.",
                got="both" if self.llm else "neither",
                allowed="llm or replay",
                fix="teacher: {name: llm, llm: endpoint, log: subgoals.jsonl}",
            )
        self._model: ModelClient | None = None
        self._known: dict[str, Sequence[Subgoal]] = {}
        self._statuses: Counter[str] = Counter()

    def require(self, environment: str) -> None:
        """Raise InvalidSetting if a pack's replies are for another environment than `environment`."""
        require_task(self.llm, environment)

    @override
    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Return the subgoals of the model's answer; raises the errors of `ModelClient.sample`."""
        if level.text not in self._known:
            reply = self._opened.sample(question(level))[0]
            self._known[level.text] = found = listed(reply, level)
            self._statuses[GIVEN if found else reply.status if reply.status != "ok" else "of no use"] += 1
            if self._statuses.total() == self.unanswered == FIRST:
                warnings.warn(f"None of the first {FIRST} levels has subgoals: {self._ends}.", SubgoalsMissing, stacklevel=2)
        return self._known[level.text]

    @property
    def unanswered(self) -> int:
        """Number of levels so far without a usable answer."""
        return self._statuses.total() - self._statuses[GIVEN]

    @property
    @override
    def metrics(self) -> Metrics:
        faults = {f"status_{status.replace(' ', '_')}": count for status, count in self._statuses.items() if status != GIVEN}
        counts = {"levels": self._statuses.total(), "missing": self.unanswered, **faults}
        return {f"{PURPOSE}/{name}": float(count) for name, count in counts.items()}

    @property
    def _ends(self) -> str:
        return ", ".join(f"{count} {status}" for status, count in self._statuses.most_common())

    @override
    def close(self) -> None:
        if self._model is not None:
            self._model.close()
        self._model = None

    @property
    def _opened(self) -> ModelClient:
        if self._model is None:  # opened late: an environment made only for its spec must not lock the log
            log, replay = (Path(name) if name else None for name in (self.log, self.replay))
            self._model = language_model(self.llm, self.settings, log=log, replay=replay)
        return self._model


def question(level: Level) -> Question:
    """Make the question about a level for a language model."""
    return prompt(ASK.format(level=level.text), purpose=PURPOSE, system=SYSTEM, form=Plan, temperature=0.0)


def listed(reply: Answer, level: Level) -> Sequence[Subgoal]:
    """Read the subgoals in a model's reply; none if a cell outside the grid shows that the level was misread."""
    if reply.status != "ok":
        return ()
    cells: Sequence[Mapping[str, int]] = reply.content["subgoals"]
    places = [(cell["x"], cell["y"]) for cell in cells]
    if not all(0 <= x < level.width and 0 <= y < level.height for x, y in places):
        return ()
    return [_subgoal(place, level, place in places[:number]) for number, place in enumerate(places)]


def _subgoal(place: tuple[int, int], level: Level, again: bool) -> Subgoal:
    """Return the subgoal of a cell; the second mention of a cell means the content of its box."""
    thing = level.by_place.get(place)
    if thing is not None and again and thing.content is not None:
        thing = thing.content
    return Subgoal(place) if thing is None else Subgoal.of(thing)


TEACHERS: dict[str, Any] = {"perfect": PerfectTeacher, "noisy": NoisyTeacher, "llm": LanguageTeacher}


def read_teacher(name: str, settings: Mapping[str, Any]) -> Teacher:
    """Make a teacher by name; raises UnknownName, or InvalidSetting with the wrong setting."""
    if name not in TEACHERS:
        raise UnknownName("teacher", name, TEACHERS)
    teacher: Teacher = settings_as(TEACHERS[name], settings, source=f"the teacher {name}")
    return teacher
