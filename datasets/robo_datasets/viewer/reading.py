"""Dataset queries of the viewer's page; episodes and cameras are found by name, never by a path."""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.figures import actor_name
from robo_datasets.labels import LabelSet, label_sets
from robo_datasets.viewer.signals import Signal, encoded_picture, label_signals, pictures_of, signals_of
from robo_rl.errors import DatasetError, DatasetNotFound, InvalidSetting, RoboRLError, UnknownName
from robo_rl.types import ActionSource, Episode

KEPT = 2
"""number of episodes that are kept in memory: one for each of two open windows"""
ROBOT = "robot"
"""prefix of the names of environments in real time; unknown environments count as such"""
LONGEST_NOTE = 4_000
"""largest number of characters of a remark"""


class Reader:
    """Answers the page's queries about one dataset. Thread-safe."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._kept: OrderedDict[str, Episode] = OrderedDict()
        self._reading, self._writing = threading.Lock(), threading.Lock()

    def overview(self) -> dict[str, Any]:
        """Return facts about the dataset, and the entries of its episodes; raises DatasetError if the catalogue is damaged."""
        dataset = self.dataset
        return {
            "path": str(dataset.path),
            "environment": dataset.spec.name,
            "fingerprint": dataset.spec.fingerprint,
            "success_rule": dataset.spec.success_rule,
            "card": dataset.card,
            "label_sets": {name: self._coverage(name) for name in label_sets(dataset)},
            "can_note": os.access(dataset.path, os.W_OK),
            "notes": dataset.catalogue.noted(),
            "episodes": [asdict(entry) for entry in dataset.entries()],
        }

    def describe(self, identity: str) -> dict[str, Any]:
        """Return facts about an episode, such as its cameras and signals, without the numbers.

        If the episode cannot be read, the answer has its entry and the error. Raises DatasetNotFound for another identity.
        """
        entry = self._entry(identity)
        known = {"entry": asdict(entry), "notes": self.dataset.catalogue.notes(identity)}
        try:
            return known | self._content(identity)
        except DatasetError as error:
            return known | {"error": str(error)}

    def signal(self, identity: str, key: str) -> bytes:
        """Return the numbers of a signal of an episode, as `Signal.encoded` does; raises UnknownName if there is none."""
        group, _, name = key.partition("/")
        if group in ("labels", "confidence"):
            labels = LabelSet.existing(self.dataset, name).read(identity)
            found = [] if labels is None else [*label_signals(name, labels)]
        else:
            found = [*self._signals(self._episode(identity))]
        for signal in found:
            if signal.key == key:
                return signal.encoded()
        raise UnknownName("signal", key, [signal.key for signal in found])

    def picture(self, identity: str, camera: str, index: int) -> bytes:
        """Return picture number `index` of a camera as PNG; raises UnknownName if there is none."""
        return encoded_picture(pictures_of(self._episode(identity), self.dataset.spec), camera, index)

    def add_note(self, identity: str, text: str) -> list[str]:
        """Add a remark on an episode and return its remarks; raises DatasetBusy while another process writes."""
        if not (text := text.strip()) or len(text) > LONGEST_NOTE or not _is_unicode(text):
            raise InvalidSetting(
                "A note is not a text.", got=f"{len(text)} characters", allowed=f"1 to {LONGEST_NOTE} characters of Unicode"
            )
        self._entry(identity)
        with self._writing, self.dataset.writer():
            self.dataset.catalogue.note(identity, text)
        return self.dataset.catalogue.notes(identity)

    def _entry(self, identity: str) -> Entry:
        for entry in self.dataset.entries():
            if entry.identity == identity:
                return entry
        raise DatasetNotFound("The dataset has no such episode.", got=identity, fix="look at the list again")

    def _episode(self, identity: str) -> Episode:
        with self._reading:  # concurrent requests for one episode read it once
            if identity not in self._kept:
                self._kept[identity] = self.dataset.read(self._entry(identity))
            self._kept.move_to_end(identity)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[identity]

    def _content(self, identity: str) -> dict[str, Any]:
        episode, spec = self._episode(identity), self.dataset.spec
        labels = [self._labels(name, identity) for name in label_sets(self.dataset)]
        signals = [*self._signals(episode), *(signal for _, found in labels for signal in found)]
        cameras = {name: values.shape[1:3] for name, values in pictures_of(episode, spec).items()}
        return {
            "cameras": [{"name": name, "height": height, "width": width} for name, (height, width) in cameras.items()],
            "signals": [signal.describe() for signal in signals],
            "labels": [facts for facts, _ in labels],
            "actors": {actor_name(code): count for code, count in sorted(Counter(episode.sources.tolist()).items())},
            "source_names": {str(source.value): source.name.lower() for source in ActionSource},
            "interventions": [[stretch.start, stretch.stop] for stretch in episode.interventions],
            "action": asdict(spec.action),
            "instruction": episode.instruction,
            "metadata": episode.metadata,
        }

    def _signals(self, episode: Episode) -> Iterator[Signal]:
        made_in = str(self.dataset.card.get("environment") or ROBOT)
        return signals_of(episode, self.dataset.spec, is_simulated=not made_in.startswith(ROBOT))

    def _labels(self, name: str, identity: str) -> tuple[dict[str, Any], list[Signal]]:
        """Return facts about the labels that a label set has of an episode, and their signals."""
        try:
            labels = LabelSet(self.dataset, name).read(identity)
        except RoboRLError as error:
            return {"name": name, "error": str(error)}, []
        if labels is None:
            return {"name": name, "steps": 0, "missing": None}, []
        facts = {"name": name, "steps": len(labels.valid), "missing": int((~labels.valid).sum())}
        facts |= {"model": labels.model, "weights_hash": labels.weights_hash, "prompt_hash": labels.prompt_hash}
        return facts, [*label_signals(name, labels)]

    def _coverage(self, name: str) -> int | str:
        try:
            return len(LabelSet(self.dataset, name).labelled)
        except RoboRLError as error:
            return str(error)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair, which JSON can spell
        return False
    return True
