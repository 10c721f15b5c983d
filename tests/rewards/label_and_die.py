"""Labels a dataset with a judge behind an endpoint: to be killed at a random moment.

label_and_die.py DATASET URL NAME
"""

import sys
from pathlib import Path

from robo_datasets.dataset import Dataset
from robo_datasets.labelling import label
from robo_rl.rewards.judges.rewards import JudgeProgress

settings = {"model": "judge", "base_url": sys.argv[2], "key_variable": "TEST_KEY", "concurrency": 3}
label(Dataset(Path(sys.argv[1])), JudgeProgress(judge_settings=settings, every=2), sys.argv[3])
