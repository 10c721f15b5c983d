"""A teacher that asks a language model, once for each level, and remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.judging import Form
from robo_rl.rewards.language.conversation import Prompt, Reply, prompt
from robo_rl.rewards.language.model import LanguageModel
from robo_rl.rewards.language.opening import language_model, require_task
from robo_rl.rewards.subgoals.level import Level, Subgoal

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
    """`endpoint`, a YAML file with `judge` and `settings`, or `pack:NAME_OR_FILE`; empty where `replay` answers everything."""
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
        """Raises InvalidSetting where the replies of a pack are for the levels of another environment."""
        require_task(self.llm, environment)

    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        """Returns what the model lists; none where it gave no usable answer. Raises what `LanguageModel.sample` raises."""
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
    """Returns the subgoals of a reply; none where a cell lies outside the grid, because then the model misread all of it."""
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
