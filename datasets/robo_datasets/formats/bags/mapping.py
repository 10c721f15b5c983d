"""Mapping from the topics of a bag to observations, actions and episodes: a YAML file, and a draft of one.

rate: 20                                                    # [1/s] of the episodes
observations:
joint_position: {topic: /joint_states, field: position, names: [shoulder, elbow], unit: rad}
camera_front: {topic: /camera/image_raw/compressed, size: [120, 160]}
actions:
- {topic: /arm/commands, field: data, names: [shoulder, elbow], unit: rad, low: [-3, -3], high: [3, 3]}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robo_datasets.formats.recording import flat_name
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.settings import settings_as
from robo_rl.spec.environment import ActionMode
from robo_rl.system.plain_files import read_yaml

REWARD = "/reward"
"""Name of the reward among the entries."""


@dataclass(frozen=True)
class Entry:
    """Where one observation, or one part of the action, is found in a bag: topic, field, unit and limits."""

    topic: str
    field: str | None = None
    """path to the numbers in a message, such as pose.position; by default its type's main field, "" for the whole message"""
    names: tuple[str, ...] = ()
    """Names of the joints to read, in the order of this entry, if the messages name their joints; else labels for the
    numbers."""
    unit: str = "unknown"
    low: tuple[float, ...] | None = None
    """lowest values of the numbers of an action; by default the lowest that occur in the bag"""
    high: tuple[float, ...] | None = None
    size: tuple[int, int] | None = None
    """height and width [pixel] to which pictures are scaled"""
    most_gap: float | None = None
    """Largest age [s] of this entry's value, instead of that of the mapping; .inf for a topic that sends only changes."""


@dataclass(frozen=True)
class Markers:
    """Bag topic whose messages mark where episodes begin and end, and the field values that mean begin and end."""

    topic: str
    field: str = "data"
    begin: str | bool | int = True
    """value of the field that begins an episode; texts in any case"""
    end: str | bool | int = False
    """value of the field that ends an episode; without it, an episode lasts until the next begin, or until the bag ends"""


@dataclass(frozen=True)
class BagMapping:
    """Content of the user's YAML file: which topics of a bag become which observations and actions, and at which rate."""

    rate: float
    """Rate of the episodes' steps [1/s], to which the messages of all topics are resampled."""
    observations: Mapping[str, Mapping[str, Any]]
    """Name of an observation -> settings of its Entry."""
    actions: tuple[Mapping[str, Any], ...]
    """Settings of the Entry of each part of the action; the numbers of the parts are joined in this order."""
    clock: Literal["header", "log"] | None = None
    """times that order the messages: of their headers, or of the recorder; by default of headers if every topic has them"""
    most_gap: float = 0.2
    """Longest time [s] for which a value is used; a longer pause of its topic is a gap."""
    gaps: Literal["refuse", "cut"] = "refuse"
    """What happens at a pause between messages longer than allowed: "refuse" raises an error, "cut" ends the episode there."""
    actions_at: Literal["end", "begin"] = "end"
    """Which command is the action of a step: "end", the last one before the step ends; "begin", the last one up to its
    beginning."""
    mode: ActionMode = "unknown"
    """Control mode that the actions stand for, such as joint_position."""
    episodes: Mapping[str, Any] | None = None
    """Settings of Markers that tell where episodes begin and end; None if each bag is one episode."""
    reward: Mapping[str, Any] | None = None
    """Settings of the Entry that is the reward; None if the bag has no reward."""
    success: Mapping[str, Any] | None = None
    """Settings of the Entry that tells success; its last value before the next episode counts, 0 is a failure."""
    instruction: str | None = None

    def __post_init__(self) -> None:
        require_allowed(
            self,
            {
                "rate": (0 < self.rate <= 1000, "above 0, at most 1000 [1/s]"),
                "most_gap": (self.most_gap > 0, "above 0 [s]"),
                "observations": (len(self.observations) > 0, "at least one"),
                "actions": (len(self.actions) > 0, "at least one"),
                "mode": (self.mode != "discrete", "a mode of numbers"),
            },
        )


class Entries:
    """Entries of a mapping by name; those of actions and reward begin with "/", as no observation's name can."""

    def __init__(self, mapping: BagMapping, source: str) -> None:
        """source: name of the mapping in errors. Raises InvalidSetting or UnknownName that names the key."""
        self.mapping, self.source = mapping, source
        given = mapping.observations.items()
        self.observations = {name: _entry(entry, source, f"observations.{name}") for name, entry in given}
        if wrong := [name for name in self.observations if flat_name(name) != name]:
            raise InvalidSetting(f"{source}: {wrong[0]!r} is no name of an observation.", allowed="snake_case")
        self.actions = {f"/action{at}": _entry(entry, source, f"actions.{at}") for at, entry in enumerate(mapping.actions)}
        self.all: dict[str, Entry] = {**self.observations, **self.actions}
        if mapping.reward is not None:
            self.all[REWARD] = _entry(mapping.reward, source, "reward")
        self.success = None if mapping.success is None else _entry(mapping.success, source, "success")
        self.markers: Markers | None = None
        if mapping.episodes is not None:
            self.markers = settings_as(Markers, mapping.episodes, source=source, group="episodes")
        marks = [each.topic for each in (self.markers, self.success) if each is not None]
        self.topics = {entry.topic for entry in self.all.values()} | {*marks}

    def limit(self, name: str) -> float:
        """Return the largest age [s] at which a value of this entry is still used."""
        given = self.all[name].most_gap
        return self.mapping.most_gap if given is None else given


def read_mapping(path: Path) -> Entries:
    """Return the mapping in a YAML file; raises InvalidSetting or UnknownName that names the key."""
    return Entries(settings_as(BagMapping, read_yaml(path), source=str(path)), str(path))


def _entry(given: Any, source: str, group: str) -> Entry:
    found: Entry = settings_as(Entry, given, source=source, group=group)
    for name in ("low", "high"):
        limits = getattr(found, name)
        if limits is not None and not all(map(math.isfinite, limits)):
            raise InvalidSetting(f"{source}: {group}.{name} is not finite.", got=limits, allowed="finite numbers")
    if found.most_gap is not None and not found.most_gap > 0:
        raise InvalidSetting(f"{source}: {group}.most_gap is out of range.", got=found.most_gap, allowed="above 0 [s], or .inf")
    if found.size is not None and not all(1 <= side <= 8192 for side in found.size):
        raise InvalidSetting(f"{source}: {group}.size is out of range.", got=found.size, allowed="height and width, 1 to 8192")
    return found
