"""The command that serves, as a stranger would use it."""

import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("msgpack")

from robo_sims.carla.connection import VERSION, server_version

COMMAND = [sys.executable, "-m", "robo_cli.main", "carla-server"]


@pytest.mark.slow
def test_server_prints_address_answers_and_stops_on_interrupt():
    process = subprocess.Popen([*COMMAND, "--port", "0", "--map", "ring", "--traffic", "3"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        port = int(re.search(r"carla.Client\('127.0.0.1', (\d+)\)", line)[1])
        assert "map ring" in line and server_version("127.0.0.1", port, 10.0) == VERSION
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0 and process.stdout.read() == "ended\n"
    finally:
        process.kill()
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"), [(["--map", "gird"], "did you mean 'grid'"), (["--port", "70000"], "Option 'port' is out of range")]
)
def test_what_cannot_be_served_is_one_error(arguments, said):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and said in done.stderr
    assert "Traceback" not in done.stderr
