"""Hosts on one machine: network namespaces with addresses of their own, joined by a bridge, each with its own processes and
files. All of it lasts as long as the standard input of its first process, so that nothing is left, however a test ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

KEEP = ["cat"]
"""The first process of a namespace: ends with its input, and where it has processes of its own, these end with it."""


class NoHosts(Exception):
    """This machine does not let us make any, for the reason that is said."""


class Switch:
    """A bridge in a namespace of its own."""

    def __init__(self) -> None:
        try:
            self._process = begun("unshare", "--net", *KEEP)
        except OSError as error:
            raise NoHosts(str(error)) from None
        try:
            self._run("link", "add", "name", "bridge", "type", "bridge")
            self._run("link", "set", "dev", "bridge", "up")
        except NoHosts:
            self.end()
            raise

    def join(self, name: str, pid: int) -> None:
        """Lays a line to the namespace of a process, where it is called eth0."""
        self._run("link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self._run("link", "set", "dev", name, "master", "bridge", "up")

    def cut(self, name: str) -> None:
        """Takes a line down."""
        self._run("link", "set", "dev", name, "down")

    def mend(self, name: str) -> None:
        """Takes it up again."""
        self._run("link", "set", "dev", name, "up")

    def end(self) -> None:
        """Ends it."""
        self._process.communicate()

    def _run(self, *words: str) -> None:
        ran("nsenter", "--target", str(self._process.pid), "--net", "ip", *words)


class Host:
    """A host; its processes cannot outlive it."""

    def __init__(self, switch: Switch, name: str, address: str, hidden: Sequence[Path] = ()) -> None:
        """hidden: folders that are empty here, and nobody else's."""
        self.name, self.address = name, address
        self._begun: list[subprocess.Popen] = []
        self._process = begun("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", *KEEP)
        try:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            self._first = int(children.read_text())
            self._space = os.readlink(f"/proc/{self._first}/ns/pid")
            switch.join(name, self._first)
            for each in hidden:
                ran(*self.words("mount", "-t", "tmpfs", "none", str(each)))
            for line in (f"addr add {address}/24 dev eth0", "link set dev eth0 up", "link set dev lo up"):
                ran(*self.words("ip", *line.split()))
        except Exception:
            self.end()
            raise

    def words(self, *words: str) -> list[str]:
        """Returns a command as it is to be given to have it run on this host, in the folder of the same name."""
        return ["nsenter", "--target", str(self._first), "--net", "--mount", "--pid", f"--wdns={Path.cwd()}", *words]

    def begin_node(self, *words: str, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Begins a node of a cluster, as a person would."""
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--node-ip-address", self.address, *words]
        with log.open("a") as told:
            self._begun.append(subprocess.Popen(self.words(*start), stdout=told, stderr=told, env=dict(environment)))
        return self._begun[-1]

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begins a process of which one line is awaited."""
        process = subprocess.Popen(self.words(*words), stdout=subprocess.PIPE, text=True)
        self._begun.append(process)
        process.stdout.readline()
        return process

    def workers(self) -> list[int]:
        """Returns the processes here that are workers of ours, or trainings that these began."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "ns/pid") == self._space:
                    command = (path / "cmdline").read_bytes()
                    found += [int(path.name)] if b"ray::Host" in command or b"robo_cli.job" in command else []
            except OSError:  # it has ended
                continue
        return found

    def end(self) -> None:
        """Ends it, with all of its processes."""
        self._process.communicate()
        for each in self._begun:
            each.communicate()


def begun(*words: str) -> subprocess.Popen[str]:
    """Returns a process that repeats its input, once it is there; raises NoHosts."""
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        process.stdin.write("there\n")
        process.stdin.flush()
        if process.stdout.readline():
            return process
    except BrokenPipeError:
        pass
    process.stdin = None
    raise NoHosts(f"{' '.join(words)}: {process.communicate()[1].strip()}")


def ran(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise NoHosts(f"{' '.join(words)}: {done.stderr.strip()}")
