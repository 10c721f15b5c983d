"""Try to join a cluster in a separate process first: Ray retries for minutes, and some of its failures end the process.

python -m robo_rl.cluster.preflight HOST:PORT     joins and leaves the cluster, or prints why that failed
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile

from robo_rl.cluster.environment import AUTO, TOKENS, ray_library
from robo_rl.errors import ClusterUnavailable, InvalidSetting
from robo_rl.system.supervised_process import SupervisedProcess

CONNECT_TIMEOUT = 5.0
"""[s] after which a port without an answer counts as closed."""
OUTPUT_LIMIT = 1 << 20
DRIVER_TIMEOUT = 60.0
"""[s] for a cluster to accept a driver; Ray itself would wait for minutes."""


def require_open(address: str) -> None:
    """Raise InvalidSetting for an invalid address, ClusterUnavailable unless a cluster there accepts this machine."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InvalidSetting("--ray names no cluster.", got=address, allowed=f"{AUTO}, or HOST:PORT of a head: 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
    except OSError as error:
        raise ClusterUnavailable(
            f"No cluster listens at {address}.", got=error, fix="on that machine: RAY_AUTH_MODE=token ray start --head"
        ) from None
    words = [sys.executable, "-m", "robo_rl.cluster.preflight", address]
    with SupervisedProcess(words, log=tempfile.TemporaryFile()) as entering:
        for _ in range(int(DRIVER_TIMEOUT / 0.1)):
            # a wrong token is tried again by Ray for a while
            if entering.wait(0.1) is not None or "InvalidAuthToken" in entering.output(OUTPUT_LIMIT):
                break
        if entering.status != 0:
            raise _refusal(address, entering.output(OUTPUT_LIMIT))


def _refusal(address: str, said: str) -> ClusterUnavailable:
    if "InvalidAuthToken" in said or "no authentication token was found" in said:
        return ClusterUnavailable(
            f"The cluster at {address} does not take this token.",
            got=next((f"the one of {name}" for name in TOKENS if os.environ.get(name)), "none in the environment"),
            fix="the head's own in RAY_AUTH_TOKEN, or in a file that RAY_AUTH_TOKEN_PATH names",
        )
    lines = [line for line in said.splitlines() if line.strip()]
    return ClusterUnavailable(
        f"The cluster at {address} rejects this machine.",
        got="\n           ".join(lines[-6:]) or f"silence for {DRIVER_TIMEOUT:g} s",
        allowed="the same Ray and the same Python there and here, and this machine as a node",
        fix=f"here: RAY_AUTH_MODE=token ray start --address {address}",
    )


def main(address: str) -> None:
    """Join and leave the cluster; exit with status 1 and the reason if that fails."""
    ray = ray_library()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # whatever it is, the user reads it
        sys.exit(f"{type(error).__name__}: {error}" + (f" ({error.__cause__})" if error.__cause__ else ""))
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
