"""One small cluster for all tests of a module; its workers, and the tests, find modules beside this file."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from robo_rl.cluster.connection import connected
from robo_rl.cluster.environment import AUTO

HERE = str(Path(__file__).parent)
sys.path.append(HERE)  # for what the tests share


@pytest.fixture(scope="module")
def cluster():
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])]))
        with connected(AUTO, cores=2) as found:
            yield found
