"""Reinforcement learning for robotics and control: from simulator or robot to a trained and evaluated policy.

    import robo_rl

    run = robo_rl.train("arm-pick-rlpd", seed=1, evaluation={"episodes": 100})
    print(run.evaluate(episodes=50))

The names below are imported when they are first used, so that importing robo_rl is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robo_rl.environments.make import make_environment, make_vector_environment
    from robo_rl.evaluation.evaluation import Evaluation
    from robo_rl.protocols.components import Policy
    from robo_rl.rollout.episode import rollout as run_episode
    from robo_rl.runs.callbacks import Callback
    from robo_rl.runs.run import Run
    from robo_rl.types import Episode
    from robo_rl.workbench import evaluate, load_policy, open_dataset, open_run, resume, train

__all__ = [
    "Callback",
    "Episode",
    "Evaluation",
    "Policy",
    "Run",
    "evaluate",
    "load_policy",
    "make_environment",
    "make_vector_environment",
    "open_dataset",
    "open_run",
    "resume",
    "run_episode",
    "train",
]
_PLACES = {
    "Callback": "runs.callbacks",
    "Episode": "types",
    "Evaluation": "evaluation.evaluation",
    "Policy": "protocols.components",
    "Run": "runs.run",
    "evaluate": "workbench",
    "load_policy": "workbench",
    "make_environment": "environments.make",
    "make_vector_environment": "environments.make",
    "open_dataset": "workbench",
    "open_run": "workbench",
    "resume": "workbench",
    "run_episode": "rollout.episode:rollout",
    "train": "workbench",
}
"""Module of each name, and its name there if that is another: a function `rollout` would hide the module of that name."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, there = _PLACES[name].partition(":")
    found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), there or name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
