"""Label a dataset with a reward model, one durable episode after the other; made to be stopped and to go on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace

import numpy as np

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset, dataset_lock, require_no_links
from robo_datasets.label_cache import LabelCache, Maker
from robo_datasets.labels import LabelSet
from robo_rl.errors import DatasetBusy, InvalidSetting, RoboRLError
from robo_rl.protocols.rewards import RewardModel
from robo_rl.system.prefetch import prefetched
from robo_rl.types import RewardLabels

Watch = Callable[[Sequence[Entry]], Iterable[Entry]]
"""Passes entries on one by one, and may show how far that got."""
Answers = Callable[[Sequence[Entry]], Generator[tuple[Entry, RewardLabels], None, None]]
"""Labels episodes, in any order; begins the next one when the labels of one have been taken."""


def label(
    dataset: Dataset,
    model: RewardModel,
    name: str,
    watch: Watch = iter,
    cache: LabelCache | None = None,
    *,
    replay: bool = False,
    answers: Answers | None = None,
) -> int:
    """Labels the episodes that have no labels in the set `name` yet, or gaps, and returns how many it labelled.

    When the model is asked about the next episode, the labels of this one are in a file: nothing is asked twice, whenever the
    process is killed, but what a model that labels several at once had under way. What the cache knows is not asked at all. An
    episode that has gaps, in the set or in the cache, is asked about again, because an answer may have been missing for the
    moment; where the model is gone, or with `replay`, which asks nothing, it has the gaps that it had.
    answers: asks the model somewhere else than here.
    Raises InvalidSetting if the set holds labels of another model, or a model would have to be asked that is gone or must
    not be; DatasetBusy while another process labels the set.
    """
    labels = LabelSet(dataset, name)
    with _alone(dataset, name), labels.held(), nullcontext() if cache is None else cache.held():
        labels.require_sound()
        maker, problem = _maker_of(model, cache, replay)
        _require_same(name, labels.makers, {maker})
        there = labels.labelled if problem is not None else labels.without_gaps
        pending = [entry for entry in dataset.entries() if entry.identity not in there]
        for known in () if cache is None else cache.find(maker, pending, with_gaps=problem is not None):
            labels.add_all(known)
            there |= known.keys()
        missing = [entry for entry in pending if entry.identity not in there]
        if missing and problem is not None:
            raise InvalidSetting(
                f"The model cannot be asked, and the cache lacks its labels of {len(missing)} of {len(pending)} episodes.",
                got=problem,
            ) from problem
        with closing((answers or _answers_here(dataset, model))(missing)) as found:
            for _, (entry, answer) in zip(watch(missing), found, strict=True):
                if cache is not None:
                    cache.add(maker, entry, answer)
                labels.add(entry.identity, answer)
    return len(pending)


def _answers_here(dataset: Dataset, model: RewardModel) -> Answers:
    """Returns what has the model label episodes in this process, in their order."""

    def labelled(missing: Sequence[Entry]) -> Generator[tuple[Entry, RewardLabels], None, None]:
        with closing(prefetched(dataset.read, missing)) as episodes:  # the disk need not be waited for
            yield from zip(missing, model.label_all(episodes), strict=True)

    return labelled


def _maker_of(model: RewardModel, cache: LabelCache | None, replay: bool) -> tuple[Maker, RoboRLError | None]:
    """Returns a model's identity, or what the cache remembers of it and why the model itself is not asked."""
    problem: RoboRLError = InvalidSetting(
        "Labels shall be replayed without asking the model, and the cache does not have them."
    )
    if not replay:
        try:
            maker = model.identity
        except RoboRLError as error:
            problem = error
        else:
            if cache is not None:
                cache.remember(model, maker)
            return maker, None
    if cache is None or (remembered := cache.recalled(model)) is None:
        raise problem
    return remembered, problem


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
        control = {}
        for (identity, each), part in zip(found.items(), np.split(dealt, ends[:-1]), strict=True):
            values = each.values.copy()
            values[each.valid] = part
            control[identity] = replace(each, values=values, confidence=None)
        shuffled.add_all(control)
    return len(found)


def _require_same(name: str, there: set[tuple[str, str]], new: set[tuple[str, str]]) -> None:
    """Raises InvalidSetting if a set that holds labels would get those of another model."""
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
    what, fix = f"Another process is labelling {dataset.path} as {name!r}.", "wait for it, or give another --name"
    with dataset_lock(dataset.path, f"labels/{name}.lock", DatasetBusy(what, fix=fix)):
        yield
