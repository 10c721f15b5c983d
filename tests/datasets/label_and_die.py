"""Labels a dataset with a model that writes down what it is asked: to be killed at a random moment.

label_and_die.py DATASET NAME ASKED [CACHE]
"""

import sys
import time
from pathlib import Path

from robo_datasets.dataset import Dataset
from robo_datasets.label_cache import LabelCache
from robo_datasets.labelling import label
from robo_rl.rewards.synthetic import NoisyOracle


class Slow(NoisyOracle):
    """Writes the seed of every episode to a file before it answers."""

    def label(self, episode):
        with Path(sys.argv[3]).open("a") as asked:
            asked.write(f"{episode.seed}\n")
        time.sleep(0.01)
        return super().label(episode)


cache = LabelCache(Path(sys.argv[4])) if len(sys.argv) > 4 else None
label(Dataset(Path(sys.argv[1])), Slow(), sys.argv[2], cache=cache)
