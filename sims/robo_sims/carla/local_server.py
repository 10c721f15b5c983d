"""Stand-in server as a child process, stopped with its parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from carla_standin.errors import StandInError
from carla_standin.server import Options
from robo_rl.errors import InvalidSetting, ServerUnavailable
from robo_rl.system.supervised_process import SupervisedProcess

START, STOP = 60.0, 5.0
"""[s] timeout of the start, and grace period before it is killed."""
MOST_SAID = 1 << 20
"""Characters of its log to keep."""


class StandIn:
    """Stand-in server process; `host` and `port` are the arguments of `carla.Client`, settings are those of `Options`."""

    def __init__(self, **settings: Any) -> None:
        try:
            self.options = Options(**{"port": 0} | settings)
        except StandInError as error:
            raise InvalidSetting(error.what, got=error.got, allowed=error.allowed, fix=error.fix) from None
        self.process: SupervisedProcess | None = None
        self.port = 0
        self._said = ""

    @property
    def host(self) -> str:
        """Address of the server."""
        return self.options.host

    def start(self) -> StandIn:
        """Start the server and wait until it listens; raises ServerUnavailable with its log."""
        self.process = SupervisedProcess(
            [sys.executable, "-m", "carla_standin.server", json.dumps(asdict(self.options))],
            stdin=subprocess.PIPE,  # closed when this process ends for any reason; the server stops then
            stdout=subprocess.PIPE,
            log=tempfile.TemporaryFile(),  # noqa: SIM115 - closed by stop()
            environment=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        )
        line = self.process.ready_line(START)
        if not line:
            self.stop()
            raise ServerUnavailable("The stand-in for CARLA did not start.", got=self.said() or "no answer in time")
        self.port = int(json.loads(line)["port"])
        self.options = replace(self.options, port=self.port)
        return self

    def said(self) -> str:
        """Return the log of the server."""
        if self.process is not None:
            self._said = self.process.output(MOST_SAID)
        return self._said

    def processor_seconds(self) -> float:
        """Return the processor time [s] used by the server; 0 on systems without /proc."""
        stat = Path(f"/proc/{self.process.pid}/stat" if self.process else "")
        if not stat.is_file():
            return 0.0
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime of proc(5)

    def stop(self) -> None:
        """Stop the server; may be called again."""
        if self.process is not None:
            self.said()
            self.process.stop(STOP)
            self.said()
            self.process = None

    def __enter__(self) -> StandIn:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
