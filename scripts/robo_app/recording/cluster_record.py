"""Recording on a cluster: workers get seeds and return episodes, which this process writes in the order of the seeds."""

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
"""A worker is lost if it does not answer for half an hour: an episode may be long, and its simulator slow."""
AGAIN = "what is recorded is kept; go on with --append and --seed, which is the first that is missing, and --episodes, the rest"
"""Advice in the error that is raised when the connection to the cluster is lost."""
AHEAD = 2
"""Number of episodes per worker that may be finished before an earlier one is."""


def recorded_at(
    where: str, writer: DatasetWriter, seeds: Sequence[int], settings: Mapping[str, Any], workers: int = 0
) -> Generator[Entry, None, None]:
    """Record an episode for each seed, and yield its catalogue entry once it is stored, in the order of the seeds.

    Args:
        where: "auto" or the address of the cluster.
        writer: Writer of the dataset.
        seeds: Reset seeds.
        settings: Settings of the workers (NodeRecorder): environment, policy and so on.
        workers: Number of concurrent environments; 0 for one per core of the cluster. If the arguments name servers there are
        at
            most as many workers as servers.
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
    """Return the arguments of the environment for each of `count` workers; each named server goes to one worker.

    Raises InvalidSetting if the host of the servers is a local address and the cluster has several machines.
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
