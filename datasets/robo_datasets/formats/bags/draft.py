"""Draft of a mapping: the topics of a bag with type and rate, and the YAML file that they suggest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from robo_datasets.formats.bags.files import Bag, RawMessage
from robo_datasets.formats.bags.messages import FIELDS, PICTURES, Decoder, numbers_of
from robo_datasets.formats.recording import flat_name
from robo_rl.errors import DatasetError, printable

COMMANDS = re.compile(r"command|cmd|action|target|goal|desired|setpoint|reference|leader", re.IGNORECASE)
"""Words in the name of a topic that carries commands."""
COMMAND_TYPES = ("trajectory_msgs/msg/JointTrajectory",)
UNITS = {
    "sensor_msgs/msg/JointState": "rad",
    "trajectory_msgs/msg/JointTrajectory": "rad",
    "geometry_msgs/msg/PointStamped": "m",
    "geometry_msgs/msg/Point": "m",
}
MARKS = ("std_msgs/msg/String", "std_msgs/msg/Bool")
"""Types of messages that may mark beginnings and ends of episodes, or successes."""
USUAL = 20.0
"""Rate [1/s] of the steps that a draft of a mapping proposes."""
MOST_TOPICS = 60


@dataclass
class _Seen:
    """What was found on one topic: its first message, times [ns], number of messages, labels or fault."""

    first: RawMessage
    begin: int
    end: int
    count: int = 0
    fault: str = ""
    labels: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Messages per second."""
        return (self.count - 1) / ((self.end - self.begin) * 1e-9) if self.end > self.begin else 0.0


def draft_of(source: Path, bags: Sequence[Bag]) -> DatasetError:
    """Return the error for bags without a mapping: their topics, and a mapping to start from.

    The first bag is read; the others only need to have the same topics.
    """
    damage: list[str] = []
    seen: dict[str, _Seen] = {}
    for raw in bags[0].messages(damage.append):
        found = seen.setdefault(raw.topic.name, _Seen(raw, raw.logged, raw.logged))
        found.begin, found.end, found.count = min(found.begin, raw.logged), max(found.end, raw.logged), found.count + 1
    for found in seen.values():
        _look(found)
    if not seen:
        return DatasetError(f"{source} has no messages.", got="; ".join(damage) or None, fix="record again")
    listing = [_line(name, found) for name, found in sorted(seen.items())]
    more = [f"... ({len(listing)} topics in all)"] if len(listing) > MOST_TOPICS else []
    of = "" if len(bags) == 1 else f", the first of {len(bags)} bags"
    return DatasetError(
        f"{source} needs a mapping of its topics to observations and actions.",
        got="\n    ".join([f"the topics of {bags[0].name}{of}", *listing[:MOST_TOPICS], *more, *damage]),
        allowed="a YAML file, as of docs/data/dataset-formats.md",
        fix="save these lines as bag.yaml, correct them, and add --mapping bag.yaml:\n\n" + "\n".join(_yaml(seen)) + "\n",
    )


def _look(found: _Seen) -> None:
    """Decode the first message of a topic, and note the labels of its numbers, or why it cannot be decoded."""
    kind = found.first.topic.type
    try:
        message = Decoder().decode(found.first)
        if kind not in PICTURES:
            found.labels = [*numbers_of(message, FIELDS.get(kind, ""))[1]]
    except DatasetError as error:
        found.fault = str(error).splitlines()[0]


def _line(name: str, found: _Seen) -> str:
    words = [printable(name, 80), found.first.topic.type, f"{found.count} messages", f"{found.rate:.1f} a second"]
    if found.labels and len(found.labels) <= 16:
        words.append(", ".join(label or "one number" for label in found.labels))
    return "  ".join([*words, *([found.fault] if found.fault else [])])


def _yaml(seen: dict[str, _Seen]) -> Iterator[str]:
    marks = [name for name, found in sorted(seen.items()) if found.first.topic.type in MARKS]
    usable = {
        name: found
        for name, found in sorted(seen.items())
        if name not in marks and (found.labels or found.first.topic.type in PICTURES)
    }
    commands = [name for name, found in usable.items() if _is_command(name, found)]
    observed = [name for name in usable if name not in commands]
    rates = [found.rate for found in usable.values() if found.rate > 0]
    rate = min([USUAL, *rates]) if rates else USUAL
    yield f"rate: {max(round(rate), 1)}  # [1/s] of the episodes"
    yield "most_gap: 0.2  # [s] largest age of a value; .inf for a topic that comes only when it changes"
    yield "observations:" if observed else "observations: {}  # nothing looks like a measurement: NAME: {topic: TOPIC}"
    yield from (f"  {_name(name, observed)}: {_entry(name, usable[name])}" for name in observed)
    yield "actions:" if commands else "actions: []  # no topic looks like a command: - {topic: TOPIC}"
    yield from (f"  - {_entry(name, usable[name])}" for name in commands)
    for name in marks:
        yield f"# episodes: {{topic: {name}, begin: VALUE, end: VALUE}}  # or success: {{topic: {name}}}, if it says that"


def _is_command(name: str, found: _Seen) -> bool:
    kind = found.first.topic.type
    return kind not in PICTURES and (kind in COMMAND_TYPES or bool(COMMANDS.search(name)))


def _name(topic: str, topics: Sequence[str]) -> str:
    """Return a name of an observation: the last words of a topic that no other topic has."""
    parts = topic.strip("/").split("/")
    for count in range(1, len(parts)):
        tail = "/".join(parts[-count:])
        is_word = flat_name(tail) not in ("image_raw", "compressed", "image", "data", "state", "image_raw_compressed")
        if is_word and sum(other.endswith("/" + tail) for other in topics) == 1:
            return flat_name(tail)
    return flat_name("/".join(parts))


def _entry(name: str, found: _Seen) -> str:
    kind, words = found.first.topic.type, [f"topic: {name}"]
    if kind in FIELDS:
        words.append(f"field: {FIELDS[kind]}")
    if kind in PICTURES:
        words.append("size: [120, 160]")
    elif all(re.fullmatch(r"[A-Za-z]\w*", label) for label in found.labels) and "joint" in " ".join((kind, name)).lower():
        words.append(f"names: [{', '.join(found.labels)}]")
    if kind in UNITS:
        words.append(f"unit: {UNITS[kind]}")
    return "{" + ", ".join(words) + "}"
