"""Keep the best policy of a run, by the evaluations during its training, in the folder RUN/best.

Each kept policy is better than those before it. An older one is deleted only if no checkpoint precedes its successor: a run
that is resumed from any of its checkpoints then still has the best policy until that step.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.checkpoints import Checkpoint, checkpoint_steps, save_checkpoint
from robo_rl.types import StateDict

BEST = "best"
"""Folder in a run, and the word that stands for the step of the best policy."""


def score(evaluation: Evaluation) -> tuple[float, float]:
    """Return (success rate, mean return), by which evaluations are ordered; -inf for an unknown success."""
    rate = evaluation.success_rate
    return (-math.inf if rate is None else rate.estimate, evaluation.mean_return.estimate)


def best_step(run: Path) -> int | None:
    """Return the step of the best policy, or None if none was kept."""
    return max(checkpoint_steps(run / BEST), default=None)


def keep_if_best(run: Path, step: int, evaluation: Evaluation, parts: Callable[[], dict[str, StateDict]]) -> bool:
    """Keep a policy if its evaluation is better than the best so far; return True if it was kept.

    Args:
        run: Folder of the run.
        step: Step of the training.
        evaluation: Evaluation of the policy.
        parts: Returns the parts of a checkpoint from which the policy is restored.
    """
    before = best_step(run)
    if before is not None and not score(evaluation) > score(Evaluation.read(run / "evaluations" / f"{before:010d}.json")):
        return False
    save_checkpoint(run / BEST, Checkpoint(step, parts()), kept=0)
    kept = checkpoint_steps(run / BEST)
    ends = [*checkpoint_steps(run / "checkpoints"), step]
    needed = {max((each for each in kept if each <= end), default=step) for end in ends}
    for old in {*kept} - needed:
        shutil.rmtree(run / BEST / f"{old:010d}")
    return True
