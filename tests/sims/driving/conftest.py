"""Programs that drive, each in a process of its own with a hard time limit: the client may end a process, or hang it."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

OPENING = """
import json, os, sys, time
import numpy as np
from robo_sims.carla.family import FAMILY
result = {}
def drive(environment, seed, act=None):
    '''Returns the steps, the return, the last info and all rewards of an episode.'''
    policy = environment.scripted_policy(0)
    observation, _ = environment.reset(seed=seed)
    rewards = []
    while True:
        action = policy.act(observation) if act is None else np.array(act, np.float32)
        observation, reward, terminated, truncated, info = environment.step(action)
        rewards.append(reward)
        if terminated or truncated:
            return len(rewards), sum(rewards), info, rewards, terminated
"""
CLOSING = "\nprint('RESULT' + json.dumps(result))\nsys.stdout.flush()\n"
LIMIT = 60.0
"""[s] of a program."""


@pytest.fixture
def driven():
    """Runs a program; returns what it put into `result`."""
    pytest.importorskip("carla", reason="the carla wheel exists for Linux x86-64 and Windows, Python 3.10 to 3.12")

    def run(program: str, limit: float = LIMIT):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", OPENING + textwrap.dedent(program) + CLOSING]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, env=environment)
        assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
        return json.loads(lines[-1].removeprefix("RESULT"))

    return run
