"""What holds for every test: strict numbers, one thread, no display, nothing written into the checkout."""

import gc
import os
import signal
import tempfile
import threading

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read once, when torch and numpy are first imported
os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

import hypothesis
import numpy as np
import pytest
import torch

gc.disable()  # until all tests are collected: a third of that time was a search for garbage of which there is none
pytest_plugins = ["chat_server"]
CACHE = tempfile.TemporaryDirectory()  # of the carla client, which keeps maps in the home folder by default
os.environ["CARLA_CACHE_DIR"] = CACHE.name
torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would its children
hypothesis.settings.register_profile("default", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("default")


def pytest_collection_finish():
    """What is there now stays: no later search for garbage goes through ten thousand tests and all modules again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def floating_point_errors_raise():
    """Division by zero, overflow and invalid operations are errors; a tiny number may become zero."""
    with np.errstate(all="raise", under="ignore"):
        yield


@pytest.fixture(scope="session")
def beginnings(tmp_path_factory):
    """Folder of the folders that tests start in; pytest's numbered ones take a search of all numbers each."""
    return tmp_path_factory.mktemp("tests")


@pytest.fixture(autouse=True)
def away_from_the_checkout(beginnings, monkeypatch):
    """Every test works in an empty folder: MuJoCo writes MUJOCO_LOG.TXT where it stands, commands write runs/.

    Answers of reward models are kept beside it, away from the user's cache.
    """
    folder = tempfile.mkdtemp(dir=beginnings)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ROBO_RL_CACHE", f"{folder}-cache")


@pytest.fixture(autouse=True)
def boards_are_closed():
    """A run's board writes from a thread two minutes later too, when the test's folder is gone and another test is running."""
    yield
    left = [thread.name for thread in threading.enumerate() if type(thread).__name__ == "_AsyncWriterThread"]
    assert not left, f"{len(left)} records of a run were left open; close them"
