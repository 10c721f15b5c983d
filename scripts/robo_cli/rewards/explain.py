"""robo-rl reward explain: page with plots of each term of a reward over an episode."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import tyro

from robo_app.arguments.free_settings import RewardModelSettings
from robo_app.recipes.reward_file import PROGRAM, program_file, read_reward, shipped_programs
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.shaping.explanation_page import write_explanation
from robo_rl.rewards.step_rewards.reward import StepReward


@dataclass(frozen=True)
class Explain:
    """Plot each term of a reward over a recorded episode, with the environment's own reward."""

    reward: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PROGRAM")]
    """A reward program (.py), one that comes with the package, such as arm_push, or a pipeline (YAML)."""
    dataset: Path
    """Dataset of the episode."""
    episode: int = 0
    """Which one, from 0."""
    settings: RewardModelSettings = field(default_factory=dict)
    """Setting of a pipeline."""
    out: Path = Path("explanation.html")
    """The HTML page to write."""


def explain(arguments: Explain) -> int:
    """Write the page and print the sums of the terms."""
    model = read_reward(_named(arguments.reward), arguments.settings)
    dataset = Dataset(arguments.dataset)
    entries = dataset.entries()
    if not 0 <= arguments.episode < len(entries):
        raise InvalidSetting(
            f"There is no episode {arguments.episode} in {dataset.path}.",
            got=arguments.episode,
            allowed=f"0 to {len(entries) - 1}" if entries else "none: the dataset is empty",
        )
    if not isinstance(model, StepReward):
        raise InvalidSetting(
            f"The reward {arguments.reward} has no terms.", got=type(model).__name__, allowed="a program or a pipeline"
        )
    episode = dataset.read(entries[arguments.episode])
    found = model.score_episode(episode)
    name, weights = model.identity
    facts = {"dataset": dataset.path.name, "environment": dataset.spec.name, "number": arguments.episode}
    facts |= {"reward": arguments.reward.removeprefix(PROGRAM), "model": name, "hash": weights}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_explanation(found, episode, facts, arguments.out)
    for name, values in {**found.terms, "total": found.total}.items():
        known = values[np.isfinite(values)]
        print(f"{name:24} {np.sum(known):10.4g} in all, {_range(known)}")
    print(f"environment's own reward {episode.undiscounted_return:10.4g} in all; success: {episode.success}")
    print(f"page: {arguments.out}")
    return 0


def _named(reward: str) -> str:
    """Return the name of a reward; a program may be named by its file alone."""
    return f"{PROGRAM}{program_file(reward)}" if reward.endswith(".py") or reward in shipped_programs() else reward


def _range(values: npt.NDArray[np.float64]) -> str:
    return f"{values.min():.4g} to {values.max():.4g} in a step" if values.size else "no value"
