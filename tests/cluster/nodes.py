"""Begins a cluster of several nodes on loopback, says where and with which processes, and ends it with its input.

usage: nodes.py CORES ...     of each node, the head first; the token comes from the environment
"""

from __future__ import annotations

import json
import os
import sys

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
os.environ |= {"RAY_worker_niceness": "0"}  # 15 by default: beside other tests next to nothing

from ray.cluster_utils import Cluster


def pids(node) -> dict[str, int]:
    return {kind: each[0].process.pid for kind, each in node.all_processes.items() if each}


if __name__ == "__main__":
    head, *others = map(float, sys.argv[1:])
    cluster = Cluster(True, head_node_args={"num_cpus": head, "include_dashboard": False})
    nodes = [cluster.head_node, *(cluster.add_node(num_cpus=cores) for cores in others)]
    print(json.dumps({"address": cluster.address, "nodes": [pids(node) for node in nodes]}), flush=True)
    sys.stdin.read()
    cluster.shutdown()
