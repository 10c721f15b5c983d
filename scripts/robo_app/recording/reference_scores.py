"""Mean returns of random actions and of an expert in an environment, by which the returns of datasets are normalised."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import gymnasium

from robo_app.recording.actors import Actor
from robo_rl.evaluation.evaluation import evaluation_seeds
from robo_rl.rollout.episode import rollout
from robo_rl.runs.run import write_text

EPISODES = 50  # of each, on the first seeds of every evaluation
FILE = "reference.json"

Score = dict[str, Any]
"""Reference score as plain values.

Entries: `actor`; `return`, mean and undiscounted; `success`, rate or None; `episodes`; `seeds`, first and last.
"""


def score(choose: Callable[[int], Actor], environment: gymnasium.Env[Any, Any], file: Path | None = None) -> Score:
    """Play an actor's most likely actions on fixed seeds; a file remembers the score for the next family."""
    seeds = evaluation_seeds(EPISODES)
    name = choose(seeds[0]).name
    known = _known(file)
    if name in known and known[name]["seeds"] == [seeds[0], seeds[-1]]:
        return known[name]
    episodes = [rollout(environment, choose(seed).policy, seed=seed, deterministic=True) for seed in seeds]
    judged = [episode.success for episode in episodes if episode.success is not None]
    found = {
        "actor": name,
        "return": fmean(episode.undiscounted_return for episode in episodes),
        "success": fmean(judged) if judged else None,
        "episodes": len(episodes),
        "seeds": [seeds[0], seeds[-1]],
    }
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(known | {name: found}, indent=1))
    return found


def summary(scores: Mapping[str, Score]) -> dict[str, Any]:
    """Return a card's entries of several scores, by role: mean returns, then success rates and the measurement."""
    first = next(iter(scores.values()))
    return {
        **{role: found["return"] for role, found in scores.items()},
        "success": {role: found["success"] for role, found in scores.items()},
        "actors": {role: found["actor"] for role, found in scores.items()},
        "episodes": first["episodes"],
        "seeds": first["seeds"],
    }


def _known(file: Path | None) -> dict[str, Score]:
    known: dict[str, Score] = json.loads(file.read_text()) if file is not None and file.exists() else {}
    return known
