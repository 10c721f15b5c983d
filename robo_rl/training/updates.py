"""Find out whether a training has updated its policy at all."""

from __future__ import annotations

from typing import Any

from robo_rl.training.actor_learner.acting import ActingTraining
from robo_rl.training.off_policy import OfflineTraining
from robo_rl.training.offline_to_online import OfflineThenOnline
from robo_rl.training.replay_learning import ReplayLearner


def has_learnt(training: Any) -> bool | None:
    """Return True once the learner of a training has taken an update.

    None if the learner does not count its updates, or learns in another process.
    """
    if isinstance(training, ActingTraining):
        return None
    if isinstance(training, OfflineThenOnline):
        return bool(has_learnt(training.offline)) or has_learnt(training.online)
    if isinstance(training, OfflineTraining):
        return training.step > 0
    if isinstance(memory := getattr(training, "step_learner", None), ReplayLearner):
        return memory.has_learnt
    learner = getattr(training, "learner", None)
    for counter in (training, learner, getattr(learner, "parts", None)):
        if isinstance(updates := getattr(counter, "updates", None), int):
            return updates > 0
    return None


def learns_too_late(learning_starts: int, steps: int, key: str) -> str:
    """Return why a training of `steps` steps makes no update, and the remedy; "" if it makes some.

    Args:
        learning_starts: Steps before the first update.
        steps: Steps of the training; 0 for none.
        key: Name of the learner's setting, such as "replay.learning_starts".
    """
    if learning_starts < steps or not steps:
        return ""
    fix = f"train for more --steps, or with --learner.{key.replace('_', '-')} {max(steps // 10, 1)}"
    return f"no update was made: {key} {learning_starts} >= steps {steps}; {fix}"
