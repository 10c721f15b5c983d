"""Label a dataset with a reward model, episode by episode. The work can be stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace

import numpy as np

from robo_datasets.cache import Watch
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset, dataset_lock, require_no_links
from robo_datasets.label_cache import LabelCache, Maker
from robo_datasets.labels import LabelSet
from robo_rl.errors import DatasetBusy, InvalidSetting, RoboRLError
from robo_rl.protocols.rewards import RewardModel
from robo_rl.system.prefetch import prefetched
from robo_rl.types import RewardLabels

Answers = Callable[[Sequence[Entry]], Generator[tuple[Entry, RewardLabels], None, None]]
"""Function that yields the labels of the given episodes, one by one and in any order"""


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
    """Label all episodes of a dataset that have no labels in the set `name`, or that have steps without a label (gaps).

    The labels of an episode are stored durably before the model gets the next episode. So a killed process repeats only the
    episodes in progress. Episodes with gaps are labelled again, because an answer of the model may have been missing for a
    while; if the model is not available, or with `replay`, the gaps remain.

    Args:
        dataset: Dataset to label.
        model: Reward model.
        name: Name of the label set.
        watch: Passes the episodes on one by one; may show progress.
        cache: Cache whose labels are used first, and to which new ones are added; None for no cache.
        replay: True to use only the cache, and never the model.
        answers: Runs the model elsewhere; None to run it in this process.

    Returns:
        The number of episodes that had no labels, or gaps.

    Raises:
        InvalidSetting: The set has labels of another model. Or the cache lacks labels, and the model is not available or not
            to be used.
        DatasetBusy: Another process labels the set.
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
                f"The model is not available, and the cache lacks its labels of {len(missing)} of {len(pending)} episodes.",
                got=problem,
            ) from problem
        with closing((answers or _answers_here(dataset, model))(missing)) as found:
            for _, (entry, answer) in zip(watch(missing), found, strict=True):
                if cache is not None and not model.keeps_answers:
                    cache.add(maker, entry, answer)
                labels.add(entry.identity, answer)
    return len(pending)


def _answers_here(dataset: Dataset, model: RewardModel) -> Answers:
    """Return a function that labels episodes in this process, in their order."""

    def labelled(missing: Sequence[Entry]) -> Generator[tuple[Entry, RewardLabels], None, None]:
        with closing(prefetched(dataset.read, missing)) as episodes:  # reads ahead of the model
            yield from zip(missing, model.label_all(episodes), strict=True)

    return labelled


def _maker_of(model: RewardModel, cache: LabelCache | None, replay: bool) -> tuple[Maker, RoboRLError | None]:
    """Return the identity of a model, and None; or its identity from the cache, and the reason why the model is not used.

    Raises that reason if the cache does not have the identity either.
    """
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
    """Write a control set: the labels of a set, shuffled over all labelled steps of all episodes.

    A learner that does as well with shuffled labels has not used the judgement of the reward model.

    Args:
        dataset: The dataset.
        source: Name of the set whose labels are shuffled.
        name: Name of the control set.
        seed: Seed of the permutation.

    Returns:
        The number of episodes in the control set.

    Raises:
        UnknownName: There is no set `source`.
        InvalidSetting: The set `source` has no labels of the episodes, or `name` has labels of another model.
    """
    labels = LabelSet.existing(dataset, source)
    with _alone(dataset, name):
        identities = [entry.identity for entry in dataset.entries()]
        found = {identity: read for identity in identities if (read := labels.read(identity)) is not None}
        if not found:
            raise InvalidSetting(f"The label set {source!r} is of none of the episodes.", fix="label them first")
        found = {identity: replace(each, model=f"{each.model}, shuffled with {seed}") for identity, each in found.items()}
        dealt = np.random.default_rng(seed).permutation(np.concatenate([each.values[each.valid] for each in found.values()]))
        ends = np.cumsum([each.valid.sum() for each in found.values()])
        control = {}
        for (identity, each), part in zip(found.items(), np.split(dealt, ends[:-1]), strict=True):
            values = each.values.copy()
            values[each.valid] = part
            control[identity] = replace(each, values=values, confidence=None)
        _write(dataset, name, control)
    return len(found)


def write(dataset: Dataset, name: str, found: Mapping[str, RewardLabels]) -> None:
    """Write labels into the set `name`, all or none.

    Args:
        dataset: The dataset.
        name: Name of the set.
        found: Identity of an episode -> its labels.

    Raises:
        InvalidSetting: The set has labels of another model.
        DatasetBusy: Another process labels the set.
    """
    with _alone(dataset, name):
        _write(dataset, name, found)


def _write(dataset: Dataset, name: str, found: Mapping[str, RewardLabels]) -> None:
    labels = LabelSet(dataset, name)
    _require_same(name, labels.makers, {(each.model, each.weights_hash) for each in found.values()})
    labels.add_all(found)


def _require_same(name: str, there: set[tuple[str, str]], new: set[tuple[str, str]]) -> None:
    """Raise InvalidSetting if a set that has labels of the models `there` would get labels of the models `new`."""
    if there and there != new:
        raise InvalidSetting(
            f"The label set {name!r} is of another model.",
            got=", ".join(map(_described, sorted(new))),
            allowed=", ".join(map(_described, sorted(there))),
            fix="another --name: labels of two models have two scales",
        )


def _described(maker: tuple[str, str]) -> str:
    return f"{maker[0]} ({maker[1]})"


@contextmanager
def _alone(dataset: Dataset, name: str) -> Iterator[None]:
    """Lock a label set against other processes inside the context; raises DatasetBusy if another process has the lock."""
    require_no_links(dataset.path)
    busy = DatasetBusy(f"Another process is labelling {dataset.path} as {name!r}.", fix="wait for it, or give another --name")
    with dataset_lock(dataset.path, f"labels/{name}.lock", busy):
        yield
