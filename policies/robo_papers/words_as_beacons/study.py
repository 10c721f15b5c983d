"""Plans of a language model in this process for levels of DoorKey, beside the perfect ones.

python -m robo_papers.words_as_beacons.study --cases 6
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import gymnasium

from robo_bench.local_model import Path, asked_for, most
from robo_papers.words_as_beacons.level import Level, level_of
from robo_papers.words_as_beacons.teachers import PerfectTeacher, listed, question
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.log import CallLog
from robo_rl.rewards.chat.models import ChatModel
from robo_sims.grids.cells import cells_of


def subgoals(model: ChatModel, count: int) -> Path:
    """Ask a language model for plans of `count` levels; count those that are usable, and that begin as the perfect plan."""
    started, levels = time.monotonic(), list[Level]()
    environment: Any = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
    for seed in range(count):
        environment.reset(seed=seed)
        grid = environment.unwrapped
        x, y = (int(part) for part in grid.agent_pos)
        levels.append(level_of(cells_of(grid), (x, y), int(grid.agent_dir), grid.mission))
    environment.close()
    answers = ModelClient(model, log=CallLog(None)).ask([question(level) for level in levels])
    plans = [listed(answer, level) for answer, level in zip(answers, levels, strict=True)]
    wanted = [PerfectTeacher().subgoals(level) for level in levels]
    right = sum(bool(plan) and plan[0] == best[0] for plan, best in zip(plans, wanted, strict=True))
    usable = sum(map(bool, plans))
    same = most(best[0] for best in wanted)
    said = ", ".join(f"{count} x {cell}" for cell, count in Counter(plan[0].place for plan in plans if plan).most_common(3))
    name = "subgoals: first cell as in the perfect plan"
    return Path(name, count, usable, right, same, f"first cells: {said}", time.monotonic() - started)


if __name__ == "__main__":
    print(subgoals(*asked_for("robo_papers.words_as_beacons.study", __doc__)).row())
