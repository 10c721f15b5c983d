"""Recording on a cluster: seeds go out, episodes come back in their order; only this process writes the dataset."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import DatasetWriter
from robo_rl.cluster.connection import Cluster, connected
from robo_rl.cluster.environment import LOOPBACK
from robo_rl.cluster.task_pool import TaskPool
from robo_rl.cluster.workers import Timeouts
from robo_rl.errors import InvalidSetting
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.system.threads import threads_in_use
from robo_sims.carla.connection import STAND_IN

NODE = "robo_app.recording.node_record:NodeRecorder"
TIMEOUTS = Timeouts(answer=1800.0)
"""An episode may be long, and its simulator slow."""
AGAIN = "what is recorded is kept; go on with --append and --seed, which is the first that is missing, and --episodes, the rest"
"""Remedy if the cluster is gone."""
AHEAD = 2
"""Episodes for each worker that may wait for an earlier one."""


def recorded_at(
    where: str, writer: DatasetWriter, seeds: Sequence[int], settings: Mapping[str, Any], workers: int = 0
) -> Generator[Entry, None, None]:
    """Yield the entry of each seed's episode once it is stored, in the order of the seeds, as in a local recording.

    settings: of a NodeRecorder. workers: concurrent environments, 0 for one per core of the cluster; if servers are
    named, at most their number.
    """
    threads = threads_in_use()
    with connected(where, again=AGAIN) as cluster:
        cores = min(float(threads), cluster.largest)
        count = min(len(seeds), workers or max(1, int(cluster.cores // cores)))
        facts = {**settings, "spec": writer.dataset.spec.to_json(), "threads": threads}
        setups = [packed({**facts, "arguments": each}) for each in arguments_of_workers(settings["arguments"], count, cluster)]
        with closing(TaskPool(cluster, NODE, setups, cores=cores, timeouts=TIMEOUTS)) as pool:
            for _, result in pool.results((str(seed).encode() for seed in seeds), ahead=AHEAD * len(setups)):
                message = unpacked(result)
                yield writer.store(Entry(**message["entry"]), message["content"].tobytes())


def arguments_of_workers(arguments: Mapping[str, Any], count: int, cluster: Cluster) -> list[dict[str, Any]]:
    """Return the environment arguments of each worker: a named server belongs to one worker.

    Raises InvalidSetting if the server's address is local to each machine.
    """
    host, ports = arguments.get("host"), arguments.get("port")
    if host in (None, STAND_IN):
        return [dict(arguments)] * count
    if host in LOOPBACK and len(cluster.addresses) > 1:
        raise InvalidSetting(
            "Each machine of the cluster would look for the server on itself.",
            got=host,
            allowed="an address that all of them reach: " + ", ".join(sorted(cluster.addresses)),
            fix="name it by --carla-host, or leave host and port out to have each worker begin a stand-in",
        )
    if not isinstance(ports, Sequence):
        return [dict(arguments)]
    return [{**arguments, "port": port} for port in ports[:count]]
