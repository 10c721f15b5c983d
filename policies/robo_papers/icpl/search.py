"""robo-rl reward search: a language model writes reward programs, a recipe is trained with each, and one is chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from robo_app.arguments.free_settings import RaterSettings, RecipeKeys
from robo_app.arguments.options import options
from robo_app.recipes.recipe import Recipe, require_at_least
from robo_app.rewards.program_writing import WritingContext, writing
from robo_app.training.program_validation import batch_sizes
from robo_app.training.train_options import recipe_of
from robo_papers.icpl.asking import AskingOrRule
from robo_papers.icpl.candidates import KeptTrainer, best_of
from robo_papers.icpl.eureka import Eureka, EurekaConfig
from robo_papers.icpl.icpl import ICPL, ICPLConfig
from robo_papers.icpl.loop import Search
from robo_papers.icpl.page import write_search
from robo_papers.icpl.preferring import KeptComparer
from robo_papers.icpl.rating_clips import comparer_of
from robo_papers.icpl.record import COMPARISONS, TRAININGS
from robo_papers.icpl.result import keep_failure, keep_winner, shown_rounds
from robo_papers.icpl.trainer import RecipeTrainer, confirmed_outcomes, require_success
from robo_rl.rewards.writing.record import CALLS, begin
from robo_rl.settings import plain
from robo_rl.system.threads import use_threads

EXAMPLES = "robo-rl reward search arm-reach-short --method icpl --llm rule:reach --out searches/reach"


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
    asking: Annotated[AskingOrRule, tyro.conf.arg(name="")] = field(default_factory=AskingOrRule)
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


def run(arguments: SearchReward) -> int:
    """Print every round and the winner; return 1 if no candidate succeeded."""
    recipe = recipe_of([arguments.recipe, *options(arguments.settings)])
    arguments.asking.require_one(recipe.environment.name)
    use_threads(recipe.threads)
    require_success(recipe)
    order = order_of(arguments, recipe)
    begin(arguments.out, order)
    environment, sizes = recipe.environment, batch_sizes(recipe.learner)
    trainer = RecipeTrainer(recipe, arguments.out / TRAININGS)
    with writing(environment.name, environment.arguments, arguments.asking, arguments.out / CALLS, sizes) as context:
        search = search_of(arguments, context, trainer)
        rounds = [*shown_rounds(search, arguments.out)]
    print(f"ended: {search.ended}")
    candidates = [each for round in rounds for each in round.candidates]
    winner = rounds[-1].incumbent if any(each.has_succeeded for each in candidates) else None
    confirmed = [] if winner is None else confirmed_outcomes(winner, recipe, arguments.out, arguments.seeds)
    facts = {"recipe": recipe.name, "environment": recipe.environment.name, "sentence": context.task.sentence}
    page = write_search(rounds, confirmed, order | facts | {"ended": search.ended}, arguments.out / "search.html")
    print(f"report   {page}")
    facts |= {"method": arguments.method, "ended": search.ended}
    if winner is None:
        return keep_failure(best_of(candidates), rounds, arguments.out, **facts)
    return keep_winner(winner, confirmed, rounds, arguments.out, **facts)


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
