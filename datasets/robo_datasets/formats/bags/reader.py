"""Episodes of bags: every mapped topic is read, ordered by one clock, and resampled to the control rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from robo_datasets.formats.bags.draft import draft_of
from robo_datasets.formats.bags.files import Bag, bags_in, is_bag
from robo_datasets.formats.bags.mapping import REWARD, Entries, Entry, read_mapping
from robo_datasets.formats.bags.messages import FIELDS, PICTURES, Decoder, header_stamp, numbers_of, picture_of
from robo_datasets.formats.bags.resampling import SECOND, Signal, Steps, Times, in_order, steps_between, used
from robo_datasets.formats.recording import Actions, Array, Foreign, MappedReader, Recording, within
from robo_rl.errors import DatasetError, InvalidSetting, UnknownName
from robo_rl.spec.environment import ArraySpec, ObservationSpec

Clock = Literal["header", "log"]
CLOCKS = {"header": "the stamps of the headers", "log": "those of the recorder"}


@dataclass(frozen=True)
class RosBag(MappedReader):
    """Reader of ROS 2 bags and MCAP files that follows a mapping of their topics."""

    mapping: Entries | None = None
    name = "rosbag"

    def recognizes(self, source: Path) -> bool:
        """Return whether a file or folder looks like a bag."""
        return is_bag(source)

    def mapped(self, path: Path) -> RosBag:
        """Return a reader with the mapping of a YAML file."""
        return RosBag(read_mapping(path))

    def read(self, source: Path) -> Foreign:
        """Open bags; raises DatasetError with a draft of a mapping if there is none."""
        bags = bags_in(source)
        if (entries := self.mapping) is None:
            raise draft_of(source, bags)
        readings = [_Reading(bag, entries) for bag in bags]
        plans = [plan for reading in readings for plan in reading.plans]
        parts = [part for reading in readings for part in reading.notes]
        return Foreign(
            lambda: (recording for reading in readings for recording in reading.recordings()),
            _observation(entries, readings),
            _actions(entries, readings, [(plan.name, plan.actions) for plan in plans]),
            name=source.name,
            control_period=1 / entries.mapping.rate,
            notes=(*_counts(entries, readings), *parts),
        )


FORMAT = RosBag()


@dataclass
class _Track:
    """Messages of one topic in a bag, in the order of the file."""

    type: str
    logged: list[int] = field(default_factory=list)
    stamped: list[int | None] = field(default_factory=list)
    values: dict[str, list[Array]] = field(default_factory=dict)
    """entry -> numbers of each message"""
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """entry -> labels of its numbers"""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """entry -> shape of its first picture"""
    marks: list[Any] = field(default_factory=list)
    """value of the episode marker or of success in each message; None on topics that have neither"""


@dataclass(frozen=True)
class _Plan:
    """Episode, all but its pictures."""

    name: str
    steps: Steps
    numbers: Mapping[str, Array]
    pictures: Mapping[str, Times]
    """entry -> (T+1,) numbers of messages in the file"""
    actions: Array
    rewards: Array | None
    success: bool | None


class _Reading:
    """First pass over a bag: times and numbers of the mapped topics, and the episodes made of them."""

    def __init__(self, bag: Bag, entries: Entries) -> None:
        self._bag, self._entries = bag, entries
        self.notes: list[str] = []
        self.tracks = self._tracks()
        missing = sorted(entries.topics - set(self.tracks))
        if missing:
            raise UnknownName(f"topic of {bag.name}", missing[0], self._seen, fix="correct the mapping, or leave this bag out")
        self.clock = self._clock()
        self.orders = {topic: self._order(topic, track) for topic, track in self.tracks.items()}
        self.plans = [self._plan(*episode) for episode in self._episodes()]

    def recordings(self) -> Iterator[Recording]:
        """Yield the episodes; pictures are read now, in a second pass."""
        pictures = _Pictures(self._bag, self._entries, self.plans)
        for number, plan in enumerate(self.plans):
            yield Recording(
                {name: plan.numbers[name] if name in plan.numbers else pictures.of(number, name) for name in self._observed},
                plan.actions,
                plan.rewards,
                success=plan.success,
                instruction=self._entries.mapping.instruction,
                timestamps=plan.steps.ticks / SECOND,
                name=plan.name,
                remarks=plan.steps.remarks,
            )

    @property
    def _observed(self) -> list[str]:
        return [*self._entries.observations]

    def _tracks(self) -> dict[str, _Track]:
        """Read all messages of the mapped topics, and return topic -> track."""
        entries, decoder, found = self._entries, Decoder(), dict[str, _Track]()
        self._seen = set[str]()
        of_topic: dict[str, list[tuple[str, Entry]]] = {}
        for name, entry in entries.all.items():
            of_topic.setdefault(entry.topic, []).append((name, entry))
        for raw in self._bag.messages(self.notes.append):
            topic = raw.topic.name
            self._seen.add(topic)
            if topic not in entries.topics:
                continue
            track, message = found.setdefault(topic, _Track(raw.topic.type)), decoder.decode(raw)
            number = len(track.logged)
            track.logged.append(raw.logged)
            track.stamped.append(header_stamp(message))
            try:
                for name, entry in of_topic.get(topic, ()):
                    self._take(track, name, entry, message)
                track.marks.append(self._mark(topic, message))
            except DatasetError as error:
                raise DatasetError(f"Message {number} of {topic} in {self._bag.name}: {error}") from None
        return found

    def _take(self, track: _Track, name: str, entry: Entry, message: Any) -> None:
        if track.type in PICTURES:
            if name not in track.shapes:
                track.shapes[name] = picture_of(message, entry.size).shape
            return
        path = FIELDS.get(track.type, "") if entry.field is None else entry.field
        numbers, labels = numbers_of(message, path, entry.names)
        values = track.values.setdefault(name, [])
        if values and len(values[0]) != len(numbers):
            raise DatasetError("The message changes its size.", got=f"{len(numbers)} numbers", allowed=len(values[0]))
        first = track.labels.setdefault(name, labels)
        if first != labels:
            fix = "names: [...] in the mapping brings the joints into one order"
            raise DatasetError("The message changes its order.", got=", ".join(labels), allowed=", ".join(first), fix=fix)
        values.append(numbers)

    def _mark(self, topic: str, message: Any) -> Any:
        """Return what a message says as an episode marker or as success; None on topics that are neither."""
        markers, success = self._entries.markers, self._entries.success
        if markers is not None and topic == markers.topic:
            return _plain_value(message, markers.field)
        if success is not None and topic == success.topic:
            return _plain_value(message, "data" if success.field is None else success.field)
        return None

    def _clock(self) -> Clock:
        """Return the clock by which topics are ordered; raises DatasetError if a topic has no such times."""
        wanted = self._entries.mapping.clock
        without = sorted(topic for topic, track in self.tracks.items() if None in track.stamped)
        if wanted == "header" and without:
            fix = "clock: log in the mapping takes the recorder's times for all"
            raise DatasetError(f"Messages of {without[0]} in {self._bag.name} have no header stamp.", fix=fix)
        return wanted or ("log" if without else "header")

    def _order(self, topic: str, track: _Track) -> tuple[Times, Times]:
        """Return the indices of a topic's messages in the order of their times, and these times [ns]."""
        logged = np.asarray(track.logged, np.int64)
        order = np.argsort(logged, kind="stable")
        times = logged if self.clock == "log" else np.asarray(track.stamped, np.int64)
        limit = self._entries.mapping.most_gap
        kept, lost = in_order(f"{topic} in {self._bag.name}", times[order].tolist(), limit, self.clock)
        if lost:
            self.notes.append(f"{lost} messages of {topic} are not newer than the one before, and left out")
        chosen = order[kept]
        return chosen, times[chosen]

    def _episodes(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield for each episode its name, begin, end, and the begin of the episode after it, times in ns."""
        markers = self._entries.markers
        first = min(int(times[0]) for _, times in self.orders.values())
        last = max(int(times[-1]) for _, times in self.orders.values())
        if markers is None:
            yield self._bag.name, first, last, last + 1
            return
        order, times = self.orders[markers.topic]
        values = [str(self.tracks[markers.topic].marks[number]).lower() for number in order]
        begins = [int(time) for value, time in zip(values, times, strict=True) if value == str(markers.begin).lower()]
        ends = [int(time) for value, time in zip(values, times, strict=True) if value == str(markers.end).lower()]
        if not begins:
            got, allowed = ", ".join(sorted(set(values))), str(markers.begin).lower()
            raise DatasetError(
                f"No message of {markers.topic} in {self._bag.name} begins an episode.", got=got, allowed=allowed
            )
        for index, begin in enumerate(begins):
            following = begins[index + 1] if index + 1 < len(begins) else last + 1
            end = next((time for time in ends if begin < time <= following), None)
            if end is None:
                self.notes.append(
                    f"{self._bag.name}: an episode has no end marker, and lasts until the next one or the bag ends"
                )
            yield f"{self._bag.name} episode {index}", begin, following - 1 if end is None else end, following

    def _plan(self, name: str, begin: int, end: int, following: int) -> _Plan:
        entries, mapping = self._entries, self._entries.mapping
        signals = {
            key: Signal(entry.topic, self.orders[entry.topic][1], entries.limit(key), key in entries.actions or key == REWARD)
            for key, entry in entries.all.items()
        }
        at_end, cuts = mapping.actions_at == "end", mapping.gaps == "cut"
        steps = steps_between(signals, begin, end, mapping.rate, cuts=cuts, at_end=at_end, name=name)
        numbers, pictures = {}, {}
        for key, entry in entries.all.items():
            chosen = self.orders[entry.topic][0][steps.indices[key]]
            track = self.tracks[entry.topic]
            if track.type in PICTURES:
                pictures[key] = chosen
            else:
                numbers[key] = np.array([track.values[key][number] for number in chosen])
                self._require_finite(name, entry, numbers[key], steps.ticks)
        for key in (*entries.actions, *([REWARD] if REWARD in entries.all else [])):
            if key in pictures:
                raise InvalidSetting(f"{entries.source}: {entries.all[key].topic} holds pictures.", allowed="numbers")
        rewards = numbers.pop(REWARD, None)
        if rewards is not None and rewards.shape[1] != 1:
            raise InvalidSetting(f"{entries.source}: reward is several numbers.", got=rewards.shape[1], allowed=1)
        actions = np.concatenate([numbers.pop(key) for key in entries.actions], axis=1)
        success = self._success(begin, following)
        return _Plan(name, steps, numbers, pictures, actions, None if rewards is None else rewards[:, 0], success)

    def _require_finite(self, name: str, entry: Entry, values: Array, ticks: Times) -> None:
        wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(wrong):
            got = f"{values[wrong[0]].tolist()} at {(ticks[wrong[0]] - ticks[0]) / SECOND:.2f} s, {len(wrong)} steps in all"
            fix = "leave the topic out of the mapping, or this bag"
            raise DatasetError(f"{name}: {entry.topic} holds NaN or infinity.", got=got, allowed="finite numbers", fix=fix)

    def _success(self, begin: int, following: int) -> bool | None:
        wanted = self._entries.success
        if wanted is None:
            return None
        order, times = self.orders[wanted.topic]
        inside = [self.tracks[wanted.topic].marks[n] for n, time in zip(order, times, strict=True) if begin <= time < following]
        return bool(inside[-1]) if inside else None


class _Pictures:
    """Pictures of the episodes of a bag, read in the order of the file; those of one episode are held at a time."""

    def __init__(self, bag: Bag, entries: Entries, plans: Sequence[_Plan]) -> None:
        self._plans, self._entries = plans, entries
        names = {name for plan in plans for name in plan.pictures}
        self._last = {name: {int(n): at for at, plan in enumerate(plans) for n in plan.pictures[name]} for name in names}
        self._held: dict[str, dict[int, Array]] = {name: {} for name in names}
        self._messages = self._read(bag) if names else iter(())

    def of(self, at: int, name: str) -> Array:
        """Return the pictures (T+1, H, W, 3) of an episode; episodes must be asked for in their order."""
        wanted, held = self._plans[at].pictures[name], self._held[name]
        while any(int(number) not in held for number in wanted):
            next(self._messages)
        found = [held[int(number)] for number in wanted]
        if shapes := {picture.shape for picture in found} - {found[0].shape}:
            topic, fix = self._entries.all[name].topic, "size: [HEIGHT, WIDTH] in the mapping scales all to one size"
            raise DatasetError(f"Pictures of {topic} change their size.", got=sorted(shapes), allowed=found[0].shape, fix=fix)
        self._held[name] = {number: picture for number, picture in held.items() if self._last[name][number] > at}
        return np.stack(found)

    def _read(self, bag: Bag) -> Iterator[None]:
        """Read the file on; yield after each picture that is held."""
        decoder, counts = Decoder(), dict[str, int]()
        of_topic = {self._entries.all[name].topic: [] for name in self._held}  # type: dict[str, list[str]]
        for name in self._held:
            of_topic[self._entries.all[name].topic].append(name)
        for raw in bag.messages():
            topic = raw.topic.name
            number = counts[topic] = counts.get(topic, -1) + 1
            wanted = [name for name in of_topic.get(topic, ()) if number in self._last[name]]
            if not wanted:
                continue
            message = decoder.decode(raw)
            for name in wanted:
                try:
                    self._held[name][number] = picture_of(message, self._entries.all[name].size)
                except DatasetError as error:
                    raise DatasetError(f"Message {number} of {topic} in {bag.name}: {error}") from None
            yield
        raise DatasetError(f"{bag.name} has changed while it was read.", fix="wait until it is recorded, and try again")


def _plain_value(message: Any, path: str) -> Any:
    """Return text, number or truth value of a field; raises DatasetError for anything else."""
    value = message
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    if not isinstance(value, str | bool | int | float | np.number | np.bool_):
        raise DatasetError(f"The field {path!r} is no single value.", got=type(value).__name__, allowed="text, number, bool")
    return value.item() if isinstance(value, np.generic) else value


def _observation(entries: Entries, readings: Sequence[_Reading]) -> ObservationSpec:
    arrays = []
    for name, entry in entries.observations.items():
        track = readings[0].tracks[entry.topic]
        if track.type in PICTURES:
            arrays.append(ArraySpec(name, track.shapes[name], "uint8", 0, 255, role="image"))
            continue
        size, labels = len(track.values[name][0]), _labels(entries, readings, name)
        meaning = ", ".join(labels) if any(labels) else ""
        arrays.append(ArraySpec(name, (size,), unit=entry.unit, meaning=meaning))
    return ObservationSpec(tuple(arrays))


def _labels(entries: Entries, readings: Sequence[_Reading], name: str) -> tuple[str, ...]:
    """Return the labels of an entry; raises DatasetError if bags differ in number or order, InvalidSetting for wrong names."""
    topic = entries.all[name].topic
    first = readings[0].tracks[topic].labels[name]
    for reading in readings:
        labels = reading.tracks[topic].labels[name]
        if labels != first:
            got, fix = ", ".join(labels), "names: [...] in the mapping brings joints into one order"
            raise DatasetError(f"{topic} differs between bags.", got=got, allowed=", ".join(first), fix=fix)
    names = entries.all[name].names
    if names and len(names) != len(first):
        what = f"{entries.source}: {topic} has not as many numbers as names."
        raise InvalidSetting(what, got=f"{len(first)} numbers", allowed=f"{len(names)} names")
    return names or first


def _actions(entries: Entries, readings: Sequence[_Reading], parts: Sequence[tuple[str, Array]]) -> Actions:
    least, most = within(parts)
    names: list[str] = []
    units: list[str] = []
    low, high = list(least), list(most)
    for name, entry in entries.actions.items():
        labels = _labels(entries, readings, name)
        start, stop = len(names), len(names) + len(labels)
        names += labels
        units += [entry.unit] * len(labels)
        for ends, wanted, key in ((low, entry.low, "low"), (high, entry.high, "high")):
            if wanted is not None and len(wanted) != len(labels):
                what = f"{entries.source}: {key} of {entry.topic} has not one number for each of the action."
                raise InvalidSetting(what, got=len(wanted), allowed=len(labels))
            ends[start:stop] = ends[start:stop] if wanted is None else list(wanted)
    is_given = any(entry.low is not None or entry.high is not None for entry in entries.actions.values())
    return Actions(
        len(names),
        tuple(low) if is_given else None,
        tuple(b if b > a else a + 1 for a, b in zip(low, high, strict=True)) if is_given else None,
        least,
        most,
        tuple(names),
        are_normalized=False,
        units=tuple(units),
        mode=entries.mapping.mode,
    )


def _counts(entries: Entries, readings: Sequence[_Reading]) -> Iterator[str]:
    """Yield remarks on the clock, and on the messages that no step uses."""
    for clock in sorted({reading.clock for reading in readings}):
        yield f"times are {CLOCKS[clock]} (clock: {clock})"
    rate = f"{entries.mapping.rate:g} steps a second"
    for topic in sorted({entry.topic for entry in entries.all.values()}):
        keys = [key for key, entry in entries.all.items() if entry.topic == topic]
        total = sum(len(reading.tracks[topic].logged) for reading in readings)
        taken = sum(
            used(len(reading.tracks[topic].logged), [plan.steps.indices[key] for plan in reading.plans for key in keys])
            for reading in readings
        )
        yield f"{topic}: {total - taken} of {total} messages are dropped at {rate}"
