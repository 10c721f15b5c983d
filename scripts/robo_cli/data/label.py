"""robo-rl label: rewards of a model in addition to the recorded ones of a dataset; resumable at any time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.free_settings import RewardModelSettings
from robo_app.cluster.cluster_label import labelled_at
from robo_app.display.display import counted
from robo_app.recipes.reward_file import named_reward, read_labeller
from robo_app.rewards.label_caches import cache_of, report_cache
from robo_app.rewards.usable_answers import Answered, answered_by, gaps_explained, require_usable
from robo_datasets.dataset import Dataset
from robo_datasets.labelling import label, shuffle
from robo_datasets.labels import LabelSet
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.judges.rewards import WithJudge

EXAMPLES = """robo-rl label data/pick --reward oracle --name oracle
robo-rl label data/pick --reward noisy-oracle --reward.settings.deviation 0.5 --reward.settings.missing 0.1 --name noisy
robo-rl label data/pick --reward my-reward.yaml --name mine
robo-rl label data/pick --reward my-reward.yaml --name again --replay     (from the cache; the model may be gone)
robo-rl label data/pick --reward my-reward.yaml --name mine --ray 10.0.0.1:6379     (by the machines of a Ray cluster)
robo-rl label data/pick --shuffled mine --name control     (labels of another set, dealt out by chance)
robo-rl train offline-iql --dataset data/pick --labels mine"""


@dataclass(frozen=True)
class Label:
    """Label every episode without labels in this set; each is on disk before the next one starts."""

    dataset: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATASET")]
    name: str
    """Name of the label set; lower case, digits, - and _."""
    reward: str = ""
    """A reward model (`robo-rl reward list`), or a YAML file with `reward` and `settings`."""
    settings: RewardModelSettings = field(default_factory=dict)
    """Setting of the reward model, such as --reward.settings.deviation 0.5"""
    shuffled: str = ""
    """Instead of a model: a label set to shuffle among the steps, as a control."""
    seed: int = 0
    """Seed of the shuffle of labels."""
    cache: str = ""
    """Folder with earlier answers of models, which are reused; "none" for no cache, empty for $ROBO_RL_CACHE, or
    without that ~/.cache/robo_rl."""
    replay: bool = False
    """Send no request: labels come from the cache, a judge's from kept answers, with gaps; an error names missing ones."""

    ray: str = ""
    """On a Ray cluster: "auto" for one of this machine that ends with the command, or HOST:PORT of a head."""
    jobs: int = 0
    """Models on the cluster; 0 for as many as it has cores for."""

    def __post_init__(self) -> None:
        if bool(self.reward) == bool(self.shuffled):
            got = "both" if self.reward else "neither"
            raise InvalidSetting("Labels come from a model or from another set.", got=got, allowed="--reward or --shuffled")
        if self.replay and self.cache == "none":
            raise InvalidSetting("Without a cache nothing can be replayed.", got="--replay --cache none")


def run(arguments: Label) -> int:
    """Label the dataset, showing progress."""
    dataset, answered = Dataset(arguments.dataset), list[Answered]()
    if arguments.shuffled:
        done = shuffle(dataset, arguments.shuffled, arguments.name, arguments.seed)
    else:
        named = named_reward(arguments.reward, arguments.settings)
        model = read_labeller(*named)
        model.require_recorded(dataset.spec)
        if getattr(model, "mode", "") == "potential":
            print("note: a potential alone makes all policies equally good; to learn from labels take mode=delta, or level")
        cache = cache_of(arguments.cache)
        spent = dict if arguments.ray else getattr(model, "spent", dict)  # workers ask, and this model knows nothing of it
        shown = partial(counted, f"label as {arguments.name}", "episodes", metrics=spent)
        there = labelled_at(arguments.ray, dataset, model, named, arguments.jobs) if arguments.ray else None
        replays = arguments.replay
        if replays and isinstance(model, WithJudge):  # its store answers
            model.ask_by(ModelClient(model.asking.model, replays=True))
            replays = False
        done = label(dataset, model, arguments.name, shown, cache, replay=replays, answers=there)
        if hasattr(model, "report"):
            print(model.report())
        if cache is not None:
            report_cache(cache)
        answered = answered_by(model)
    entries = dataset.entries()
    steps, count = sum(entry.steps for entry in entries), LabelSet(dataset, arguments.name).count(entries)
    if steps:
        require_usable(answered, f"{count} of {steps} steps have a label", has_none=not count)
    if count < steps:
        print(f"{count} of {steps} steps have a label: {gaps_explained(answered, is_elsewhere=bool(arguments.ray))}")
    print(f"{done} of {len(dataset)} episodes labelled now; train with --dataset {dataset.path} --labels {arguments.name}")
    return 0
