"""Search of a reward program: its options, and the method that they choose."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from robo_app.arguments.free_settings import RaterSettings, RecipeKeys
from robo_app.recipes.recipe import Recipe, require_at_least
from robo_app.rewards.program_writing import Asking, WritingContext
from robo_app.rewards.rating_clips import comparer_of
from robo_app.rewards.search_trainer import RecipeTrainer
from robo_rl.rewards.search.candidates import KeptTrainer
from robo_rl.rewards.search.eureka import Eureka, EurekaConfig
from robo_rl.rewards.search.icpl import ICPL, ICPLConfig
from robo_rl.rewards.search.loop import Search
from robo_rl.rewards.search.preferring import KeptComparer
from robo_rl.rewards.search.record import COMPARISONS
from robo_rl.settings import plain


@dataclass(frozen=True)
class SearchReward:
    """Search a reward program: a language model writes, a recipe is trained with each, success or preference chooses."""

    recipe: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")]
    """Recipe to train with each program; its environment must declare success."""
    out: Path
    """Folder of the search; the same command resumes there without repeating calls or trainings."""
    method: Literal["eureka", "icpl"] = "eureka"
    """"eureka" chooses by declared success in episodes that were not trained on, "icpl" by comparisons of policies."""
    settings: RecipeKeys = field(default_factory=dict)
    """Key of the recipe, such as --recipe.steps 4000"""
    rater: str = "oracle"
    """Rater of policies for icpl: "oracle" knows their success, "chance" is random, "person" is you, on a page, "judge"
    is a model that sees pictures."""
    rater_settings: RaterSettings = field(default_factory=dict)
    """Setting of the rater, such as --rater.settings.mistakes 0.2"""
    clips: int = 1
    """Episodes of each policy that a rater of pictures compares, one by one."""
    confirm: int = 0
    """Trainings of the winner from other seeds, evaluated in other episodes, for the final figure; the paper takes 5."""
    asking: Annotated[Asking, tyro.conf.arg(name="")] = field(default_factory=Asking)
    eureka: EurekaConfig = field(default_factory=EurekaConfig)
    """Settings of the method eureka."""
    icpl: ICPLConfig = field(default_factory=ICPLConfig)
    """Settings of the method icpl."""

    def __post_init__(self) -> None:
        require_at_least(self, {"clips": 1, "confirm": 0})

    @property
    def seeds(self) -> range:
        """Training seeds of the confirmations."""
        first = getattr(self, self.method).seed + 1
        return range(first, first + self.confirm)


def order_of(arguments: SearchReward, recipe: Recipe[Any]) -> dict[str, Any]:
    """Return the identity of a search: a folder cannot resume another one."""
    config = plain(getattr(arguments, arguments.method))
    more = {"rounds", "budget"}  # may be raised: earlier results stay valid
    order = {"method": arguments.method, **{name: value for name, value in config.items() if name not in more}}
    order |= arguments.asking.order | {"sentence": arguments.asking.sentence, "training": plain(recipe)}
    if arguments.method == "icpl":
        order |= {"rater": arguments.rater, "rater_settings": list(arguments.rater_settings), "clips": arguments.clips}
    return order


def search_of(arguments: SearchReward, context: WritingContext, trainer: RecipeTrainer) -> Search[Any]:
    """Return the search of the chosen method."""
    kept = KeptTrainer(trainer, trainer.folder)
    if arguments.method == "eureka":
        return Eureka(context.writer, kept, context.task, arguments.eureka, context.examples)
    comparer = comparer_of(arguments.rater, arguments.rater_settings, trainer, arguments.clips)
    remembered = KeptComparer(comparer, arguments.out / COMPARISONS)
    return ICPL(context.writer, kept, context.task, arguments.icpl, remembered, context.examples)
