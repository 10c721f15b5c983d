"""Labels of captions by a language model in this process, beside those of the rule.

python -m robo_papers.oni.study --cases 12
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import minigrid  # noqa: F401 - registers its environments

from robo_bench.local_model import Path, asked_for, most
from robo_papers.oni.questions import AnnotationRule, LabelQuestions, PairQuestions, Query, RuleModel
from robo_rl.environments.make import make_environment
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.log import CallLog
from robo_rl.rewards.chat.models import ChatModel
from robo_rl.rewards.step_rewards.captions import described
from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification
from robo_sims.minigrid_captions import MiniGridCaptioner

ROOMS = "minigrid/MiniGrid-DoorKey-6x6-v0"


def captions(count: int) -> list[str]:
    """Return distinct captions of DoorKey, half of them of steps that help by the rule, as far as there are as many."""
    environment = make_environment(ROOMS, encoding="one-hot")
    captioner, rule = MiniGridCaptioner(), RuleModel(AnnotationRule())
    found = dict[str, bool]()
    for seed in range(60):
        episode = rollout(environment, RandomPolicy(specification(environment), seed), seed=seed)
        for caption in described(captioner, Steps.of(episode), {}, says_task=False).captions:
            found[caption] = rule.rank(caption) > 0
    environment.close()
    helps, rest = ([caption for caption, is_good in found.items() if is_good is wanted] for wanted in (True, False))
    return [each for pair in zip(helps, rest, strict=False) for each in pair][:count]


def agreement(model: ChatModel, kind: type[LabelQuestions | PairQuestions], queries: Sequence[Query], name: str) -> Path:
    """Ask a language model for labels of captions, and return how often they are equal to those of the rule."""
    started = time.monotonic()
    goal = "unlock the door with the key, and get to the goal"
    asked, rule = (
        kind(ModelClient(each, log=CallLog(None)), goal).answers(queries) for each in (model, RuleModel(AnnotationRule()))
    )
    labels, wanted = ([value for value, _ in each] for each in (asked, rule))
    right = sum(mine == best for mine, best in zip(labels, wanted, strict=True))
    said = ", ".join(f"{labels.count(value)} x {value:g}" for value in sorted({each for each in labels if each is not None}))
    formed = sum(value is not None for value in labels)
    return Path(name, len(queries), formed, right, most(wanted), said, time.monotonic() - started)


def main() -> None:
    """Run the study of this module as a command, and print the rows of its table."""
    model, count = asked_for("robo_papers.oni.study", __doc__)
    known = captions(count)
    print(agreement(model, LabelQuestions, [(each,) for each in known], "does a step help?").row(), flush=True)
    print(agreement(model, PairQuestions, [*pairwise(known)], "which step is better?").row())


if __name__ == "__main__":
    main()
