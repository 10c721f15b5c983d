"""Labelling on a cluster: this process sends the files of episodes to workers, and writes the labels that come back."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from typing import Any

import numpy as np

from robo_app.cluster.node_answers import asks_judges, begin_ledger, require_shareable
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.labelling import Answers
from robo_rl.cluster.connection import connected
from robo_rl.cluster.task_pool import TaskPool
from robo_rl.protocols.rewards import RewardModel
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.system.threads import threads_in_use
from robo_rl.types import RewardLabels

NODE = "robo_app.cluster.node_label:NodeLabeller"


def labelled_at(
    where: str, dataset: Dataset, model: RewardModel, named: tuple[str, Mapping[str, Any]], workers: int = 0
) -> Answers:
    """Return a function that labels episodes on a cluster; it connects to the cluster when it is first used.

    Args:
        where: "auto" or the address of the cluster.
        dataset: Dataset of the episodes.
        model: The reward model, as built here.
        named: Name and settings of the reward, from which each node builds it.
        workers: Number of workers; 0 for as many as the cores of the cluster allow. Each has as many threads as this process,
            because the last digits of sums depend on them.

    Raises:
        InvalidSetting: Only one process can use the reward.
    """
    require_shareable(model)
    threads = threads_in_use()

    def labelled(missing: Sequence[Entry]) -> Generator[tuple[Entry, RewardLabels], None, None]:
        if not missing:
            return
        with connected(where) as cluster:
            cores = min(float(threads), cluster.largest)
            count = min(len(missing), workers or max(1, int(cluster.cores // cores)))
            setup = packed(
                {
                    "reward": named[0],
                    "settings": dict(named[1]),
                    "identity": list(model.identity),
                    "spec": dataset.spec.to_json(),
                    "threads": threads,
                    "workers": count,
                }
            )
            kept = begin_ledger(cluster) if asks_judges(model) else None
            with (
                nullcontext(kept),
                closing(TaskPool(cluster, NODE, [setup] * count, cores=cores, say=_say)) as pool,
            ):
                for number, result in pool.results(_task(dataset, entry) for entry in missing):
                    yield missing[number], RewardLabels(**unpacked(result))

    return labelled


def _task(dataset: Dataset, entry: Entry) -> bytes:
    content = (dataset.path / "episodes" / entry.file).read_bytes()
    return packed({"name": entry.file, "content": np.frombuffer(content, np.uint8)})


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())  # stderr, since the progress bar owns the standard output
