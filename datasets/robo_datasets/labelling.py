"""Label a dataset with a reward model, one durable episode after the other; made to be stopped and to go on."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset, require_no_links
from robo_datasets.labels import LabelSet
from robo_rl.errors import DatasetBusy, DatasetError, InvalidSetting
from robo_rl.protocols import RewardModel

Watch = Callable[[Sequence[Entry]], Iterable[Entry]]
"""Passes entries on one by one, and may show how far that got."""


def label(dataset: Dataset, model: RewardModel, name: str, watch: Watch = iter) -> int:
    """Labels the episodes that have no labels in the set `name` yet, and returns how many it labelled.

    When the next episode is asked for, the labels of this one are on disk: nothing is asked twice, whenever the process ends.
    Raises InvalidSetting where the set holds labels of another model, DatasetBusy while another process labels it.
    """
    labels = LabelSet(dataset, name)
    with _alone(dataset, name):
        _require_same(name, labels.makers, {model.identity})
        there = labels.labelled
        pending = [entry for entry in dataset.entries() if entry.identity not in there]
        for entry in watch(pending):
            labels.add(entry.identity, model.label(dataset.read(entry)))
    return len(pending)


def shuffle(dataset: Dataset, source: str, name: str, seed: int = 0) -> int:
    """Writes the labels of a set, dealt out anew to all its valid steps, as another set, and returns of how many episodes.

    The control of every result with a reward model: a learner that does as well with these has not used the model's judgement.
    Raises UnknownName for a source that is not there, InvalidSetting where it is of none of the episodes or the other set of
    another model.
    """
    labels, shuffled = LabelSet.existing(dataset, source), LabelSet(dataset, name)
    with _alone(dataset, name):
        identities = [entry.identity for entry in dataset.entries()]
        found = {identity: read for identity in identities if (read := labels.read(identity)) is not None}
        if not found:
            raise InvalidSetting(f"The label set {source!r} is of none of the episodes.", fix="label them first")
        found = {identity: replace(each, model=f"{each.model}, shuffled with {seed}") for identity, each in found.items()}
        _require_same(name, shuffled.makers, {(each.model, each.weights_hash) for each in found.values()})
        dealt = np.random.default_rng(seed).permutation(np.concatenate([each.values[each.valid] for each in found.values()]))
        ends = np.cumsum([each.valid.sum() for each in found.values()])
        for (identity, each), part in zip(found.items(), np.split(dealt, ends[:-1]), strict=True):
            values = each.values.copy()
            values[each.valid] = part
            shuffled.add(identity, replace(each, values=values, confidence=None))
    return len(found)


def _require_same(name: str, there: set[tuple[str, str]], new: set[tuple[str, str]]) -> None:
    """Raises InvalidSetting where a set that holds labels would get those of another model."""
    if there and there != new:
        raise InvalidSetting(
            f"The label set {name!r} is of another model.",
            got=", ".join(map(_told, sorted(new))),
            allowed=", ".join(map(_told, sorted(there))),
            fix="another --name: labels of two models have two scales",
        )


def _told(maker: tuple[str, str]) -> str:
    return f"{maker[0]} ({maker[1]})"


@contextmanager
def _alone(dataset: Dataset, name: str) -> Iterator[None]:
    """Keeps a second process from labelling the same set."""
    require_no_links(dataset.path)
    try:
        file = (dataset.path / "labels" / f"{name}.lock").open("a")
    except OSError as error:
        raise DatasetError(
            f"{dataset.path} cannot be written to.", got=error, fix="look at its permissions, or copy it"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DatasetBusy(
                f"Another process is labelling {dataset.path} as {name!r}.", fix="wait for it, or give another --name"
            ) from None
        yield
