"""robo-rl reward rewrite: have a meta judge write the next version of a rubric."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.free_settings import MetaSettings, RewardModelSettings
from robo_app.arguments.positionals import DATASET
from robo_app.recipes.recipe import require_at_least
from robo_app.recipes.reward_file import read_labeller
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_papers.mpo.rubrics import RubricReward, rewritten
from robo_papers.mpo.samples import agreement, sample_of
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.models import chat_model

EXAMPLES = "robo-rl reward rewrite data/pick --labels scored --reward scored.yaml --meta endpoint --out rubric-1.yaml"


@dataclass(frozen=True)
class Rewrite:
    """Have a meta judge look at episodes and their scores, and write the next version of a rubric (MPO)."""

    dataset: DATASET
    labels: str
    """Label set with scores by the rubric (`robo-rl label --reward mpo`)."""
    reward: str
    """The reward that they were made with: mpo, or a YAML file that names it with its settings."""
    out: Path
    """File of the next version."""
    settings: RewardModelSettings = field(default_factory=dict)
    """Setting of the reward, as it was given to `robo-rl label`."""
    meta: Annotated[str, tyro.conf.arg(metavar="JUDGE")] = ""
    """Meta judge; empty for the reward's own judge."""
    meta_settings: MetaSettings = field(default_factory=dict)
    """Setting of the meta judge, such as --meta.settings.model qwen3"""
    episodes: int = 20
    """Episodes that it analyses; of more, those are chosen whose scores do not fit."""
    seed: int = 0
    """Seed of the order in which episodes are chosen."""

    def __post_init__(self) -> None:
        require_at_least(self, {"episodes": 1, "seed": 0})


def run(arguments: Rewrite) -> int:
    """Write the next version, or say why the rubric stays; print how well scores agree with success."""
    dataset, model = Dataset(arguments.dataset), read_labeller(arguments.reward, arguments.settings)
    if not isinstance(model, RubricReward):
        raise InvalidSetting("Only the rubric of the reward mpo is rewritten.", got=arguments.reward, allowed="mpo")
    if arguments.out.exists():
        raise InvalidSetting("There is a file of this name already.", got=arguments.out, fix="another --out")
    labels = LabelSet.existing(dataset, arguments.labels)
    if labels.makers - {model.identity}:
        raise InvalidSetting(
            f"The labels {arguments.labels!r} are not scores by this rubric and judge.",
            got=", ".join(sorted(f"{name} {hashed}" for name, hashed in labels.makers)),
            allowed=" ".join(model.identity),
            fix="name the reward with the settings that `robo-rl label` had",
        )
    found = [(dataset.read(entry), labels.read(entry.identity)) for entry in dataset.entries() if entry.steps]
    samples = [sample_of(model, episode, each) for episode, each in found if each is not None and each.valid[-1]]
    if not samples:
        raise InvalidSetting(
            f"No episode has a score in {arguments.labels!r}.", fix="robo-rl label again: answers were missing"
        )
    print(agreement(samples))
    asking = ModelClient(chat_model(arguments.meta, arguments.meta_settings)) if arguments.meta else model.asking
    result = rewritten(asking, model.judged_by, samples, most=arguments.episodes, seed=arguments.seed)
    print(asking.report())
    print(f"{result.shown} of {len(samples)} episodes analysed, {result.bad} with scores that do not fit")
    if result.problem:
        print(f"the rubric stays at version {result.rubric.version}: {result.problem}")
        return 1
    result.rubric.write(arguments.out)
    print(f"version {result.rubric.version} in {arguments.out}:\n{result.rubric.words}")
    print("scores by it are another reward: robo-rl label with --reward.settings.rubric and another --name")
    return 0
