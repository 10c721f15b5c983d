"""Try to join a cluster, and leave it at once: python -m robo_rl.cluster.entrance HOST:PORT."""

from __future__ import annotations

import sys

from robo_rl.cluster.connection import ray_library


def main(address: str) -> None:
    """Returns where the cluster let us in; otherwise ends with status 1 and says why not."""
    ray = ray_library()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # whatever it is, it is what the user is told
        sys.exit(f"{type(error).__name__}: {error}" + (f" ({error.__cause__})" if error.__cause__ else ""))
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
