"""Records an episode on a served robot and says which step was stored: to be killed at any moment.

record_and_hang.py URL DATASET
"""

import itertools
import sys
from pathlib import Path

import numpy as np

import robo_real.remote_robot
from robo_datasets.dataset import Dataset
from robo_datasets.recorder import record_episode
from robo_real.family import FAMILY
from robo_rl.rollout.journal import Journal

robo_real.remote_robot.TIMEOUT = 20.0
environment = FAMILY.at(sys.argv[1])
step, stored = Journal.step, itertools.count(1)


def told(self, transition):
    step(self, transition)
    print(next(stored), flush=True)


class Wanderer:
    environment_spec = environment.environment_spec

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.array([0.1, 0, 0, 0, 1], np.float32)


Journal.step = told
with Dataset.create(Path(sys.argv[2]), environment.environment_spec, {}).writer() as writer:
    record_episode(environment, Wanderer(), writer, seed=0, source="killed")
