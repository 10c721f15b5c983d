"""Asks a language model for samples, and for repairs of some: to be killed at a random moment.

sample_and_die.py URL LOG N
"""

import sys
from pathlib import Path

from robo_rl.rewards.chat.opening import language_model
from robo_rl.rewards.chat.question import prompt

settings = {"model": "judge", "base_url": sys.argv[1], "key_variable": "TEST_KEY", "concurrency": 3}
model = language_model("endpoint", settings, log=Path(sys.argv[2]))
print("began", flush=True)
for reply in model.sample(prompt("Write a reward.", purpose="write"), int(sys.argv[3])):
    print(reply.text)
