"""robo-rl data view, as typed."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
import webbrowser
from pathlib import Path

import pytest

from robo_app.display.browser import has_display
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.viewer.server import viewer_server
from robo_rl.environments.make import make_environment
from robo_rl.errors import DatasetNotFound, InvalidSetting
from robo_rl.spec.environment import specification
from robo_rl.system.pages.server import PageServer


@pytest.fixture
def empty() -> Path:
    return Dataset.create(Path("data/empty"), specification(make_environment("minigrid/MiniGrid-Empty-5x5-v0"))).path


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """Addresses that were opened in a browser; the server is ended as by Ctrl-C at once."""

    def interrupt(server: PageServer) -> None:
        raise KeyboardInterrupt

    found = []
    monkeypatch.setattr(PageServer, "wait", interrupt)
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


def test_the_address_is_said_and_opened_where_there_is_a_display(empty, opened, monkeypatch, capsys):
    monkeypatch.setenv("DISPLAY", ":0")
    assert dispatch(["data", "view", str(empty), "--port", "0"]) == 0
    (address,) = opened
    said = capsys.readouterr().out
    assert f"{empty} is shown at {address}" in said and said.endswith("ended\n")
    assert dispatch(["data", "view", str(empty), "--port", "0", "--no-browser"]) == 0
    assert opened == [address]


def test_no_browser_is_opened_inside_a_terminal(empty, opened, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_display()
    assert dispatch(["data", "view", str(empty), "--port", "0"]) == 0
    assert opened == []


def test_errors_are_sentences(empty, opened):
    with pytest.raises(DatasetNotFound, match="is not a dataset"):
        dispatch(["data", "view", "nowhere"])
    with viewer_server(Dataset(empty), 0) as taken, pytest.raises(InvalidSetting, match="cannot be used"):
        dispatch(["data", "view", str(empty), "--port", str(taken.port)])


@pytest.mark.slow
def test_ctrl_c_ends_it_cleanly(empty):
    program = "from robo_cli.main import main; main()"
    command = [sys.executable, "-c", program, "data", "view", str(empty), "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        address = said.split(" is shown at ")[1].split()[0]
        with urllib.request.urlopen(address) as page:
            assert b"robo-rl" in page.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "\nended\n", "")
