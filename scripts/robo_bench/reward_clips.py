"""robo-rl reward bench: how well a reward model scores clips whose score is known from the simulator's state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_bench.clips import clips_of, facts_of, scored
from robo_cli.display import counted
from robo_cli.recipe import require_at_least
from robo_cli.reward_file import read_reward
from robo_cli.typed_settings import settings_of
from robo_rl.rewards.embedded.pictures import captioned_pictures
from robo_rl.runs import write_text


@dataclass(frozen=True)
class BenchReward:
    """Score clips of drawn scenes, right and wrong sentences, done and half done: error, and what wrong sentences get."""

    reward: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="REWARD")]
    """A reward model of pictures, or a YAML file with `reward` and `settings`."""
    environment: str
    """Whose pictures: robo/ArmReach-v0, robo/ArmPick-v0 or robo/ArmPush-v0."""
    settings: tuple[str, ...] = ()
    """Settings of the reward model."""
    camera: str = "front"
    """That draws them."""
    image_size: int = 192
    """[pixel] height and width: those of the pictures that the reward knows."""
    pictures: int = 1600
    """How many are drawn, eight of each scene."""
    each: int = 40
    """Clips of each instruction and score at most."""
    seed: int = 1_000_000
    """Seed of the scenes; none that a model was trained on."""
    out: Path | None = None
    """File for the figures, JSON."""

    def __post_init__(self) -> None:
        require_at_least(self, {"pictures": 16, "image_size": 32, "each": 1, "seed": 0})


def bench_reward(arguments: BenchReward) -> int:
    """Draws, asks and prints."""
    model = read_reward(arguments.reward, settings_of(arguments.settings))
    data = captioned_pictures(
        arguments.environment,
        camera=arguments.camera,
        size=arguments.image_size,
        count=arguments.pictures,
        seed=arguments.seed,
    )
    clips = clips_of(data, arguments.each, arguments.seed)
    found = scored(model, data, clips, counted(f"score with {arguments.reward}", "clips", clips))
    facts = facts_of(clips)
    print(f"{facts['clips']} clips, {facts['counterfactual']} of them with something else done than is said")
    for words, figure in (
        ("mean absolute error of the score, 1 to 5", found.error),
        ("rank correlation with the score", found.correlation),
        ("mean score where something else was done", found.wrong),
        ("mean absolute error from the words alone", found.text_alone),
        ("share without an answer", found.missing),
    ):
        print(f"{words:44} {figure.interval if figure.is_measured else 'not measured'} (n = {figure.n})")
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        name, weights = model.identity
        told = {"reward": name, "weights": weights, "environment": arguments.environment, "seed": arguments.seed}
        write_text(arguments.out, json.dumps(told | facts | found.to_json(), indent=1, allow_nan=False))
    return 0
