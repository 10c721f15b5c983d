"""Steps that a reward program is tried on: of fresh episodes, or of recorded ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting
from robo_rl.protocols import Policy
from robo_rl.rewards.programs.abstraction import Columns, EnvAbstraction
from robo_rl.rewards.programs.probation import Clips
from robo_rl.rollout import RandomPolicy, rollout
from robo_rl.spec import EnvironmentSpec, specification
from robo_rl.types import Episode


def recorded_episodes(dataset: Dataset, rows: int, seed: int) -> list[Episode]:
    """Return episodes of a dataset, drawn by chance, that have so many steps together; raises InvalidSetting for none."""
    order = np.random.default_rng(seed).permutation(len(dataset))
    found = _enough((dataset.read(dataset.entries()[place]) for place in order), rows)
    if not found:
        raise InvalidSetting("There is no episode to try the program on.", got=f"{dataset.path}", fix="record some")
    return found


def fresh_episodes(environment: Any, rows: int, seed: int) -> list[Episode]:
    """Return episodes of so many steps together, by turns of the scripted policy, if there is one, and of a random one."""
    return _enough(_rolled_out(environment, seed), rows)


def stacked(view: EnvAbstraction, episodes: list[Episode]) -> Columns:
    """Return the columns of all steps: name -> (N, ...)."""
    found = [view.batch(episode) for episode in episodes]
    return {name: np.concatenate([columns[name] for columns in found]) for name in view.columns}


def clips_of(episodes: list[Episode]) -> Clips | None:
    """Return the episode of each step, and their success; None if the environment knows of none."""
    if any(episode.success is None for episode in episodes):
        return None
    clip = np.repeat(np.arange(len(episodes)), [len(episode) for episode in episodes])
    return Clips(clip, np.array([episode.success for episode in episodes], np.bool_))


def _rolled_out(environment: Any, seed: int) -> Iterator[Episode]:
    spec: EnvironmentSpec = specification(environment)
    policies: list[Policy] = [RandomPolicy(spec, seed)]
    if environment.has_wrapper_attr("scripted_policy"):
        policies.insert(0, environment.get_wrapper_attr("scripted_policy")(seed=seed))
    for number in count():
        yield rollout(environment, policies[number % len(policies)], seed=seed + number)


def _enough(episodes: Iterator[Episode], rows: int) -> list[Episode]:
    """Return whole episodes until they have so many steps."""
    chosen: list[Episode] = []
    while sum(map(len, chosen)) < rows and (episode := next(episodes, None)) is not None:
        chosen += [episode] if len(episode) else []
    return chosen
