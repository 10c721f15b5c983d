"""robo-rl prefer: have pairs of segments of a dataset compared; resumable at any time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.free_settings import PreferenceRaterSettings
from robo_app.display.browser import open_page
from robo_app.display.display import counted
from robo_app.recipes.recipe import require_at_least
from robo_app.rewards.usable_answers import answered_by, require_usable
from robo_datasets.dataset import Dataset
from robo_datasets.preference_collection import agreement, collect_preferences, draw_questions
from robo_datasets.preferences import PreferenceSet
from robo_rl.entry_points import load, operation
from robo_rl.rewards.preferences.raters import Rater
from robo_rl.settings import settings_as

EXAMPLES = """robo-rl prefer data/pick --name mine --pairs 2000
robo-rl prefer data/pick --name noisy --pairs 2000 --rater.settings.mistakes 0.2
robo-rl prefer data/pick --name mine --pairs 100 --length 10 --rater person --rater.settings.name anna
robo-rl reward fit preference --dataset data/pick --preferences noisy --out rewards/pick"""


@dataclass(frozen=True)
class Prefer:
    """Compare pairs of segments that are drawn by chance; each answer is on disk before the next question."""

    dataset: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATASET")]
    name: str
    """Name of the set of preferences; several raters may share one."""
    rater: str = "oracle"
    """Rater: "oracle" compares the recorded rewards, "embedded" and "judge" are models that see pictures, "person" is
    you, on a page."""
    settings: PreferenceRaterSettings = field(default_factory=dict)
    """Setting of the rater, such as --rater.settings.mistakes 0.2"""
    pairs: int = 1000
    """Number of comparisons, including earlier ones of this rater."""
    length: int = 1
    """Steps of a segment."""
    seed: int = 0
    """Seed of the draw; a larger number of pairs starts with the same ones."""

    active: str = ""
    """Folder of `robo-rl reward fit vpl`: of ten times as many pairs, ask those whose answers say most of this rater."""

    def __post_init__(self) -> None:
        require_at_least(self, {"pairs": 1, "length": 1, "seed": 0})


def run(arguments: Prefer) -> int:
    """Compare, showing progress; print how the answers are shared out."""
    dataset = Dataset(arguments.dataset)
    rater = settings_as(load("raters", arguments.rater), arguments.settings, source=f"the rater {arguments.rater}")
    if hasattr(rater, "address"):
        print(f"compare at {rater.address}   (Ctrl-C ends it; what was answered is kept)", flush=True)
        open_page(rater.address)
    asked = draw_questions(dataset.entries(), arguments.pairs, arguments.length, arguments.seed)
    if arguments.active:
        return _ask_actively(arguments, dataset, rater)
    watch = partial(counted, f"compare for {arguments.name}", "pairs", metrics=getattr(rater, "spent", dict))
    done = collect_preferences(dataset, rater, asked, arguments.length, arguments.name, watch)
    if hasattr(rater, "report"):
        print(rater.report())
    found = [*PreferenceSet(dataset, arguments.name)]
    own = [each for each in found if each.rater == ":".join(rater.identity)]
    agreeing, decided = agreement(dataset, own)
    if decided:  # shown, and used for nothing
        print(f"{agreeing / decided:.1%} of {decided} decided pairs agree with the recorded rewards")
    answers = Counter(str(each.label) for each in found)
    shares = ", ".join(f"{name} {answers[key]}" for key, name in ANSWERS.items())
    print(f"{done} pairs compared now; {arguments.name} has {answers.total()}: {shares}")
    if rater.kind == "model":  # a person may well be unable to tell
        has_none = bool(own) and all(each.label == "skip" for each in own)
        require_usable(answered_by(rater), f"0 of {len(own)} pairs are decided", has_none=has_none)
    return 0


def _ask_actively(arguments: Prefer, dataset: Dataset, rater: Rater) -> int:
    ask_actively = operation("ask_actively")
    drawn = draw_questions(dataset.entries(), 10 * arguments.pairs, arguments.length, arguments.seed)
    pairs, length = arguments.pairs, arguments.length
    done, known = ask_actively(dataset, rater, drawn, pairs=pairs, length=length, name=arguments.name, folder=arguments.active)
    print(f"{done} pairs compared now; known of this rater, each number of the latent with its deviation:")
    print(", ".join(f"{mean:.2f} ({rate**-0.5:.2f})" for mean, rate in zip(*(part.tolist() for part in known), strict=True)))
    return 0


ANSWERS = {"0.0": "first better", "1.0": "second better", "0.5": "equal", "skip": "cannot tell"}
