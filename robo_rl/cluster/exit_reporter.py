"""Print the reason if Ray ends a command from within: a helper process that outlives the command by a moment.

Ray ends a process at once if its node is lost during a request, and after a minute if its head is lost.

python exit_reporter.py DESCRIPTOR HOST:PORT WITHOUT_NODE WITHOUT_HEAD     ends with its input
"""

from __future__ import annotations

import select
import socket
import sys

POLL_PERIOD = 5.0
"""[s] between two checks of the head, and the timeout of its answer."""


def main(descriptor: str, address: str, without_node: str, without_head: str) -> None:
    """Wait until the command ends, which closes the input, then print which loss preceded its end, if any.

    Args:
        descriptor: Number of the inherited socket to Ray's node.
        address: HOST:PORT of the head.
        without_node: Message for a lost node.
        without_head: Message for a lost head.
    """
    said = ""
    with socket.socket(fileno=int(descriptor)) as line:
        awaited = [sys.stdin, line]
        while sys.stdin not in (ready := select.select(awaited, [], [], POLL_PERIOD)[0]):
            if line in ready:  # nothing is ever sent there: it has ended
                said = without_node
                awaited.remove(line)
            elif said != without_node:
                said = "" if _answers(address) else without_head
    if line in ready:
        said = without_node
    if said:
        sys.stderr.write(f"error: {said}\n")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), POLL_PERIOD).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
