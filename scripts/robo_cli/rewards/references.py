"""robo-rl reward references: rewards of a policy's episodes before training, for the stage `par`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from robo_app.arguments.free_settings import RewardModelSettings
from robo_app.display.display import counted
from robo_app.recipes.reward_file import read_labeller
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import write_text


@dataclass(frozen=True)
class References:
    """Write the sum of a reward in each recorded episode: the references of the stage `par`."""

    reward: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="REWARD")]
    """Reward model, program:PATH, or a YAML file: the input of the stage."""
    dataset: Path
    """Episodes of the policy before training, such as a random one."""
    out: Path
    """A new file."""
    settings: RewardModelSettings = field(default_factory=dict)
    """Setting of the reward model."""
    episodes: int = 10
    """How many at most, evenly chosen (10 in the configuration of the paper's authors; one is enough, they say)."""


def write_references(arguments: References) -> int:
    """Label the episodes and write the sums of their rewards."""
    if arguments.out.exists():
        raise InvalidSetting(f"{arguments.out} is there already.", fix="name a new file: references are drawn once")
    dataset, model = Dataset(arguments.dataset), read_labeller(arguments.reward, arguments.settings)
    entries = dataset.entries()
    places = np.linspace(0, len(entries) - 1, min(arguments.episodes, len(entries))).round().astype(int).tolist()
    scores = []
    for entry in counted("score", "episodes", [entries[place] for place in places]):
        labels = model.label(dataset.read(entry))
        if labels.valid.all():
            scores.append(float(np.sum(labels.values, dtype=np.float64)))
    if not scores:
        raise InvalidSetting("No episode has a label for every step.", got=f"{len(places)} episodes", fix="look at the reward")
    name, weights = model.identity
    about = {"model": name, "weights": weights, "dataset": dataset.path.name, "spec": dataset.spec.name}
    write_text(arguments.out, json.dumps({"scores": scores, "about": about}, indent=1, allow_nan=False))
    print(f"{len(scores)} of {len(places)} episodes: {min(scores):.4g} to {max(scores):.4g}, mean {np.mean(scores):.4g}")
    return 0
