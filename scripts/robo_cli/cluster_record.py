"""Recording on a cluster: seeds go out, episodes come back in their order; only this process writes the dataset."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import torch

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import DatasetWriter
from robo_rl.checkpoints import packed, unpacked
from robo_rl.cluster.connection import connected
from robo_rl.cluster.pool import Pool
from robo_rl.cluster.worker import Patience

PATIENCE = Patience(answer=1800.0)
"""An episode may be long, and its simulator slow."""
AHEAD = 2
"""Episodes for each worker that may wait for an earlier one."""


def recorded_at(
    where: str, writer: DatasetWriter, seeds: Sequence[int], settings: Mapping[str, Any], workers: int = 0
) -> Generator[Entry, None, None]:
    """Yields the entry of each seed's episode once it is stored, in the order of the seeds, as if they were played here.

    settings: of a NodeRecorder. workers: environments at once, 0 for as many as the cluster has cores for.
    """
    threads = torch.get_num_threads()
    with connected(where) as cluster:
        cores = min(float(threads), cluster.largest)
        count = min(len(seeds), workers or max(1, int(cluster.cores // cores)))
        setup = packed({**settings, "spec": writer.dataset.spec.to_json(), "threads": threads})
        options: dict[str, Any] = {"count": count, "cores": cores, "patience": PATIENCE}
        with Pool(cluster, "robo_cli.node_record:NodeRecorder", setup, **options) as pool:
            for _, result in pool.results((str(seed).encode() for seed in seeds), ahead=AHEAD * count):
                told = unpacked(result)
                yield writer.store(Entry(**told["entry"]), told["content"].tobytes())
